"""What administration of groups asks for and answers with. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from moldau.client.committed_values import (
    ConsumerGroupMetadata as ConsumerGroupMetadata,
)
from moldau.client.committed_values import (
    GroupOffset as GroupOffset,
)
from moldau.client.rules.cluster_metadata import Broker
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import NO_LEADER_EPOCH

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
