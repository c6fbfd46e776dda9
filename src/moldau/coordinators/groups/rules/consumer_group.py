"""One consumer group (KIP-848): what the log says of it, and what follows from that.

The coordinator decides who reads what, in the epochs of `epoch_group`. All of it is hard state:
`apply` alone changes it, with records that were logged. What a request leads to is for
`consumer_membership`, with the way of a member to its target.

The model is Kafka's `ConsumerGroup` and its half of the `GroupMetadataManager`. A rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from uuid import UUID

from moldau.coordinators.groups.rules.consumer_records import (
    ConsumerGroupRecord,
    ConsumerSubscription,
    GroupEpochRecord,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    ResolvedRegex,
    ResolvedRegexRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.coordinators.groups.rules.epoch_group import (
    DescribedConsumerGroup,
    EpochGroup,
    EpochRecordKinds,
    preferred_assignor,
    put,
)
from moldau.coordinators.groups.rules.events import (
    GroupTimer,
    GroupTimerKind,
    GroupType,
    ListedGroup,
)
from moldau.coordinators.groups.rules.offsets import (
    CONSUMER_PROTOCOL_TYPE,
    OffsetTable,
    PendingOffsets,
    WithOffsets,
)
from moldau.coordinators.groups.rules.outcome import GroupLimits


class ConsumerGroupState(Enum):
    """Of a consumer group (KIP-848). Follows from the epochs; nobody sets it. The values are
    Kafka's names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to ASSIGNING with the first member; to DEAD when it is deleted or its
    last offset expires."""

    ASSIGNING = "Assigning"
    """The group's epoch is ahead of the target's. Moves: to RECONCILING with the next heartbeat of
    a member, which is when targets are computed."""

    RECONCILING = "Reconciling"
    """Some members have not reached their targets yet. Moves: to STABLE with the last one."""

    STABLE = "Stable"
    """Every member has its target. Moves: to ASSIGNING when somebody comes, goes or wants something
    else, or the topics change."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""


class ConsumerGroup(EpochGroup, WithOffsets):
    """A group. Invariants CGR-1 to CGR-4 hold between two events."""

    RECORDS = EpochRecordKinds(
        GroupEpochRecord,
        MemberSubscriptionRecord,
        TargetEpochRecord,
        TargetAssignmentRecord,
        MemberAssignmentRecord,
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        # Hard
        self.regexes: dict[str, ResolvedRegex] = {}
        self.offsets = OffsetTable()
        self.pending_offsets = PendingOffsets()
        # Follows from it
        self._holders: dict[UUID, dict[int, str]] = {}  # who has a partition or gives it up
        self._instances: dict[str, str] = {}  # member ids by instance id
        # Soft
        self.told_to_join: set[str] = set()  # members of the classic protocol
        # In which topics expressions were last looked up, and when; None: not by this coordinator.
        self.resolved: tuple[object, int] | None = None

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state.value}, epoch {self.epoch})"

    # Hard state

    def apply(self, record: ConsumerGroupRecord) -> None:
        """Take a record of this group that is in the log. The end of the group is for `Groups`."""
        if isinstance(record, ResolvedRegexRecord):
            put(self.regexes, record.regex, record.value)
            self._wanted = None
        else:
            self.apply_epochs(record)

    def _apply_subscription(self, member_id: str, value: ConsumerSubscription | None) -> None:
        former = self.subscriptions.get(member_id)
        instance_id = None if former is None else former.instance_id
        if instance_id is not None and self._instances.get(instance_id) == member_id:
            del self._instances[instance_id]
        if value is not None and value.instance_id is not None:
            self._instances[value.instance_id] = member_id
        super()._apply_subscription(member_id, value)
        if value is None:
            self.told_to_join.discard(member_id)

    def _apply_assignment(self, member_id: str, value: MemberAssignment | None) -> None:
        former = self.assignments.get(member_id)
        for topic_id, partition in _holdings(former):
            holders = self._holders.get(topic_id, {})
            if holders.get(partition) == member_id:
                del holders[partition]
                if not holders:
                    del self._holders[topic_id]
        for topic_id, partition in _holdings(value):
            self._holders.setdefault(topic_id, {})[partition] = member_id
        super()._apply_assignment(member_id, value)

    # Questions

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.subscriptions:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.assignment_of(one).is_at(self.target_epoch) for one in self.subscriptions):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def find_instance(self, instance_id: str) -> str | None:
        """The id of the static member."""
        return self._instances.get(instance_id)

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        """Whether nobody has the partition or is still giving it up."""
        return partition not in self._holders.get(topic_id, ())

    def _find_wanted(self, members: Iterable[ConsumerSubscription]) -> frozenset[str]:
        """Also those that expressions stand for."""
        return self.topics_wanted_by(members, self.regexes)

    @staticmethod
    def topics_wanted_by(
        members: Iterable[ConsumerSubscription], regexes: Mapping[str, ResolvedRegex]
    ) -> frozenset[str]:
        wanted: set[str] = set()
        for topics, regex in {(one.topics, one.regex) for one in members}:
            wanted |= topics
            if regex is not None and regex in regexes:
                wanted |= regexes[regex].topics
        return frozenset(wanted)

    def describe(self, limits: GroupLimits) -> DescribedConsumerGroup:
        return self.describe_as(self.state, preferred_assignor(self.subscriptions, limits))

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, CONSUMER_PROTOCOL_TYPE, self.state, GroupType.CONSUMER)

    # Timers

    def revocation_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.REVOCATION, self.group_id, member_id)

    def join_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.JOIN, self.group_id, member_id)

    def sync_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.SYNC, self.group_id, member_id)

    def end_records(self) -> list[ConsumerGroupRecord]:
        """What is logged when the group, in which nobody is any more, ends."""
        ended: list[ConsumerGroupRecord] = [
            ResolvedRegexRecord(self.group_id, regex, None) for regex in sorted(self.regexes)
        ]
        return [
            *ended,
            TargetEpochRecord(self.group_id, None),
            GroupEpochRecord(self.group_id, None),
        ]


def _holdings(assignment: MemberAssignment | None) -> Iterator[tuple[UUID, int]]:
    if assignment is not None:
        for partitions in (assignment.assigned, assignment.revoking):
            for topic_id, some in partitions.items():
                for partition in some:
                    yield topic_id, partition
