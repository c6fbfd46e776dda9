"""Every API of Kafka, declared once: key, name, the first flexible version, and the versions that
this broker serves and this client speaks.

The upper ends of what is spoken are versions whose meaning the client's code knows; kio may have
newer layouts. Literals only, compared with kio's schemas by a test, so that looking something up
loads no schema. Values: nothing here decides.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class VersionRange(NamedTuple):
    """Versions of one API; both ends belong to it."""

    first: int
    last: int


NO_VERSION: Final = VersionRange(0, -1)

NEVER: Final = 1 << 15
"""Versions are 16 bits wide, so no version reaches this one."""


class Api(NamedTuple):
    """One API; `NO_VERSION` where the broker does not serve it, or the client does not speak it."""

    key: int
    name: str
    first_flexible: int
    """The first version with compact lengths and tagged fields (KIP-482)."""
    served: VersionRange = NO_VERSION
    advertised: VersionRange = NO_VERSION
    """What ApiVersions names; more than what is served only where a client insists."""
    spoken: VersionRange = NO_VERSION

    @property
    def snake_name(self) -> str:
        """As kio, and the handler's module, are named: `list_offsets`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


APIS: Final[dict[int, Api]] = {}
"""All of them, by key."""


def _api(
    key: int,
    name: str,
    first_flexible: int,
    *,
    served: tuple[int, int] = NO_VERSION,
    advertised: tuple[int, int] | None = None,
    spoken: tuple[int, int] = NO_VERSION,
) -> Api:
    APIS[key] = Api(
        key,
        name,
        first_flexible,
        served=VersionRange(*served),
        advertised=VersionRange(*(advertised or served)),
        spoken=VersionRange(*spoken),
    )
    return APIS[key]


