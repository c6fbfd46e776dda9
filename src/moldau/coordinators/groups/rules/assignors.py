"""Who reads what in a group whose coordinator assigns: the assignors of consumer groups (KIP-848),
share groups (KIP-932) and streams groups (KIP-1071). A rule.

uniform    everybody gets as much as the others, within what they want; whoever has something keeps
           it as far as that allows
range      the partitions of each topic in contiguous ranges by the order of members, so that the
           same partitions of several topics come together at one member
simple     of share groups, whose members may share a partition
sticky     of streams groups, whose members run tasks and keep copies of their state

They are deterministic: the same members, topics and former targets give the same answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from moldau.coordinators.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    partitions_of,
)
from moldau.coordinators.groups.rules.streams_topology import NO_TASKS, TaskId, TaskKind, Tasks

# Consumer groups. Both assignors prefer, among choices that are as good otherwise, a member in a
# rack that has a replica of the partition.


NO_RACKS: Final[frozenset[str]] = frozenset()


class AssignableTopic(NamedTuple):
    """A topic that somebody wants."""

    topic_id: UUID
    partition_count: int
    racks: Sequence[frozenset[str]] = ()  # that have a replica, by partition; empty: not known

    def racks_of(self, partition: int) -> frozenset[str]:
        return self.racks[partition] if self.racks else NO_RACKS


class AssignableMember(NamedTuple):
    """A member, with what it wants and what it was to get before."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topics: Collection[UUID]
    former: AssignedPartitions = NO_PARTITIONS

    @property
    def place(self) -> tuple[bool, str]:
        """In the order of members: a static one keeps its place when it comes back."""
        if self.instance_id is not None:
            return False, self.instance_id
        return True, self.member_id


Targets = dict[str, AssignedPartitions]
"""By member id."""

ServerAssignor = Callable[[Sequence[AssignableMember], Mapping[UUID, AssignableTopic]], Targets]

_Partition = tuple[UUID, int]


def assign_uniformly(
    members: Sequence[AssignableMember], topics: Mapping[UUID, AssignableTopic]
) -> Targets:
    return _UniformAssignment(members, topics).assign()


