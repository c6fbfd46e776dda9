"""What groups whose coordinator assigns have in common: consumer groups (KIP-848) and share groups
(KIP-932).

Three epochs are kept apart: the group's grows with every change of its members, their wishes or the
topics; the target's is the group's epoch that was last assigned for; a member's says which target
it has reached. All of it is hard state: `apply` alone changes it, with records that were logged. A
rule.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar
from uuid import UUID

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assigned_partitions import NO_PARTITIONS, AssignedPartitions
from moldau.coordinators.groups.rules.assignors import AssignableTopic
from moldau.coordinators.groups.rules.consumer_records import (
    ConsumerSubscription,
    GroupEpoch,
    GroupEpochRecord,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.coordinators.groups.rules.events import GroupTimer, GroupTimerKind
from moldau.coordinators.groups.rules.outcome import GroupLimits

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


class EpochGroup:
    """A group, as far as epochs, members and their assignments go."""

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
