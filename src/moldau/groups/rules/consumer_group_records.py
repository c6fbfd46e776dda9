"""What the offsets log says about consumer groups (KIP-848): the values in its records.

The hard state of such a group is what its records say together: an epoch, what each member wants,
what each member is to get (its target), and what each has by now. How they look in bytes is
`groups.consumer_group_log`'s business. A rule: values only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from moldau.groups.rules.assigned_partitions import AssignedPartitions, AssignmentEpochs


class MemberState(IntEnum):
    """How far a member has come on the way to its target; Kafka's numbers."""

    STABLE = 0
    """It has the whole target of its epoch.

    Moves: to any state when the target changes.
    """

    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up first, and stays in its epoch until it says that it has.

    Moves: on towards the target when it no longer owns them; out of the group when that takes
    longer than its rebalance time-out.
    """

    UNRELEASED_PARTITIONS = 2
    """It has what is free of the target; others still hold the rest.

    Moves: to any state, with each heartbeat that finds something released or another target.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # names and metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSubscription:
    """Who a member is and what it wants."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None  # None: it speaks the new protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """What a member has, and since when."""

    epoch: int = 0
    previous_epoch: int = 0
    """It may not have heard of its epoch yet, and speak in this one."""
    state: MemberState = MemberState.STABLE
    assigned: AssignedPartitions = field(default_factory=dict)
    revoking: AssignedPartitions = field(default_factory=dict)
    """Nobody else gets these before it has given them up."""
    assignment_epochs: AssignmentEpochs = field(default_factory=dict)
    """Of the assigned and the revoking partitions: a commit in an older epoch of the member is
    accepted back to this one (CGR-5). Members of share groups commit nothing and have none."""

    def has_had(self, topic_id: UUID, partition: int, epoch: int) -> bool:
        """Whether the member has the partition without interruption since this epoch."""
        assigned_in = self.assignment_epochs.get(topic_id, {}).get(partition)
        return assigned_in is not None and assigned_in <= epoch

    def is_at(self, target_epoch: int) -> bool:
        """Whether nothing is left to do for the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


class GroupEpoch(NamedTuple):
    """Grows when the members, what they want, or the topics change."""

    epoch: int
    metadata_hash: int  # of the topics that the members want


class GroupEpochRecord(NamedTuple):
    """A new epoch, or the end of the group (None)."""

    group_id: str
    value: GroupEpoch | None


class MemberSubscriptionRecord(NamedTuple):
    """A member comes or wants something else, or has gone (None)."""

    group_id: str
    member_id: str
    value: ConsumerSubscription | None


class TargetEpochRecord(NamedTuple):
    """The targets of all members are those of this epoch of the group."""

    group_id: str
    epoch: int | None
    timestamp_ms: int = 0  # when they were computed; 0: not known


class TargetAssignmentRecord(NamedTuple):
    """What a member is to get."""

    group_id: str
    member_id: str
    value: AssignedPartitions | None


class MemberAssignmentRecord(NamedTuple):
    """What a member has."""

    group_id: str
    member_id: str
    value: MemberAssignment | None


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression stood for."""

    topics: frozenset[str]
    image_version: int
    timestamp_ms: int


class ResolvedRegexRecord(NamedTuple):
    """A regular expression was looked up, or nobody uses it any more (None)."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerGroupRecord: TypeAlias = (
    GroupEpochRecord
    | MemberSubscriptionRecord
    | TargetEpochRecord
    | TargetAssignmentRecord
    | MemberAssignmentRecord
    | ResolvedRegexRecord
)


def removal_of(group_id: str, member_id: str) -> tuple[ConsumerGroupRecord, ...]:
    """Together, so that nothing of a member outlives its membership (CGR-3)."""
    return (
        MemberAssignmentRecord(group_id, member_id, None),
        TargetAssignmentRecord(group_id, member_id, None),
        MemberSubscriptionRecord(group_id, member_id, None),
    )
