"""Which class, reader and header an API and version have.

Answers for looking these up, fast and lazily: kio has a module for each version of each API, and
loading them all takes seconds. Does not know which versions the broker serves; handlers declare
those. A rule over tables.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader

from moldau.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from kio.serial.readers import Reader
    from kio.static.protocol import Payload

PRODUCE: Final = 0
OFFSET_COMMIT: Final = 8
LEAVE_GROUP: Final = 13
FETCH: Final = 1
LIST_OFFSETS: Final = 2
API_VERSIONS: Final = 18

# Versions are 16 bits wide, so no version reaches this one.
NEVER_FLEXIBLE: Final = 1 << 15

# The first version with compact lengths and tagged fields (KIP-482). It is here as a literal, and
# compared with kio's schemas by a test, so that reading a header loads no schema.
FIRST_FLEXIBLE: Final[dict[int, int]] = {
    0: 9,  # Produce
    1: 12,  # Fetch
    2: 6,  # ListOffsets
    3: 9,  # Metadata
    8: 8,  # OffsetCommit
    9: 6,  # OffsetFetch
    10: 3,  # FindCoordinator
    11: 6,  # JoinGroup
    12: 4,  # Heartbeat
    13: 4,  # LeaveGroup
    14: 4,  # SyncGroup
    15: 5,  # DescribeGroups
    16: 3,  # ListGroups
    17: NEVER_FLEXIBLE,  # SaslHandshake
    18: 3,  # ApiVersions
    19: 5,  # CreateTopics
    20: 4,  # DeleteTopics
    21: 2,  # DeleteRecords
    22: 2,  # InitProducerId
    23: 4,  # OffsetForLeaderEpoch
    24: 3,  # AddPartitionsToTxn
    25: 3,  # AddOffsetsToTxn
    26: 3,  # EndTxn
    27: 1,  # WriteTxnMarkers
    28: 3,  # TxnOffsetCommit
    29: 2,  # DescribeAcls
    30: 2,  # CreateAcls
    31: 2,  # DeleteAcls
    32: 4,  # DescribeConfigs
    33: 2,  # AlterConfigs
    34: 2,  # AlterReplicaLogDirs
    35: 2,  # DescribeLogDirs
    36: 2,  # SaslAuthenticate
    37: 2,  # CreatePartitions
    38: 2,  # CreateDelegationToken
    39: 2,  # RenewDelegationToken
    40: 2,  # ExpireDelegationToken
    41: 2,  # DescribeDelegationToken
    42: 2,  # DeleteGroups
    43: 2,  # ElectLeaders
    44: 1,  # IncrementalAlterConfigs
    45: 0,  # AlterPartitionReassignments
    46: 0,  # ListPartitionReassignments
    47: NEVER_FLEXIBLE,  # OffsetDelete
    48: 1,  # DescribeClientQuotas
    49: 1,  # AlterClientQuotas
    50: 0,  # DescribeUserScramCredentials
    51: 0,  # AlterUserScramCredentials
    52: 0,  # Vote
    53: 1,  # BeginQuorumEpoch
    54: 1,  # EndQuorumEpoch
    55: 0,  # DescribeQuorum
    56: 0,  # AlterPartition
    57: 0,  # UpdateFeatures
    58: 0,  # Envelope
    59: 0,  # FetchSnapshot
    60: 0,  # DescribeCluster
    61: 0,  # DescribeProducers
    62: 0,  # BrokerRegistration
    63: 0,  # BrokerHeartbeat
    64: 0,  # UnregisterBroker
    65: 0,  # DescribeTransactions
    66: 0,  # ListTransactions
    67: 0,  # AllocateProducerIds
    68: 0,  # ConsumerGroupHeartbeat
    69: 0,  # ConsumerGroupDescribe
    70: 0,  # ControllerRegistration
    71: 0,  # GetTelemetrySubscriptions
    72: 0,  # PushTelemetry
    73: 0,  # AssignReplicasToDirs
    74: 0,  # ListConfigResources
    75: 0,  # DescribeTopicPartitions
    76: 0,  # ShareGroupHeartbeat
    77: 0,  # ShareGroupDescribe
    78: 0,  # ShareFetch
    79: 0,  # ShareAcknowledge
    80: 0,  # AddRaftVoter
    81: 0,  # RemoveRaftVoter
    82: 0,  # UpdateRaftVoter
    83: 0,  # InitializeShareGroupState
    84: 0,  # ReadShareGroupState
    85: 0,  # WriteShareGroupState
    86: 0,  # DeleteShareGroupState
    87: 0,  # ReadShareGroupStateSummary
    88: 0,  # StreamsGroupHeartbeat
    89: 0,  # StreamsGroupDescribe
    90: 0,  # DescribeShareGroupOffsets
    91: 0,  # AlterShareGroupOffsets
    92: 0,  # DeleteShareGroupOffsets
}


def is_flexible(api_key: int, version: int) -> bool:
    """Whether the version has compact lengths and tagged fields. Unknown APIs have not."""
    return version >= FIRST_FLEXIBLE.get(api_key, NEVER_FLEXIBLE)


@cache
def request_class(api_key: int, version: int) -> type[Payload]:
    """The class of the request; loads its module on the first call."""
    try:
        return load_request_schema(api_key, version)
    except KioIndexError as error:
        raise UnsupportedVersionError(f"API {api_key} has no version {version}") from error


@cache
def response_class(api_key: int, version: int) -> type[Payload]:
    """The class of the response; loads its module on the first call."""
    try:
        return load_response_schema(api_key, version)
    except KioIndexError as error:
        raise UnsupportedVersionError(f"API {api_key} has no version {version}") from error


@cache
def reader_of(entity_class: type[Payload]) -> Reader[Payload]:
    """kio's native reader: called with a read-only buffer and a position."""
    return entity_reader(entity_class)
