"""One streams group (KIP-1071): what the log says of it, and what follows from that.

The coordinator decides which tasks of the application each member runs. As in a consumer group,
three epochs are kept apart: the group's, the targets', and each member's. All of it is hard state:
`apply` alone changes it, with records that were logged. What a request leads to is for
`streams_membership`, with the way of a member to its target.

The model is Kafka's `StreamsGroup` and its part of the `GroupMetadataManager`. A rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.epoch_group import WantedTopics, put
from moldau.coordinators.groups.rules.events import (
    EndpointTasks,
    GroupTimer,
    GroupTimerKind,
    GroupType,
    ListedGroup,
)
from moldau.coordinators.groups.rules.offsets import OffsetTable, PendingOffsets, WithOffsets
from moldau.coordinators.groups.rules.streams_records import (
    StreamsAssignment,
    StreamsAssignmentRecord,
    StreamsEpoch,
    StreamsEpochRecord,
    StreamsGroupRecord,
    StreamsMember,
    StreamsMemberRecord,
    StreamsTargetEpoch,
    StreamsTargetEpochRecord,
    StreamsTargetRecord,
    TopologyRecord,
)
from moldau.coordinators.groups.rules.streams_topology import (
    NO_TASKS,
    ConfiguredTopology,
    InvalidTopologyError,
    TaskId,
    TaskKind,
    Tasks,
    TaskSet,
    Topology,
    configure,
)

_PROTOCOL_TYPE: Final = "streams"
_FIRST_EPOCH: Final = 1
"""Of a group that is not there yet, and of its targets. Members that wait for their first target
are in it: 0 would tell them to join."""


class StreamsGroupState(Enum):
    """Of a streams group (KIP-1071). Follows from the epochs; nobody sets it. The values are
    Kafka's names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to NOT_READY or ASSIGNING with the first member; to DEAD when it is
    deleted or its last offset expires."""

    NOT_READY = "NotReady"
    """Topics of its topology are missing, or have other numbers of partitions than they must.
    Moves: to ASSIGNING with the first heartbeat that finds them as they must be."""

    ASSIGNING = "Assigning"
    """The group's epoch is ahead of the target's. Moves: to RECONCILING when targets are
    computed: with a heartbeat, or when no more members are waited for."""

    RECONCILING = "Reconciling"
    """Some members have not reached their targets yet. Moves: to STABLE with the last one."""

    STABLE = "Stable"
    """Every member has its target. Moves: to ASSIGNING when somebody comes or goes, or the topics
    or the settings change."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""


class DescribedStreamsMember(NamedTuple):
    """A member of a streams group as StreamsGroupDescribe shows it."""

    member: StreamsMember
    current: StreamsAssignment
    target: Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedStreamsGroup:
    """A group as StreamsGroupDescribe shows it."""

    group_id: str
    state: StreamsGroupState
    epoch: int
    target_epoch: int
    topology: Topology | None
    partition_counts: Mapping[str, int]  # of internal topics, where they are decided
    members: tuple[DescribedStreamsMember, ...] = ()


