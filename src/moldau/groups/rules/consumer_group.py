"""One consumer group (KIP-848): what the log says of it, and what follows from that.

The coordinator decides who reads what. It keeps three epochs apart: the group's grows with every
change of its members, their wishes or the topics; the target's is the group's epoch that was last
assigned for; a member's says which target it has reached. All of it is hard state: `apply` alone
changes it, with records that were logged. What a request leads to is for `consumer_membership`, the
way of a member to its target for `reconciliation`.

The model is Kafka's `ConsumerGroup` and its half of the `GroupMetadataManager`. A rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar
from uuid import UUID

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.groups.rules.assigned_partitions import NO_PARTITIONS, AssignedPartitions
from moldau.groups.rules.consumer_group_records import (
    ConsumerGroupRecord,
    ConsumerSubscription,
    GroupEpoch,
    GroupEpochRecord,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    ResolvedRegex,
    ResolvedRegexRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.groups.rules.consumer_group_states import ConsumerGroupState
from moldau.groups.rules.events import GroupTimer, GroupTimerKind
from moldau.groups.rules.offsets import OffsetTable, WithOffsets
from moldau.groups.rules.pending_offsets import PendingOffsets
from moldau.groups.rules.wanted_topics import WantedTopics


class ConsumerGroup(WithOffsets):
    """A group. Invariants CGR-1 to CGR-4 hold between two events."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Hard
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.subscriptions: dict[str, ConsumerSubscription] = {}  # by member id, and so below
        self.targets: dict[str, AssignedPartitions] = {}
        self.assignments: dict[str, MemberAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.offsets = OffsetTable()
        self.pending_offsets = PendingOffsets()
        # Follows from it
        self._holders: dict[UUID, dict[int, str]] = {}  # who has a partition or gives it up
        self._instances: dict[str, str] = {}  # member ids by instance id
        # Soft
        self._seen: WantedTopics | None = None  # what its members wanted when last looked up
        self._wanted: frozenset[str] | None = None  # by all members; None: not known by now
        self.told_to_join: set[str] = set()  # members of the classic protocol
        self.is_dead = False

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state.value}, epoch {self.epoch})"

    # Hard state

    def apply(self, record: ConsumerGroupRecord) -> None:
        """Take a record of this group that is in the log. The end of the group is for `Groups`."""
        match record:
            case GroupEpochRecord(_, value):
                self.epoch, self.metadata_hash = value or GroupEpoch(0, 0)
            case TargetEpochRecord(_, epoch):
                self.target_epoch = epoch or 0
            case MemberSubscriptionRecord(_, member_id, value):
                self._apply_subscription(member_id, value)
            case TargetAssignmentRecord(_, member_id, value):
                _put(self.targets, member_id, value)
            case MemberAssignmentRecord(_, member_id, value):
                self._apply_assignment(member_id, value)
            case ResolvedRegexRecord(_, regex, value):
                _put(self.regexes, regex, value)
                self._wanted = None

    def _apply_subscription(self, member_id: str, value: ConsumerSubscription | None) -> None:
        former = self.subscriptions.get(member_id)
        instance_id = None if former is None else former.instance_id
        if instance_id is not None and self._instances.get(instance_id) == member_id:
            del self._instances[instance_id]
        if value is not None and value.instance_id is not None:
            self._instances[value.instance_id] = member_id
        _put(self.subscriptions, member_id, value)
        self._wanted = None
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
        _put(self.assignments, member_id, value)

    def end(self) -> None:
        self.is_dead = True

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

    @property
    def member_count(self) -> int:
        return len(self.subscriptions)

    @property
    def is_vacant(self) -> bool:
        """Nothing would be lost with it. One that was logged ends by a record."""
        return False

    def assignment_of(self, member_id: str) -> MemberAssignment:
        return self.assignments.get(member_id) or MemberAssignment()

    def target_of(self, member_id: str) -> AssignedPartitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def find_instance(self, instance_id: str) -> str | None:
        """The id of the static member."""
        return self._instances.get(instance_id)

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        """Whether nobody has the partition or is still giving it up."""
        return partition not in self._holders.get(topic_id, ())

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.wanted_topics

    @property
    def wanted_topics(self) -> frozenset[str]:
        """The names that members subscribe to, and those that their expressions stand for."""
        if self._wanted is None:
            self._wanted = self.topics_wanted_by(self.subscriptions.values(), self.regexes)
        return self._wanted

    def has_seen(self, image: MetadataImage) -> bool:
        """Whether the topics of now are certainly those of the group's epoch."""
        seen = self._seen
        return seen is not None and seen.is_of(image) and seen.metadata_hash == self.metadata_hash

    def see_topics(self, names: frozenset[str], image: MetadataImage) -> WantedTopics:
        """Topics as assignors take them; looked up once for as long as nothing changes."""
        seen = self._seen
        if seen is None or not seen.is_of(image) or seen.names != names:
            seen = self._seen = WantedTopics(names, image)
        return seen

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

    # Timers

    def session_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.SESSION, self.group_id, member_id)

    def revocation_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.REVOCATION, self.group_id, member_id)

    def join_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.JOIN, self.group_id, member_id)

    def sync_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.SYNC, self.group_id, member_id)

    def member_timers(self, member_id: str) -> tuple[GroupTimer, ...]:
        return tuple(GroupTimer(kind, self.group_id, member_id) for kind in GroupTimerKind)

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


K = TypeVar("K")
V = TypeVar("V")


def _put(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _holdings(assignment: MemberAssignment | None) -> Iterator[tuple[UUID, int]]:
    if assignment is not None:
        for partitions in (assignment.assigned, assignment.revoking):
            for topic_id, some in partitions.items():
                for partition in some:
                    yield topic_id, partition
