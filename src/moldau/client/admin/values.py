"""What administration asks for and answers with. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from uuid import UUID

from moldau.client.rules.cluster_metadata import Broker, TopicMetadata
from moldau.client.rules.offsets import ConsumerGroupMetadata as ConsumerGroupMetadata
from moldau.client.rules.offsets import GroupOffset as GroupOffset
from moldau.client.rules.offsets import ListedOffset as ListedOffset
from moldau.client.rules.offsets import OffsetSpec as OffsetSpec
from moldau.config.alterations import ConfigChange, ConfigOperation
from moldau.model import NO_LEADER_EPOCH, TopicPartition
from moldau.wire.apis import FETCH, NO_VERSION, VersionRange

BROKER_DEFAULT = -1
"""For partitions and replication factor: what the broker's own settings say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be made."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Partition to brokers, leader first; given, it takes the place of both numbers."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleLeaders:
    """Who may lead a partition although it is not in sync, and who had everything last (KIP-966).

    Eligible replicas have every committed record. The last known ones had, and may have lost some.
    """

    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """What was made. The numbers are -1 and the id is None where an old broker does not say."""

    name: str
    topic_id: UUID | None = None
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster as any broker sees it."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenVersions:
    """What one broker says it speaks."""

    apis: Mapping[str, VersionRange]  # by name; APIs without a name here by their number
    features: Mapping[str, int]  # finalized in the cluster, with their levels (KIP-584)

    @property
    def release(self) -> str | None:
        """The newest release of Kafka whose Fetch versions it serves; it may be a later one."""
        fetch = self.apis.get(FETCH.name, NO_VERSION)
        if fetch.last == _FETCH_OF_TWO_RELEASES:
            return "4.0" if fetch.first >= _FIRST_FETCH_OF_KAFKA_4 else "3.9"
        return next((release for last, release in _RELEASES if fetch.last >= last), None)


_FIRST_FETCH_OF_KAFKA_4 = 4
"""KIP-896 took the older ones away."""

_FETCH_OF_TWO_RELEASES = 17

_RELEASES = ((18, "4.1"), (17, "3.9"), (16, "3.7"), (14, "3.5"), (13, "3.1"), (12, "2.7"))
"""Since when a version of Fetch is served."""


class ResourceType(IntEnum):
    """What can have settings; the numbers of the protocol."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN  # a newer broker may have thought of others


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """A topic, a group, or a broker by its id; a broker without a name is the default of all."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> ConfigResource:
        return cls(ResourceType.BROKER, str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ResourceType.GROUP, group_id)

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "the default of all brokers"
        return f"{self.type.name.lower()} {self.name}"


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers of the protocol."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN  # a newer broker may have thought of others


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A setting that would apply if the ones before it were absent."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting. The value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


class ElectionType(IntEnum):
    """Which leaders to elect; the numbers of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition on its way: `replicas` are all that hold it at the moment."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The brokers that it goes to."""
        return tuple(one for one in self.replicas if one not in self.removing_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOnDisk:
    """A replica in a log directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One log directory of one broker; the bytes of the volume are -1 where not told."""

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaOnDisk, ...]


__all__ = (
    "BROKER_DEFAULT",
    "Broker",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "ElectionType",
    "ListedOffset",
    "LogDirDescription",
    "NewTopic",
    "OffsetSpec",
    "Reassignment",
    "ReplicaOnDisk",
    "ResourceType",
    "TopicMetadata",
)

SHARE_TYPE = "share"
"""What `type` says of a share group."""


class GroupState(StrEnum):
    """Where a group is; the words are those of the protocol."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"  # this and the next: KIP-848
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"  # of a streams group (KIP-1071)

    @classmethod
    def _missing_(cls, value: object) -> GroupState:
        """Brokers do not mind upper and lower case, and newer ones may have thought of others."""
        wanted = str(value).casefold()
        return next((one for one in cls if one.value.casefold() == wanted), cls.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as a list of all shows it."""

    group_id: str
    protocol_type: str  # empty when the group only keeps offsets
    state: GroupState = GroupState.UNKNOWN  # old brokers do not say
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member, and what it reads."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assignment: tuple[TopicPartition, ...] = ()  # empty where the group is not of consumers
    epoch: int | None = None  # this and the next: of a consumer or a streams group
    target: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and who is in it; `protocol` is the assignor that the members agreed on."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    coordinator: Broker
    members: tuple[GroupMember, ...] = ()
    type: str = "classic"
    epoch: int | None = None  # of a consumer, a share or a streams group


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupOffset:
    """How far a share group has come in one partition. What is not known is None."""

    start_offset: int | None  # everything before it is done with; None: nothing was taken yet
    lag: int | None  # records from there on that are not done with
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a committed offset is behind the end of its partition.

    `records` counts offsets; transactions and compaction leave some of them without a record.
    `seconds` is the age of the oldest record that is still to be read, 0 when there is none.
    Both are None where nothing is committed; `seconds` also where that record has no timestamp.
    """

    log_end_offset: int
    records: int | None = None
    seconds: float | None = None


# Transactions


ONGOING = "Ongoing"
PREPARE_COMMIT = "PrepareCommit"
PREPARE_ABORT = "PrepareAbort"
UNDECIDED_OR_COMPLETING = frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT})
"""The states in which a coordinator will still end the transaction, in Kafka's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id as it is listed."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id, and what is open of it."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None  # None when nothing is open
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that a partition remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None  # of its last marker
    transaction_start_offset: int | None  # None when no transaction of it is open here


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """An open transaction in a partition, of which no coordinator knows: it will never end, and
    holds up every reader of committed records."""

    partition: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None  # of its producer, if there is one