class StreamsGroup(WithOffsets):
    """A group. Invariants STG-1 to STG-4 hold between two events."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Hard
        self.state_of_epoch = StreamsEpoch(_FIRST_EPOCH, 0)
        self.last_target = StreamsTargetEpoch(_FIRST_EPOCH)
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}  # by member id, and so below
        self.targets: dict[str, Tasks] = {}
        self.assignments: dict[str, StreamsAssignment] = {}
        self.offsets = OffsetTable()
        self.pending_offsets = PendingOffsets()
        # Follows from it
        self._holders: dict[TaskId, dict[str, TaskKind]] = {}  # who has a task or gives it up
        self._readers: dict[str, str] = {}  # ids of subtopologies, by the topics that they read
        self._read: dict[str, list[str]] = {}  # the other way round
        # Soft
        self.awaits_members = False  # before its first targets are computed
        self.is_assigning = False  # targets are being computed, in slices
        self.endpoint_epoch = 0
        self.shutdown_by: str | None = None  # the member that wants the application to end
        self._seen: tuple[Topology, WantedTopics, ConfiguredTopology] | None = None
        self.is_dead = False

    def __repr__(self) -> str:
        return f"StreamsGroup({self.group_id!r}, {self.state.value}, epoch {self.epoch})"

    # Hard state

    def apply(self, record: StreamsGroupRecord) -> None:
        """Take a record of this group that is in the log. The end of the group is for `Groups`."""
        match record:
            case StreamsEpochRecord(_, value):
                self.state_of_epoch = value or StreamsEpoch(_FIRST_EPOCH, 0)
            case StreamsTargetEpochRecord(_, value):
                self.last_target = value or StreamsTargetEpoch(_FIRST_EPOCH)
            case TopologyRecord(_, value):
                self._apply_topology(value)
            case StreamsMemberRecord(_, member_id, value):
                put(self.members, member_id, value)
                if not self.members:
                    self.shutdown_by = None
            case StreamsTargetRecord(_, member_id, value):
                put(self.targets, member_id, value)
            case StreamsAssignmentRecord(_, member_id, value):
                self._apply_assignment(member_id, value)

    def _apply_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self._readers = {
            name: one.subtopology_id
            for one in (topology.subtopologies if topology else ())
            for name in one.read_topics
        }
        self._read = {}
        for name, subtopology_id in self._readers.items():
            self._read.setdefault(subtopology_id, []).append(name)

    def _apply_assignment(self, member_id: str, value: StreamsAssignment | None) -> None:
        former = self.assignments.get(member_id)
        if former is not None:
            for tasks in (former.assigned, former.revoking):
                for _, task in tasks.each():
                    holders = self._holders.get(task, {})
                    holders.pop(member_id, None)
                    if not holders:
                        self._holders.pop(task, None)
        if value is not None:
            for tasks in (value.revoking, value.assigned):
                for kind, task in tasks.each():
                    self._holders.setdefault(task, {})[member_id] = kind
        put(self.assignments, member_id, value)

    def end(self) -> None:
        self.is_dead = True

    # Questions

    @property
    def epoch(self) -> int:
        return self.state_of_epoch.epoch

    @property
    def target_epoch(self) -> int:
        return self.last_target.epoch

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_vacant(self) -> bool:
        """Nothing would be lost with it. One that was logged ends by a record."""
        return False

    @property
    def state(self) -> StreamsGroupState:
        if self.is_dead:
            return StreamsGroupState.DEAD
        if not self.members:
            return StreamsGroupState.EMPTY
        validated = self.state_of_epoch.validated_topology_epoch
        if self.topology is None or self.topology.epoch != validated:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if all(self.assignment_of(one).is_at(self.target_epoch) for one in self.members):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def assignment_of(self, member_id: str) -> StreamsAssignment:
        return self.assignments.get(member_id) or StreamsAssignment()

    def target_of(self, member_id: str) -> Tasks:
        return self.targets.get(member_id, NO_TASKS)

    def is_subscribed_to(self, topic: str) -> bool:
        """Offsets in it are kept, and not deleted, while somebody is in the group."""
        return bool(self.members) and topic in self._readers

    def reader_of(self, topic: str) -> str | None:
        """The subtopology that reads it."""
        return self._readers.get(topic)

    def is_free(self, kind: TaskKind, task: TaskId, member: StreamsMember) -> bool:
        """Whether the member may have the task without hindrance by others (STG-1)."""
        for holder, held_as in self._holders.get(task, {}).items():
            if holder == member.member_id:
                continue  # what it has itself, or has just given up
            if kind is TaskKind.ACTIVE and held_as is TaskKind.ACTIVE:
                return False
            other = self.members.get(holder)
            if other is not None and process_of(other) == process_of(member):
                return False
        return True

    # Topics

    def see_topics(
        self, topology: Topology, image: MetadataImage
    ) -> tuple[WantedTopics, ConfiguredTopology]:
        """The topics of a topology and what follows from them; looked up once for as long as
        nothing changes. Raises `InvalidTopologyError`."""
        seen = self._seen
        if seen is None or seen[0] != topology or not seen[1].is_of(image):
            topics = WantedTopics(topology.required_topics, image)
            counts = dict(topics.partition_counts.values())
            seen = self._seen = topology, topics, configure(topology, counts)
        return seen[1:]

    def _find_counts(self, image: MetadataImage) -> Mapping[str, int]:
        if self.topology is None:
            return {}
        try:
            _, configured = self.see_topics(self.topology, image)
        except InvalidTopologyError:
            return {}
        return configured.partition_counts if configured.is_ready else {}

    def describe(self, image: MetadataImage) -> DescribedStreamsGroup:
        """As tools see it."""
        return DescribedStreamsGroup(
            group_id=self.group_id,
            state=self.state,
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            topology=self.topology,
            partition_counts=self._find_counts(image),
            members=tuple(
                DescribedStreamsMember(one, self.assignment_of(name), self.target_of(name))
                for name, one in self.members.items()
            ),
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, _PROTOCOL_TYPE, self.state, GroupType.STREAMS)

    def endpoints(
        self, told: StreamsMember, reached: StreamsAssignment, image: MetadataImage
    ) -> tuple[EndpointTasks, ...]:
        """Whom interactive queries can be put to. The member that is told may have reached more
        than the log knows of."""
        found = []
        for member in ({**self.members, told.member_id: told}).values():
            if member.endpoint is None:
                continue
            is_told = member.member_id == told.member_id
            tasks = (reached if is_told else self.assignment_of(member.member_id)).assigned
            found.append(
                EndpointTasks(
                    member.endpoint,
                    self._partitions_of(tasks.active, image),
                    self._partitions_of(tasks.standby, image),
                )
            )
        return tuple(found)

    def _partitions_of(self, tasks: TaskSet, image: MetadataImage) -> dict[str, frozenset[int]]:
        """In the topics that the tasks read, as far as these have so many partitions."""
        found: dict[str, frozenset[int]] = {}
        for subtopology_id, numbers in tasks.items():
            for name in self._read.get(subtopology_id, ()):
                topic = image.topics.get(name)
                if topic is not None:
                    count = len(topic.partitions)
                    found[name] = frozenset(one for one in numbers if one < count)
        return found

    # Timers

    def session_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.SESSION, self.group_id, member_id)

    def revocation_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.REVOCATION, self.group_id, member_id)

    @property
    def first_assignment_timer(self) -> GroupTimer:
        return GroupTimer(GroupTimerKind.FIRST_ASSIGNMENT, self.group_id)

    def end_records(self) -> list[StreamsGroupRecord]:
        """What is logged when the group, in which nobody is any more, ends."""
        return [
            StreamsTargetEpochRecord(self.group_id, None),
            TopologyRecord(self.group_id, None),
            StreamsEpochRecord(self.group_id, None),
        ]


def process_of(member: StreamsMember) -> str:
    """One that does not say in which process it is shares none."""
    return member.process_id or member.member_id
