"""What groups whose coordinator assigns have in common: consumer groups (KIP-848) and share groups
(KIP-932).

Three epochs are kept apart: the group's grows with every change of its members, their wishes or the
topics; the target's is the group's epoch that was last assigned for; a member's says which target
it has reached. All of it is hard state: `apply` alone changes it, with records that were logged. A
rule.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    only_topics,
)
from moldau.coordinators.groups.rules.assignors import AssignableTopic
from moldau.coordinators.groups.rules.consumer_records import (
    ConsumerGroupRecord,
    ConsumerSubscription,
    GroupEpoch,
    GroupEpochRecord,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupTimer,
    GroupTimerKind,
    ShareHeartbeat,
)
from moldau.coordinators.groups.rules.outcome import GroupLimits, GroupTurn
from moldau.errors import ErrorCode

EpochRecord = (
    GroupEpochRecord
    | MemberSubscriptionRecord
    | TargetEpochRecord
    | TargetAssignmentRecord
    | MemberAssignmentRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    """A member of a consumer group as ConsumerGroupDescribe shows it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: frozenset[str]
    regex: str | None
    assigned: AssignedPartitions = field(default_factory=dict)
    target: AssignedPartitions = field(default_factory=dict)
    is_classic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    """A group as ConsumerGroupDescribe or ShareGroupDescribe shows it."""

    group_id: str
    state: Enum  # ConsumerGroupState or ShareGroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...] = ()


class EpochRecordKinds(NamedTuple):
    """The records by which a kind of group is logged: consumer and share groups have their own."""

    epoch: type[GroupEpochRecord]
    subscription: type[MemberSubscriptionRecord]
    target_epoch: type[TargetEpochRecord]
    target: type[TargetAssignmentRecord]
    assignment: type[MemberAssignmentRecord]


class EpochGroup:
    """A group, as far as epochs, members and their assignments go."""

    RECORDS: ClassVar[EpochRecordKinds]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Hard
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.assigned_ms = 0  # when the targets were computed; 0: not known
        self.subscriptions: dict[str, ConsumerSubscription] = {}  # by member id, and so below
        self.targets: dict[str, AssignedPartitions] = {}
        self.assignments: dict[str, MemberAssignment] = {}
        # Soft
        self._seen: WantedTopics | None = None  # what its members wanted when last looked up
        self._wanted: frozenset[str] | None = None  # by all members; None: not known by now
        self.is_dead = False

    # Hard state

    def apply_epochs(self, record: EpochRecord) -> None:
        """Take a record of this group that is in the log. The end of the group is for `Groups`."""
        match record:
            case GroupEpochRecord(_, value):
                self.epoch, self.metadata_hash = value or GroupEpoch(0, 0)
            case TargetEpochRecord(_, epoch, timestamp_ms):
                self.target_epoch, self.assigned_ms = epoch or 0, timestamp_ms
            case MemberSubscriptionRecord(_, member_id, value):
                self._apply_subscription(member_id, value)
            case TargetAssignmentRecord(_, member_id, value):
                put(self.targets, member_id, value)
            case MemberAssignmentRecord(_, member_id, value):
                self._apply_assignment(member_id, value)

    def _apply_subscription(self, member_id: str, value: ConsumerSubscription | None) -> None:
        put(self.subscriptions, member_id, value)
        self._wanted = None

    def _apply_assignment(self, member_id: str, value: MemberAssignment | None) -> None:
        put(self.assignments, member_id, value)

    def end(self) -> None:
        self.is_dead = True

    # Questions

    @property
    def member_count(self) -> int:
        return len(self.subscriptions)

    @property
    def is_vacant(self) -> bool:
        """Nothing would be lost with it. One that was logged ends by a record."""
        return False

    def assignment_of(self, member_id: str) -> MemberAssignment:
        return self.assignments.get(member_id) or MemberAssignment()

    def describe_as(self, state: Enum, assignor: str) -> DescribedConsumerGroup:
        """As tools see it."""
        members = []
        for member_id, wanted in self.subscriptions.items():
            current = self.assignment_of(member_id)
            members.append(
                DescribedConsumer(
                    member_id=member_id,
                    instance_id=wanted.instance_id,
                    rack_id=wanted.rack_id,
                    epoch=current.epoch,
                    client_id=wanted.client_id,
                    client_host=wanted.client_host,
                    topics=wanted.topics,
                    regex=wanted.regex,
                    assigned=current.assigned,
                    target=self.target_of(member_id),
                    is_classic=wanted.classic is not None,
                )
            )
        return DescribedConsumerGroup(
            group_id=self.group_id,
            state=state,
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            assignor=assignor,
            members=tuple(members),
        )

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Whether the targets are not those of the group's epoch, and old enough (KIP-1263)."""
        is_behind = self.epoch > self.target_epoch
        return is_behind and not was_assigned_just_now(self.assigned_ms, now_ms, interval_ms)

    def target_of(self, member_id: str) -> AssignedPartitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.wanted_topics

    @property
    def wanted_topics(self) -> frozenset[str]:
        """The names of all that members subscribe to."""
        if self._wanted is None:
            self._wanted = self._find_wanted(self.subscriptions.values())
        return self._wanted

    def _find_wanted(self, members: Iterable[ConsumerSubscription]) -> frozenset[str]:
        return wanted_by(members)

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

    # Records

    def next_epoch_record(self, metadata_hash: int) -> GroupEpochRecord:
        return self.RECORDS.epoch(self.group_id, GroupEpoch(self.epoch + 1, metadata_hash))

    def removal_records(self, member_id: str) -> tuple[EpochRecord, ...]:
        """Together, so that nothing of a member outlives its membership (CGR-3)."""
        return (
            self.RECORDS.assignment(self.group_id, member_id, None),
            self.RECORDS.target(self.group_id, member_id, None),
            self.RECORDS.subscription(self.group_id, member_id, None),
        )

    # Timers

    def session_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.SESSION, self.group_id, member_id)

    def member_timers(self, member_id: str) -> tuple[GroupTimer, ...]:
        return tuple(GroupTimer(kind, self.group_id, member_id) for kind in GroupTimerKind)