class _UniformAssignment:
    """One assignment in the making. Loads differ by at most one between members that want the
    same topics; where they want different ones, no single move would make them more alike."""

    def __init__(
        self, members: Sequence[AssignableMember], topics: Mapping[UUID, AssignableTopic]
    ) -> None:
        self._members = sorted(members, key=lambda member: member.place)
        self._topics = topics
        self._wanting: dict[UUID, list[int]] = {}  # places of members, by topic
        self._given: list[dict[UUID, set[int]]] = [{} for _ in self._members]
        self._loads = [0] * len(self._members)
        self._find_wanting()

    def _find_wanting(self) -> None:
        """One list for all topics that the same members want: most groups need only one."""
        alike: dict[frozenset[UUID], list[int]] = {}
        for place, member in enumerate(self._members):
            alike.setdefault(frozenset(member.topics), []).append(place)
        wishes: dict[UUID, list[int]] = {}  # numbers of the wishes that a topic is in
        for number, wish in enumerate(alike):
            for topic_id in wish:
                if topic_id in self._topics:
                    wishes.setdefault(topic_id, []).append(number)
        places = list(alike.values())
        joined: dict[tuple[int, ...], list[int]] = {}
        for topic_id, numbers in wishes.items():
            key = tuple(numbers)
            if key not in joined:
                joined[key] = sorted(place for number in key for place in places[number])
            self._wanting[topic_id] = joined[key]

    def assign(self) -> Targets:
        self._keep(self._most_each())
        self._spread(self._left_over())
        self._even_out()
        return {
            member.member_id: {
                topic_id: frozenset(some) for topic_id, some in given.items() if some
            }
            for member, given in zip(self._members, self._given, strict=True)
        }

    def _most_each(self) -> int:
        """More than this nobody needs to keep, if all want the same; else it is no limit."""
        total = sum(self._topics[topic_id].partition_count for topic_id in self._wanting)
        is_alike = all(len(wanting) == len(self._members) for wanting in self._wanting.values())
        return -(-total // len(self._members)) if is_alike and self._members else total

    def _keep(self, most: int) -> None:
        taken: set[_Partition] = set()
        for place, member in enumerate(self._members):
            for topic_id in sorted(member.former, key=lambda one: one.int):
                topic = self._topics.get(topic_id)
                if topic is None or topic_id not in member.topics:
                    continue
                for partition in sorted(member.former[topic_id]):
                    is_there = partition < topic.partition_count
                    if (
                        self._loads[place] < most
                        and is_there
                        and (topic_id, partition) not in taken
                    ):
                        taken.add((topic_id, partition))
                        self._give(place, topic_id, partition)

    def _left_over(self) -> list[_Partition]:
        """What nobody has; first the topics that few want."""
        held: dict[UUID, set[int]] = {}
        for given in self._given:
            for topic_id, some in given.items():
                held.setdefault(topic_id, set()).update(some)
        order = sorted(self._wanting, key=lambda one: (len(self._wanting[one]), one.int))
        return [
            (topic_id, partition)
            for topic_id in order
            for partition in range(self._topics[topic_id].partition_count)
            if partition not in held.get(topic_id, ())
        ]

    def _spread(self, partitions: Sequence[_Partition]) -> None:
        """Each to the one with the least; with racks, to the one with the least in the rack, if
        that has not more than another."""
        heaps: dict[int, list[tuple[int, int]]] = {}  # by the identity of the list of members
        for topic_id, partition in partitions:
            wanting = self._wanting[topic_id]
            heap = heaps.get(id(wanting))
            if heap is None:
                heap = heaps[id(wanting)] = [(self._loads[place], place) for place in wanting]
                heapq.heapify(heap)
            load, place = heapq.heappop(heap)
            while load != self._loads[place]:  # it got something of another topic since
                load, place = heapq.heappushpop(heap, (self._loads[place], place))
            near = self._find_near(topic_id, partition, load)
            chosen = place if near is None else near
            self._give(chosen, topic_id, partition)
            heapq.heappush(heap, (self._loads[place], place))

    def _find_near(self, topic_id: UUID, partition: int, load: int) -> int | None:
        """A member with this load in a rack of the partition."""
        racks = self._topics[topic_id].racks_of(partition)
        if not racks:
            return None
        for place in self._wanting[topic_id]:
            if self._loads[place] == load and self._members[place].rack_id in racks:
                return place
        return None

    def _even_out(self) -> None:
        """Take from those who have two more than another who wants it, until there is nobody."""
        while self._move_some():
            pass

    def _move_some(self) -> bool:
        by_load = sorted(range(len(self._members)), key=lambda place: (self._loads[place], place))
        for receiver in by_load:
            wanted = self._members[receiver].topics
            for giver in reversed(by_load):
                if self._loads[giver] < self._loads[receiver] + 2:
                    break
                for topic_id, some in self._given[giver].items():
                    if topic_id in wanted and some:
                        self._move(giver, receiver, topic_id)
                        return True
        return False

    def _move(self, giver: int, receiver: int, topic_id: UUID) -> None:
        """As many as make the two alike."""
        some = self._given[giver][topic_id]
        rack = self._members[receiver].rack_id
        topic = self._topics[topic_id]
        count = (self._loads[giver] - self._loads[receiver]) // 2
        order = sorted(some, key=lambda one: (rack in topic.racks_of(one), one))
        for partition in order[-count:]:
            some.discard(partition)
            self._loads[giver] -= 1
            self._give(receiver, topic_id, partition)

    def _give(self, place: int, topic_id: UUID, partition: int) -> None:
        self._given[place].setdefault(topic_id, set()).add(partition)
        self._loads[place] += 1


def assign_ranges(
    members: Sequence[AssignableMember], topics: Mapping[UUID, AssignableTopic]
) -> Targets:
    ordered = sorted(members, key=lambda member: member.place)
    given: dict[str, list[_Partition]] = {member.member_id: [] for member in members}
    for topic in topics.values():
        wanting = [member for member in ordered if topic.topic_id in member.topics]
        if wanting:
            for member_id, partitions in _ranges(wanting, topic):
                given[member_id] += ((topic.topic_id, partition) for partition in partitions)
    return {member_id: partitions_of(pairs) for member_id, pairs in given.items()}


def _ranges(
    members: Sequence[AssignableMember], topic: AssignableTopic
) -> list[tuple[str, list[int]]]:
    """The first members get one more, where it does not come out even."""
    least, more = divmod(topic.partition_count, len(members))
    rooms = [least + (place < more) for place in range(len(members))]
    taken: list[list[int]] = [[] for _ in members]
    left = list(range(topic.partition_count))
    if any(topic.racks) and any(member.rack_id for member in members):
        left = _take_near(members, topic, rooms, taken)
    rest = iter(left)
    for some, room in zip(taken, rooms, strict=True):
        some += [next(rest) for _ in range(room - len(some))]
    return [(member.member_id, some) for member, some in zip(members, taken, strict=True)]


def _take_near(
    members: Sequence[AssignableMember],
    topic: AssignableTopic,
    rooms: Sequence[int],
    taken: Sequence[list[int]],
) -> list[int]:
    """Gives partitions to members in their racks, in order; returns what is left."""
    left = []
    for partition in range(topic.partition_count):
        racks = topic.racks_of(partition)
        for place, member in enumerate(members):
            if member.rack_id in racks and len(taken[place]) < rooms[place]:
                taken[place].append(partition)
                break
        else:
            left.append(partition)
    return left


ASSIGNORS: Final[Mapping[str, ServerAssignor]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}


# Who takes from what in a share group: the simple assignor (KIP-932). A rule.
#
# Every partition is taken from by somebody who wants it, and everybody who wants anything has
# something to take from. Where there are more members than partitions several share one, as many as
# share the others, give or take one; where there are more partitions than members, each member has
# as many as the others who want the same, give or take one (SHG-4). Whoever has something keeps it
# as far as that allows.


class AssignableShareMember(NamedTuple):
    """A member, with what it wants and what it had before."""

    member_id: str
    topics: frozenset[UUID]
    former: AssignedPartitions


def assign_simply(
    members: Sequence[AssignableShareMember], assignable: AssignedPartitions
) -> Targets:
    """`assignable` are the partitions that may be given to somebody."""
    targets: Targets = {}
    for component, partitions in _group_by_subscription(members, assignable):
        targets |= _SimpleAssignment(component, partitions).assign()
    return targets


def _group_by_subscription(
    members: Sequence[AssignableShareMember], assignable: AssignedPartitions
) -> list[tuple[list[AssignableShareMember], list[_Partition]]]:
    """Members that want the same topics, with those topics' partitions. Each set of wishes is
    dealt with by itself, so that one who wants more does not come short of what others want."""
    by_wish: dict[frozenset[UUID], list[AssignableShareMember]] = {}
    for member in sorted(members):
        by_wish.setdefault(member.topics, []).append(member)
    return [
        (
            members,
            [
                (topic_id, partition)
                for topic_id in sorted(wish, key=lambda one: one.int)
                for partition in sorted(assignable.get(topic_id, ()))
            ],
        )
        for wish, members in by_wish.items()
    ]


class _SimpleAssignment:
    """One assignment in the making, among members that want the same."""

    def __init__(
        self, members: Sequence[AssignableShareMember], partitions: Sequence[_Partition]
    ) -> None:
        self._members = members
        self._partitions = partitions
        self._given: dict[str, set[_Partition]] = {one.member_id: set() for one in members}
        self._shared_by = dict.fromkeys(partitions, 0)

    def assign(self) -> Targets:
        if self._partitions:
            self._keep()
            if len(self._members) <= len(self._partitions):
                self._deal_partitions()
            else:
                self._deal_members()
        return {member_id: partitions_of(some) for member_id, some in self._given.items()}

    def _keep(self) -> None:
        """What they had, unless it is more than their part."""
        member_quota = _Quota(max(len(self._partitions), len(self._members)), len(self._members))
        sharing_quota = _Quota(
            max(len(self._partitions), len(self._members)), len(self._partitions)
        )
        for member in self._members:
            for topic_id in sorted(member.former, key=lambda one: one.int):
                for number in sorted(member.former[topic_id]):
                    partition = (topic_id, number)
                    if partition not in self._shared_by:
                        continue
                    has = len(self._given[member.member_id])
                    if member_quota.allows(has) and sharing_quota.allows(
                        self._shared_by[partition]
                    ):
                        member_quota.use(has)
                        sharing_quota.use(self._shared_by[partition])
                        self._give(member.member_id, partition)

    def _give(self, member_id: str, partition: _Partition) -> None:
        self._given[member_id].add(partition)
        self._shared_by[partition] += 1

    def _deal_partitions(self) -> None:
        """Those that nobody takes from yet, to who has least."""
        loads = [
            (len(self._given[one.member_id]), place, one.member_id)
            for place, one in enumerate(self._members)
        ]
        heapq.heapify(loads)
        for partition in self._partitions:
            if self._shared_by[partition] == 0:
                load, place, member_id = heapq.heappop(loads)
                self._give(member_id, partition)
                heapq.heappush(loads, (load + 1, place, member_id))

    def _deal_members(self) -> None:
        """Those that have nothing yet, to what is shared by fewest."""
        shares = [(self._shared_by[one], place, one) for place, one in enumerate(self._partitions)]
        heapq.heapify(shares)
        for member in self._members:
            if not self._given[member.member_id]:
                count, place, partition = heapq.heappop(shares)
                self._give(member.member_id, partition)
                heapq.heappush(shares, (count + 1, place, partition))


class _Quota:
    """`total` dealt out evenly among `holders`: so many may have one more than the others."""

    def __init__(self, total: int, holders: int) -> None:
        self._least, self._spare = divmod(total, holders)

    def allows(self, has: int) -> bool:
        return has < self._least or (has == self._least and self._spare > 0)

    def use(self, has: int) -> None:
        if has == self._least:
            self._spare -= 1


def wanted_partitions(
    topics: Mapping[UUID, int], initialized: AssignedPartitions
) -> AssignedPartitions:
    """Those of some topics (their partition counts) whose state is kept (SHG-1)."""
    return {
        topic_id: some
        for topic_id, count in topics.items()
        if (some := frozenset(range(count)) & initialized.get(topic_id, frozenset()))
    }


# Who runs which task of a streams group: Kafka's sticky assignor (KIP-1071). A rule.
#
# Every task is run by one member; members run as many as the others, plus or minus one. Whoever ran
# a task before keeps it as far as that allows; else it goes to somebody who has a copy of its
# state, else to whoever has least to do. Copies of tasks with state (standbys) are kept in other
# processes than the one that runs the task, and in as many as are asked for and there; former
# copies, and what was run before, stay where they are as far as loads allow.
#
# That is STG-5. Deterministic: the same members, tasks and former targets give the same answer.
#
# It takes some microseconds for each task, and an application may have thousands: so it is done in
# slices, between which whoever runs it may serve others.


TASKS_AT_ONCE: Final = 2_000
"""Tasks of a slice: some milliseconds."""

TaskAssignmentSlices = Generator[None, None, dict[str, Tasks]]
"""An assignment that is made piece by piece: targets by member id in the end."""


class StreamsWorker(NamedTuple):
    """A member, with what it was to get before."""

    member_id: str
    process_id: str
    former: Tasks = NO_TASKS


class TaskAssignment(NamedTuple):
    """What is to be assigned, and to whom. Subtopologies have so many tasks; those of stateful ones
    get so many standbys."""

    workers: Sequence[StreamsWorker]
    task_counts: Mapping[str, int]
    stateful: Collection[str] = ()
    standby_count: int = 0

    @property
    def is_large(self) -> bool:
        """Whether others should be served before it is done."""
        copies = sum(self.task_counts.get(one, 0) for one in self.stateful) * self.standby_count
        return sum(self.task_counts.values()) + copies > TASKS_AT_ONCE

    def in_slices(self) -> TaskAssignmentSlices:
        if not self.workers:
            return {}
        counts = self.task_counts
        tasks = [(one, number) for one in counts for number in range(counts[one])]
        assignment = _StickyAssignment(self.workers)
        yield from assignment.remember()
        yield from assignment.assign_active(tasks)
        if self.standby_count:
            copied = [one for one in tasks if one[0] in self.stateful]
            yield from assignment.assign_standbys(copied, self.standby_count)
        return (yield from assignment.targets())

    def at_once(self) -> dict[str, Tasks]:
        """Targets by member id."""
        slices = self.in_slices()
        while True:
            try:
                next(slices)
            except StopIteration as end:
                targets: dict[str, Tasks] = end.value
                return targets


class _StickyAssignment:
    """One assignment in the making. Members are known by their places in a list in which the first
    members of all processes come first, so that loads spread over processes."""

    def __init__(self, workers: Sequence[StreamsWorker]) -> None:
        ranks: dict[str, int] = {}
        ordered = []
        for one in sorted(workers, key=lambda worker: worker.member_id):
            rank = ranks[one.process_id] = ranks.get(one.process_id, -1) + 1
            ordered.append((rank, one.process_id, one))
        ordered.sort(key=lambda row: row[:2])
        self._workers = [row[2] for row in ordered]
        self._process_count = len(ranks)
        self._loads = [0] * len(self._workers)
        self._active: list[list[TaskId]] = [[] for _ in self._workers]
        self._standby: list[list[TaskId]] = [[] for _ in self._workers]
        self._processes: dict[TaskId, set[str]] = {}  # that have a task, in whatever way
        self._ran: dict[TaskId, int] = {}
        self._copied: dict[TaskId, list[int]] = {}
        self._left = TASKS_AT_ONCE  # of this slice

    def _is_slice_over(self, done: int = 1) -> bool:
        """Asked after so many tasks."""
        self._left -= done
        if self._left > 0:
            return False
        self._left = TASKS_AT_ONCE
        return True

    def remember(self) -> Iterator[None]:
        """Who had what before."""
        for place, one in enumerate(self._workers):
            for kind, task in one.former.each():
                if kind is TaskKind.ACTIVE:
                    self._ran[task] = place
                elif kind is TaskKind.STANDBY:
                    self._copied.setdefault(task, []).append(place)
                if self._is_slice_over():
                    yield

    def targets(self) -> TaskAssignmentSlices:
        found = {}
        for place, one in enumerate(self._workers):
            active, standby = self._active[place], self._standby[place]
            found[one.member_id] = Tasks(partitions_of(active), partitions_of(standby))
            if self._is_slice_over(1 + len(active) + len(standby)):
                yield
        return found

    def _give(self, place: int, task: TaskId, given: list[list[TaskId]]) -> None:
        given[place].append(task)
        self._loads[place] += 1
        self._processes.setdefault(task, set()).add(self._workers[place].process_id)

    # Active tasks

    def assign_active(self, tasks: Sequence[TaskId]) -> Iterator[None]:
        quota = _TaskQuota(len(tasks), len(self._workers))
        # By partition first: what a member cannot keep are whole partitions, of all subtopologies.
        left = []
        for task in sorted(tasks, key=lambda one: (one[1], one[0])):
            place = self._ran.get(task)
            if place is not None and quota.claim(self._loads[place]):
                self._give(place, task, self._active)
            else:
                left.append(task)
            if self._is_slice_over():
                yield
        rest = []
        for task in left:
            copies = self._copied.get(task, ())
            place = min(copies, key=lambda one: (self._loads[one], one), default=None)
            if place is not None and quota.claim(self._loads[place]):
                self._give(place, task, self._active)
            else:
                rest.append(task)
            if self._is_slice_over():
                yield
        # By subtopology first: members get the same partitions of all subtopologies, in turns.
        heap = [(load, place) for place, load in enumerate(self._loads)]
        heapq.heapify(heap)
        for task in sorted(rest):
            load, place = heap[0]
            self._give(place, task, self._active)
            heapq.heapreplace(heap, (load + 1, place))
            if self._is_slice_over():
                yield

    # Standbys

    def assign_standbys(self, tasks: Sequence[TaskId], count: int) -> Iterator[None]:
        count = min(count, self._process_count - 1)
        total = sum(self._loads) + count * len(tasks)
        most = -(-total // len(self._workers))
        wanted: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=lambda one: (one[1], one[0]), reverse=True):
            former = [*self._places_that_ran(task), *self._copied.get(task, ())]
            kept = 0
            for place in former:
                if kept < count and self._loads[place] < most and self._may_copy(place, task):
                    self._give(place, task, self._standby)
                    kept += 1
            if kept < count:
                wanted.append((task, count - kept))
            if self._is_slice_over():
                yield
        processes = self._idlest_by_process() if wanted else []
        for task, missing in sorted(wanted, reverse=True):
            for _ in range(missing):
                self._copy_to_idlest(task, processes)
            if self._is_slice_over(missing):
                yield

    def _idlest_by_process(self) -> list[list[tuple[int, int]]]:
        """A heap of the processes, each a heap of the loads and places of its members. Whoever may
        not have a copy is passed with all other members of its process, which may be hundreds."""
        by_process: dict[str, list[tuple[int, int]]] = {}
        for place, one in enumerate(self._workers):
            by_process.setdefault(one.process_id, []).append((self._loads[place], place))
        processes = list(by_process.values())
        for members in processes:
            heapq.heapify(members)
        heapq.heapify(processes)
        return processes

    def _places_that_ran(self, task: TaskId) -> list[int]:
        place = self._ran.get(task)
        return [] if place is None else [place]

    def _may_copy(self, place: int, task: TaskId) -> bool:
        return self._workers[place].process_id not in self._processes[task]

    def _copy_to_idlest(self, task: TaskId, processes: list[list[tuple[int, int]]]) -> None:
        """There is a process without the task, since no more are asked for than there are."""
        passed = []
        while not self._may_copy(processes[0][0][1], task):
            passed.append(heapq.heappop(processes))
        members = processes[0]
        load, place = members[0]
        self._give(place, task, self._standby)
        heapq.heapreplace(members, (load + 1, place))
        heapq.heapreplace(processes, members)
        for one in passed:
            heapq.heappush(processes, one)


class _TaskQuota:
    """How many tasks a member may keep, so that loads differ by one at most in the end."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._least, self._spare = divmod(task_count, member_count)

    def claim(self, load: int) -> bool:
        """Whether one with this load may have one more."""
        if load < self._least:
            return True
        if load > self._least or not self._spare:
            return False
        self._spare -= 1
        return True