# Advertised: as Kafka does, for clients that look for 0 (KAFKA-18659). Spoken: 13 names topics by
# id only.
PRODUCE: Final = _api(0, "Produce", 9, served=(3, 13), advertised=(0, 13), spoken=(3, 12))
FETCH: Final = _api(1, "Fetch", 12, served=(4, 18), spoken=(4, 17))
LIST_OFFSETS: Final = _api(2, "ListOffsets", 6, served=(1, 11), spoken=(1, 10))
METADATA: Final = _api(3, "Metadata", 9, served=(0, 13), spoken=(1, 13))
# Spoken: 10 names topics by id only.
OFFSET_COMMIT: Final = _api(8, "OffsetCommit", 8, served=(2, 10), spoken=(2, 9))
# Spoken: 1 cannot ask for all, 10 names topics by id.
OFFSET_FETCH: Final = _api(9, "OffsetFetch", 6, served=(1, 10), spoken=(2, 9))
FIND_COORDINATOR: Final = _api(10, "FindCoordinator", 3, served=(0, 6), spoken=(0, 6))
JOIN_GROUP: Final = _api(11, "JoinGroup", 6, served=(0, 9), spoken=(2, 9))
HEARTBEAT: Final = _api(12, "Heartbeat", 4, served=(0, 4), spoken=(0, 4))
LEAVE_GROUP: Final = _api(13, "LeaveGroup", 4, served=(0, 5), spoken=(0, 5))
SYNC_GROUP: Final = _api(14, "SyncGroup", 4, served=(0, 5), spoken=(0, 5))
DESCRIBE_GROUPS: Final = _api(15, "DescribeGroups", 5, served=(0, 6), spoken=(0, 6))
LIST_GROUPS: Final = _api(16, "ListGroups", 3, served=(0, 5), spoken=(0, 5))
SASL_HANDSHAKE: Final = _api(17, "SaslHandshake", NEVER, served=(0, 1), spoken=(1, 1))
API_VERSIONS: Final = _api(18, "ApiVersions", 3, served=(0, 4), spoken=(0, 3))
CREATE_TOPICS: Final = _api(19, "CreateTopics", 5, served=(2, 7), spoken=(2, 7))
DELETE_TOPICS: Final = _api(20, "DeleteTopics", 4, served=(1, 6), spoken=(1, 6))
DELETE_RECORDS: Final = _api(21, "DeleteRecords", 2, served=(0, 2), spoken=(0, 2))
INIT_PRODUCER_ID: Final = _api(22, "InitProducerId", 2, served=(0, 6), spoken=(0, 6))
OFFSET_FOR_LEADER_EPOCH: Final = _api(23, "OffsetForLeaderEpoch", 4, served=(2, 4), spoken=(2, 4))
# Spoken: from 4 on it is for brokers.
ADD_PARTITIONS_TO_TXN: Final = _api(24, "AddPartitionsToTxn", 3, served=(0, 5), spoken=(0, 3))
ADD_OFFSETS_TO_TXN: Final = _api(25, "AddOffsetsToTxn", 3, served=(0, 4), spoken=(0, 4))
END_TXN: Final = _api(26, "EndTxn", 3, served=(0, 5), spoken=(0, 5))
WRITE_TXN_MARKERS: Final = _api(27, "WriteTxnMarkers", 1, served=(1, 2), spoken=(1, 2))
TXN_OFFSET_COMMIT: Final = _api(28, "TxnOffsetCommit", 3, served=(0, 5), spoken=(0, 5))
DESCRIBE_ACLS: Final = _api(29, "DescribeAcls", 2, served=(1, 3), spoken=(1, 3))
CREATE_ACLS: Final = _api(30, "CreateAcls", 2, served=(1, 3), spoken=(1, 3))
DELETE_ACLS: Final = _api(31, "DeleteAcls", 2, served=(1, 3), spoken=(1, 3))
DESCRIBE_CONFIGS: Final = _api(32, "DescribeConfigs", 4, served=(1, 4), spoken=(1, 4))
ALTER_CONFIGS: Final = _api(33, "AlterConfigs", 2, served=(0, 2))
ALTER_REPLICA_LOG_DIRS: Final = _api(34, "AlterReplicaLogDirs", 2, served=(1, 2), spoken=(1, 2))
DESCRIBE_LOG_DIRS: Final = _api(35, "DescribeLogDirs", 2, served=(1, 5), spoken=(1, 4))
SASL_AUTHENTICATE: Final = _api(36, "SaslAuthenticate", 2, served=(0, 2), spoken=(1, 1))
CREATE_PARTITIONS: Final = _api(37, "CreatePartitions", 2, served=(0, 3), spoken=(0, 3))
CREATE_DELEGATION_TOKEN: Final = _api(38, "CreateDelegationToken", 2, served=(1, 3), spoken=(1, 3))
RENEW_DELEGATION_TOKEN: Final = _api(39, "RenewDelegationToken", 2, served=(1, 2), spoken=(1, 2))
EXPIRE_DELEGATION_TOKEN: Final = _api(40, "ExpireDelegationToken", 2, served=(1, 2), spoken=(1, 2))
DESCRIBE_DELEGATION_TOKEN: Final = _api(
    41, "DescribeDelegationToken", 2, served=(1, 3), spoken=(1, 3)
)
DELETE_GROUPS: Final = _api(42, "DeleteGroups", 2, served=(0, 2), spoken=(0, 2))
ELECT_LEADERS: Final = _api(43, "ElectLeaders", 2, served=(0, 2), spoken=(0, 2))
INCREMENTAL_ALTER_CONFIGS: Final = _api(
    44, "IncrementalAlterConfigs", 1, served=(0, 1), spoken=(0, 1)
)
ALTER_PARTITION_REASSIGNMENTS: Final = _api(
    45, "AlterPartitionReassignments", 0, served=(0, 1), spoken=(0, 1)
)
LIST_PARTITION_REASSIGNMENTS: Final = _api(
    46, "ListPartitionReassignments", 0, served=(0, 0), spoken=(0, 0)
)
OFFSET_DELETE: Final = _api(47, "OffsetDelete", NEVER, served=(0, 0), spoken=(0, 0))
DESCRIBE_CLIENT_QUOTAS: Final = _api(48, "DescribeClientQuotas", 1, served=(0, 1), spoken=(0, 1))
ALTER_CLIENT_QUOTAS: Final = _api(49, "AlterClientQuotas", 1, served=(0, 1), spoken=(0, 1))
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = _api(
    50, "DescribeUserScramCredentials", 0, served=(0, 0), spoken=(0, 0)
)
ALTER_USER_SCRAM_CREDENTIALS: Final = _api(
    51, "AlterUserScramCredentials", 0, served=(0, 0), spoken=(0, 0)
)
_api(52, "Vote", 0)
_api(53, "BeginQuorumEpoch", 1)
_api(54, "EndQuorumEpoch", 1)
_api(55, "DescribeQuorum", 0)
_api(56, "AlterPartition", 0)
UPDATE_FEATURES: Final = _api(57, "UpdateFeatures", 0, served=(0, 2))
_api(58, "Envelope", 0)
_api(59, "FetchSnapshot", 0)
DESCRIBE_CLUSTER: Final = _api(60, "DescribeCluster", 0, served=(0, 2), spoken=(0, 2))
DESCRIBE_PRODUCERS: Final = _api(61, "DescribeProducers", 0, served=(0, 0), spoken=(0, 0))
_api(62, "BrokerRegistration", 0)
_api(63, "BrokerHeartbeat", 0)
UNREGISTER_BROKER: Final = _api(64, "UnregisterBroker", 0, served=(0, 0))
DESCRIBE_TRANSACTIONS: Final = _api(65, "DescribeTransactions", 0, served=(0, 0), spoken=(0, 0))
LIST_TRANSACTIONS: Final = _api(66, "ListTransactions", 0, served=(0, 2), spoken=(0, 2))
_api(67, "AllocateProducerIds", 0)
# Spoken: 0 was a preview, in which the coordinator made the ids of members.
CONSUMER_GROUP_HEARTBEAT: Final = _api(
    68, "ConsumerGroupHeartbeat", 0, served=(0, 1), spoken=(1, 1)
)
CONSUMER_GROUP_DESCRIBE: Final = _api(69, "ConsumerGroupDescribe", 0, served=(0, 1), spoken=(0, 1))
_api(70, "ControllerRegistration", 0)
GET_TELEMETRY_SUBSCRIPTIONS: Final = _api(71, "GetTelemetrySubscriptions", 0, served=(0, 0))
PUSH_TELEMETRY: Final = _api(72, "PushTelemetry", 0, served=(0, 0))
_api(73, "AssignReplicasToDirs", 0)
# Spoken: 0 lists client metrics only.
LIST_CONFIG_RESOURCES: Final = _api(74, "ListConfigResources", 0, served=(0, 1), spoken=(1, 1))
DESCRIBE_TOPIC_PARTITIONS: Final = _api(
    75, "DescribeTopicPartitions", 0, served=(0, 0), spoken=(0, 0)
)
SHARE_GROUP_HEARTBEAT: Final = _api(76, "ShareGroupHeartbeat", 0, served=(1, 1), spoken=(1, 1))
SHARE_GROUP_DESCRIBE: Final = _api(77, "ShareGroupDescribe", 0, served=(1, 1), spoken=(1, 1))
SHARE_FETCH: Final = _api(78, "ShareFetch", 0, served=(1, 2), spoken=(1, 2))
SHARE_ACKNOWLEDGE: Final = _api(79, "ShareAcknowledge", 0, served=(1, 2), spoken=(1, 2))
_api(80, "AddRaftVoter", 0)
_api(81, "RemoveRaftVoter", 0)
_api(82, "UpdateRaftVoter", 0)
INITIALIZE_SHARE_GROUP_STATE: Final = _api(83, "InitializeShareGroupState", 0, served=(0, 0))
READ_SHARE_GROUP_STATE: Final = _api(84, "ReadShareGroupState", 0, served=(0, 0))
WRITE_SHARE_GROUP_STATE: Final = _api(85, "WriteShareGroupState", 0, served=(0, 1))
DELETE_SHARE_GROUP_STATE: Final = _api(86, "DeleteShareGroupState", 0, served=(0, 0))
READ_SHARE_GROUP_STATE_SUMMARY: Final = _api(87, "ReadShareGroupStateSummary", 0, served=(0, 1))
STREAMS_GROUP_HEARTBEAT: Final = _api(88, "StreamsGroupHeartbeat", 0, served=(0, 0))
STREAMS_GROUP_DESCRIBE: Final = _api(89, "StreamsGroupDescribe", 0, served=(0, 0), spoken=(0, 0))
DESCRIBE_SHARE_GROUP_OFFSETS: Final = _api(
    90, "DescribeShareGroupOffsets", 0, served=(0, 1), spoken=(0, 1)
)
ALTER_SHARE_GROUP_OFFSETS: Final = _api(
    91, "AlterShareGroupOffsets", 0, served=(0, 0), spoken=(0, 0)
)
DELETE_SHARE_GROUP_OFFSETS: Final = _api(
    92, "DeleteShareGroupOffsets", 0, served=(0, 0), spoken=(0, 0)
)

SERVED: Final = tuple(api for api in APIS.values() if api.served != NO_VERSION)
"""By this broker: each has a handler of its name in `broker.handlers`."""

FIRST_FLEXIBLE: Final = {api.key: api.first_flexible for api in APIS.values()}
"""By key: looked up for the header of every request."""