K = TypeVar("K")
V = TypeVar("V")


def was_assigned_just_now(assigned_ms: int, now_ms: int, interval_ms: int) -> bool:
    """Whether the next assignment has to wait. A time in the future was set by a coordinator with
    another clock, or the clock was set back: it delays nothing."""
    return assigned_ms != 0 and 0 <= now_ms - assigned_ms < interval_ms


def wanted_by(members: Iterable[ConsumerSubscription]) -> frozenset[str]:
    """The names that members subscribe to."""
    return frozenset().union(*{one.topics for one in members})


def put(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


_HASH_BYTES = 8


def preferred_assignor(members: Mapping[str, ConsumerSubscription], limits: GroupLimits) -> str:
    """The one that most members ask for."""
    asked = Counter(one.assignor for one in members.values() if one.assignor is not None)
    offered = [name for name in asked if name in limits.consumer_assignors]
    if not offered:
        return limits.consumer_assignors[0]
    return min(offered, key=lambda name: (-asked[name], limits.consumer_assignors.index(name)))


def _assignable_topics(names: frozenset[str], image: MetadataImage) -> dict[str, AssignableTopic]:
    """By name, in the order of names."""
    has_racks = any(broker.rack is not None for broker in image.brokers.values())
    found = {}
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is not None:
            racks = [_racks(one.replicas, image) for one in topic.partitions] if has_racks else ()
            found[name] = AssignableTopic(topic.topic_id, len(topic.partitions), racks)
    return found


def _racks(replicas: tuple[int, ...], image: MetadataImage) -> frozenset[str]:
    racks = set()
    for broker_id in replicas:
        broker = image.brokers.get(broker_id)  # type: ignore[call-overload]
        if broker is not None and broker.rack is not None:
            racks.add(broker.rack)
    return frozenset(racks)


def _hash(topics: Mapping[str, AssignableTopic]) -> int:
    """Differs when the topics differ in anything that assignments depend on; 0 of none. As Kafka
    does, it is logged with the epoch; how it is computed is each coordinator's own affair."""
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for name, topic in topics.items():
        racks = [sorted(some) for some in topic.racks]
        digest.update(repr((name, topic.topic_id.hex, topic.partition_count, racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


class WantedTopics:
    """The topics behind some names in one image of the cluster. Names that are not there have
    nothing to assign yet."""

    def __init__(self, names: frozenset[str], image: MetadataImage) -> None:
        self.names = names
        self._image_topics: object = image.topics
        self._image_brokers: object = image.brokers
        self._topics = _assignable_topics(names, image)
        self.by_id = {one.topic_id: one for one in self._topics.values()}
        self.metadata_hash = _hash(self._topics)

    @property
    def partition_counts(self) -> dict[UUID, tuple[str, int]]:
        """Names and partition counts by topic id."""
        return {one.topic_id: (name, one.partition_count) for name, one in self._topics.items()}

    def is_of(self, image: MetadataImage) -> bool:
        return self._image_topics is image.topics and self._image_brokers is image.brokers

    def ids_of(self, names: frozenset[str]) -> frozenset[UUID]:
        """Of those of the names that are there."""
        return frozenset(one.topic_id for name, one in self._topics.items() if name in names)


# Heartbeats


class Refused(Exception):
    """The request is answered with this and changes nothing."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def unknown_member(member_id: str, group_id: str) -> Refused:
    return Refused(ErrorCode.unknown_member_id, f"group {group_id!r} has no member {member_id!r}")


G = TypeVar("G", bound=EpochGroup)
E = TypeVar("E", bound=ConsumerHeartbeat | ShareHeartbeat)


class EpochStep(ABC, Generic[G, E]):
    """One step of a member that is there or comes.

    What it says now, the next epoch of the group if something has changed that assignments depend
    on, new targets if they are due, and what the member reaches on its way to its own.

    It is worked out against the group as it is logged and becomes records; the group changes when
    those are applied.
    """

    def __init__(self, group: G, event: E, turn: GroupTurn) -> None:
        self.current = MemberAssignment()  # before the step
        self._group = group
        self._event = event
        self._turn = turn
        self._records: list[ConsumerGroupRecord] = []
        self._replaced: str | None = None  # whose place it takes
        self._wanted = ConsumerSubscription(member_id=event.member_id)
        self._topics: WantedTopics | None = None
        self._epoch = group.epoch
        self._target = NO_PARTITIONS  # of this member
        self._target_epoch = group.target_epoch

    def advance(self) -> MemberAssignment:
        """Where the member stands then. Raises `Refused`, and has changed nothing."""
        group, event, turn = self._group, self._event, self._turn
        replaced = self._replaced = self._check_member()
        member_id = event.member_id
        former = group.subscriptions.get(replaced or member_id)
        current = group.assignment_of(replaced or member_id)
        self._target = group.target_of(replaced or member_id)
        if replaced is not None:
            current = replace(current, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
            self._take_place_of(replaced, current)
        self.current = current
        self._wanted = self._read_subscription(
            former or ConsumerSubscription(member_id=event.member_id)
        )
        if self._wanted != former:
            self._records.append(
                group.RECORDS.subscription(group.group_id, member_id, self._wanted)
            )
        is_other = former is None or self._wish_of(former) != self._wish_of(self._wanted)
        self._epoch = self._find_epoch(wants_other=is_other)
        if self._epoch > group.target_epoch:
            if was_assigned_just_now(group.assigned_ms, turn.now_ms, self._interval_ms):
                self._target = self._find_wanted_target()
            else:
                self._assign()
        reached = self._reach()
        if reached != current or member_id not in group.assignments:
            self._records.append(group.RECORDS.assignment(group.group_id, member_id, reached))
        turn.outcome.records += self._records
        return reached

    # Who it is

    @abstractmethod
    def _check_member(self) -> str | None:
        """Raise `Refused` unless it may speak; the id of a member whose place it takes."""

    def _check_room(self, max_size: int, option: str) -> None:
        group = self._group
        is_new = self._event.member_id not in group.subscriptions
        if is_new and len(group.subscriptions) >= max_size:
            raise Refused(
                ErrorCode.group_max_size_reached,
                f"group {group.group_id!r} has {len(group.subscriptions)} members, as many as "
                f"{option} allows",
            )

    def _take_place_of(self, replaced: str, current: MemberAssignment) -> None:
        group, member_id, kinds = self._group, self._event.member_id, self._group.RECORDS
        self._records += group.removal_records(replaced)
        self._records.append(kinds.target(group.group_id, member_id, self._target))
        self._records.append(kinds.assignment(group.group_id, member_id, current))
        for timer in group.member_timers(replaced):
            self._turn.outcome.disarm(timer)

    # What it wants

    @abstractmethod
    def _read_subscription(self, before: ConsumerSubscription) -> ConsumerSubscription:
        """What it says, or has said before."""

    @abstractmethod
    def _wish_of(self, member: ConsumerSubscription) -> object:
        """What of a member assignments depend on."""

    def _find_epoch(self, *, wants_other: bool) -> int:
        """The group's, or the next one if something has changed that assignments depend on."""
        group = self._group
        if not wants_other and group.has_seen(self._turn.image) and not self._must_resolve():
            return group.epoch
        has_resolved = self._resolve()
        topics = self._see_topics()
        is_as_before = topics.metadata_hash == group.metadata_hash and not has_resolved
        if not wants_other and is_as_before:
            return group.epoch
        self._records.append(group.next_epoch_record(topics.metadata_hash))
        self._note_epoch(group.epoch + 1, wants_other=wants_other)
        return group.epoch + 1

    def _must_resolve(self) -> bool:
        """Whether expressions may stand for other topics than they did."""
        return False

    def _resolve(self) -> bool:
        """Look expressions up; whether they stand for other topics now."""
        return False

    def _note_epoch(self, epoch: int, *, wants_other: bool) -> None:
        """A new epoch begins."""

    def _members_to_be(self) -> dict[str, ConsumerSubscription]:
        members = dict(self._group.subscriptions)
        if self._replaced is not None:
            del members[self._replaced]
        members[self._event.member_id] = self._wanted
        return members

    def _find_names(self, members: Iterable[ConsumerSubscription]) -> frozenset[str]:
        """The names of topics that members want."""
        return wanted_by(members)

    def _see_topics(self) -> WantedTopics:
        if self._topics is None:
            names = self._find_names(self._members_to_be().values())
            self._topics = self._group.see_topics(names, self._turn.image)
        return self._topics

    # What it gets

    @property
    @abstractmethod
    def _interval_ms(self) -> int:
        """Between two assignments (KIP-1263)."""

    def _find_wanted_target(self) -> AssignedPartitions:
        """The next targets are delayed: what the member still wants of the one that it has."""
        ids = self._see_topics().ids_of(self._find_names((self._wanted,)))
        return only_topics(self._target, ids)

    def _assign(self) -> None:
        """New targets for everybody."""
        group, members = self._group, self._members_to_be()
        # One set for all who want the same: a hundred members may want a thousand topics.
        alike: dict[object, frozenset[UUID]] = {}
        ids = {}
        for member_id, one in members.items():
            key = one.topics, one.regex
            if key not in alike:
                alike[key] = self._see_topics().ids_of(self._find_names((one,)))
            ids[member_id] = alike[key]
        targets = self._compute_targets(members, ids)
        for member_id in sorted(targets):
            target = targets[member_id]
            if target != group.targets.get(member_id):
                self._records.append(group.RECORDS.target(group.group_id, member_id, target))
        self._records.append(
            group.RECORDS.target_epoch(group.group_id, self._epoch, self._turn.now_ms)
        )
        self._target, self._target_epoch = targets[self._event.member_id], self._epoch

    @abstractmethod
    def _compute_targets(
        self,
        members: Mapping[str, ConsumerSubscription],
        topic_ids: Mapping[str, frozenset[UUID]],
    ) -> Mapping[str, AssignedPartitions]:
        """By member id; `topic_ids` are those of the topics that each member wants."""

    @abstractmethod
    def _reach(self) -> MemberAssignment:
        """What the member has then, on its way to the target."""

    def answer(self, reached: MemberAssignment, interval_ms: int, *, is_news: bool) -> None:
        """`is_news`: it may not have heard what it has."""
        tells = is_news or reached.assigned != self.current.assigned
        self._turn.answer(
            ConsumerHeartbeatAnswer(
                member_id=self._event.member_id,
                epoch=reached.epoch,
                heartbeat_interval_ms=interval_ms,
                assigned=reached.assigned if tells else None,
            )
        )
