"""Who runs which task of a streams group: Kafka's sticky assignor (KIP-1071). A rule.

Every task is run by one member; members run as many as the others, plus or minus one. Whoever ran a
task before keeps it as far as that allows; else it goes to somebody who has a copy of its state,
else to whoever has least to do. Copies of tasks with state (standbys) are kept in other processes
than the one that runs the task, and in as many as are asked for and there; former copies, and what
was run before, stay where they are as far as loads allow.

That is STG-5. Deterministic: the same members, tasks and former targets give the same answer.

It takes some microseconds for each task, and an application may have thousands: so it is done in
slices, between which whoever runs it may serve others.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.groups.rules.assigned_partitions import partitions_of
from moldau.groups.rules.streams_tasks import NO_TASKS, TaskId, TaskKind, Tasks

TASKS_AT_ONCE: Final = 2_000
"""Tasks of a slice: some milliseconds."""

Slices = Generator[None, None, dict[str, Tasks]]
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

    def in_slices(self) -> Slices:
        if not self.workers:
            return {}
        counts = self.task_counts
        tasks = [(one, number) for one in counts for number in range(counts[one])]
        assignment = _Assignment(self.workers)
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


class _Assignment:
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

    def targets(self) -> Slices:
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
        quota = _Quota(len(tasks), len(self._workers))
        # By partition first: what a member cannot keep are whole partitions, of all subtopologies.
        left = []
        for task in sorted(tasks, key=lambda one: (one[1], one[0])):
            place = self._ran.get(task)
            if place is not None and quota.take(self._loads[place]):
                self._give(place, task, self._active)
            else:
                left.append(task)
            if self._is_slice_over():
                yield
        rest = []
        for task in left:
            copies = self._copied.get(task, ())
            place = min(copies, key=lambda one: (self._loads[one], one), default=None)
            if place is not None and quota.take(self._loads[place]):
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


class _Quota:
    """How many tasks a member may keep, so that loads differ by one at most in the end."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._least, self._spare = divmod(task_count, member_count)

    def take(self, load: int) -> bool:
        """Whether one with this load may have one more."""
        if load < self._least:
            return True
        if load > self._least or not self._spare:
            return False
        self._spare -= 1
        return True
