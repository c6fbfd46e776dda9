"""Which version of a request to send: the newest that broker and client both speak. A rule.

The table below is what this client speaks. Its upper ends are versions whose meaning the code
around it knows; kio may have newer layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.errors import UnsupportedByBrokerError


class Api(NamedTuple):
    """A request as this client speaks it. `first` and `last` are both spoken."""

    name: str
    key: int
    first: int
    last: int


class VersionRange(NamedTuple):
    """What a broker says of one API; both ends are served."""

    first: int
    last: int


PRODUCE: Final = Api("Produce", 0, 3, 12)  # 13 names topics by id only
FETCH: Final = Api("Fetch", 1, 4, 17)
LIST_OFFSETS: Final = Api("ListOffsets", 2, 1, 10)
METADATA: Final = Api("Metadata", 3, 1, 13)
OFFSET_COMMIT: Final = Api("OffsetCommit", 8, 2, 9)  # 10 names topics by id only
OFFSET_FETCH: Final = Api("OffsetFetch", 9, 2, 9)  # 1 cannot ask for all, 10 names topics by id
FIND_COORDINATOR: Final = Api("FindCoordinator", 10, 0, 6)
JOIN_GROUP: Final = Api("JoinGroup", 11, 2, 9)
HEARTBEAT: Final = Api("Heartbeat", 12, 0, 4)
LEAVE_GROUP: Final = Api("LeaveGroup", 13, 0, 5)
SYNC_GROUP: Final = Api("SyncGroup", 14, 0, 5)
DESCRIBE_GROUPS: Final = Api("DescribeGroups", 15, 0, 6)
LIST_GROUPS: Final = Api("ListGroups", 16, 0, 5)
API_VERSIONS: Final = Api("ApiVersions", 18, 0, 3)
CREATE_TOPICS: Final = Api("CreateTopics", 19, 2, 7)
DELETE_TOPICS: Final = Api("DeleteTopics", 20, 1, 6)
DELETE_RECORDS: Final = Api("DeleteRecords", 21, 0, 2)
INIT_PRODUCER_ID: Final = Api("InitProducerId", 22, 0, 5)
OFFSET_FOR_LEADER_EPOCH: Final = Api("OffsetForLeaderEpoch", 23, 2, 4)
DESCRIBE_CONFIGS: Final = Api("DescribeConfigs", 32, 1, 4)
DESCRIBE_LOG_DIRS: Final = Api("DescribeLogDirs", 35, 1, 4)
CREATE_PARTITIONS: Final = Api("CreatePartitions", 37, 0, 3)
DELETE_GROUPS: Final = Api("DeleteGroups", 42, 0, 2)
ELECT_LEADERS: Final = Api("ElectLeaders", 43, 0, 2)
INCREMENTAL_ALTER_CONFIGS: Final = Api("IncrementalAlterConfigs", 44, 0, 1)
ALTER_PARTITION_REASSIGNMENTS: Final = Api("AlterPartitionReassignments", 45, 0, 1)
LIST_PARTITION_REASSIGNMENTS: Final = Api("ListPartitionReassignments", 46, 0, 0)
OFFSET_DELETE: Final = Api("OffsetDelete", 47, 0, 0)
DESCRIBE_TOPIC_PARTITIONS: Final = Api("DescribeTopicPartitions", 75, 0, 0)

BrokerVersions = Mapping[int, VersionRange]
"""By API key: what the broker's answer to ApiVersions says."""


def choose_version(api: Api, broker: BrokerVersions, *, at_most: int | None = None) -> int:
    """The newest common version, not above `at_most`; raises when there is none."""
    served = broker.get(api.key)
    if served is None:
        raise UnsupportedByBrokerError(f"the broker does not serve {api.name} requests")
    wanted_last = api.last if at_most is None else min(api.last, at_most)
    version = min(wanted_last, served.last)
    if version < max(api.first, served.first):
        raise UnsupportedByBrokerError(
            f"the broker serves {api.name} versions {served.first} to {served.last}, "
            f"this client speaks {api.first} to {wanted_last}"
        )
    return version
