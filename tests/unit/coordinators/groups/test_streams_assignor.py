"""The sticky assignor of streams groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.groups.rules import assignors
from moldau.coordinators.groups.rules.assignors import StreamsWorker, TaskAssignment
from moldau.coordinators.groups.rules.streams_topology import TaskId, TaskKind, Tasks

COUNTS = st.dictionaries(st.sampled_from("012"), st.integers(1, 9), min_size=1)
GROUPS = st.dictionaries(  # member ids to processes
    st.sampled_from([f"m{number}" for number in range(8)]), st.sampled_from("pqrs"), min_size=1
)
STANDBYS = st.integers(0, 3)

Placed = Mapping[str, Tasks]


def workers_of(processes: Mapping[str, str], former: Placed | None = None) -> list[StreamsWorker]:
    known = former or {}
    return [StreamsWorker(one, processes[one], known.get(one, Tasks())) for one in processes]


def assign_stickily(
    workers: Sequence[StreamsWorker],
    counts: Mapping[str, int],
    stateful: Collection[str] = (),
    standbys: int = 0,
) -> dict[str, Tasks]:
    return TaskAssignment(workers, counts, stateful, standbys).at_once()


def holders(placed: Placed, kind: TaskKind) -> dict[TaskId, list[str]]:
    found: dict[TaskId, list[str]] = {}
    for member_id, tasks in placed.items():
        for which, task in tasks.each():
            if which is kind:
                found.setdefault(task, []).append(member_id)
    return found


def check(
    placed: Placed,
    processes: Mapping[str, str],
    counts: Mapping[str, int],
    standbys: int,
) -> None:
    """What holds of every assignment; all subtopologies have state."""
    tasks = {(one, number) for one in counts for number in range(counts[one])}
    active, standby = holders(placed, TaskKind.ACTIVE), holders(placed, TaskKind.STANDBY)
    assert placed.keys() == processes.keys()
    assert active.keys() == tasks
    assert all(len(some) == 1 for some in active.values()), "every task is run once"
    loads = Counter(some[0] for some in active.values())
    numbers = [loads[one] for one in processes]
    assert max(numbers) - min(numbers) <= 1, "members run as many as the others"
    copies = min(standbys, len(set(processes.values())) - 1)
    for task in tasks:
        places = [*active[task], *standby.get(task, [])]
        assert len(places) == 1 + copies
        assert len({processes[one] for one in places}) == len(places), "one copy in each process"
    assert not holders(placed, TaskKind.WARMUP)


@given(GROUPS, COUNTS, STANDBYS)
def test_tasks_are_run_once_with_copies_elsewhere(
    processes: dict[str, str], counts: dict[str, int], standbys: int
) -> None:
    placed = assign_stickily(workers_of(processes), counts, counts, standbys)
    check(placed, processes, counts, standbys)


@given(GROUPS, COUNTS, STANDBYS)
def test_nothing_moves_while_nothing_changes(
    processes: dict[str, str], counts: dict[str, int], standbys: int
) -> None:
    first = assign_stickily(workers_of(processes), counts, counts, standbys)
    again = assign_stickily(workers_of(processes, first), counts, counts, standbys)
    assert {one: first[one].active for one in first} == {one: again[one].active for one in again}


@given(st.sets(st.sampled_from("abcdef"), min_size=2), COUNTS, STANDBYS)
def test_no_copy_moves_while_nothing_changes_where_members_are_alike(
    members: set[str], counts: dict[str, int], standbys: int
) -> None:
    processes = {one: one for one in members}
    first = assign_stickily(workers_of(processes), counts, counts, standbys)
    assert assign_stickily(workers_of(processes, first), counts, counts, standbys) == first


@given(GROUPS, GROUPS, COUNTS, COUNTS, STANDBYS)
def test_it_holds_after_any_change(
    before: dict[str, str],
    after: dict[str, str],
    counts: dict[str, int],
    others: dict[str, int],
    standbys: int,
) -> None:
    first = assign_stickily(workers_of(before), counts, counts, standbys)
    placed = assign_stickily(workers_of(after, first), others, others, standbys)
    check(placed, after, others, standbys)


@given(GROUPS, COUNTS, STANDBYS, st.data())
def test_who_stays_keeps_its_tasks_when_another_leaves(
    processes: dict[str, str], counts: dict[str, int], standbys: int, data: st.DataObject
) -> None:
    first = assign_stickily(workers_of(processes), counts, counts, standbys)
    gone = data.draw(st.sampled_from(sorted(processes)))
    rest = {one: process for one, process in processes.items() if one != gone}
    placed = assign_stickily(workers_of(rest, first), counts, counts, standbys)
    for member_id in rest:
        assert first[member_id].without(placed[member_id]).active == {}


@given(GROUPS, COUNTS)
def test_a_newcomer_gets_tasks_and_nobody_else_does(
    processes: dict[str, str], counts: dict[str, int]
) -> None:
    first = assign_stickily(workers_of(processes), counts)
    placed = assign_stickily(workers_of({**processes, "new": "new"}, first), counts)
    for member_id in processes:
        assert placed[member_id].without(first[member_id]).active == {}


def test_a_task_goes_to_whoever_has_a_copy_of_its_state() -> None:
    """Task 1 was run by somebody who has gone; c has a copy, and b comes first otherwise."""
    former = {
        "b": Tasks({"0": frozenset({0})}, {"0": frozenset({2})}),
        "c": Tasks({"0": frozenset({2})}, {"0": frozenset({1})}),
    }
    placed = assign_stickily(workers_of({"b": "b", "c": "c"}, former), {"0": 3}, {"0"}, 1)
    assert placed["c"].active == {"0": {1, 2}}
    assert placed["b"].standby == {"0": {1, 2}}


def test_the_same_partitions_of_subtopologies_come_together() -> None:
    placed = assign_stickily(workers_of({"a": "a", "b": "b"}), {"0": 2, "1": 2})
    assert placed["a"].active == {"0": {0}, "1": {0}}
    assert placed["b"].active == {"0": {1}, "1": {1}}


def test_members_of_many_processes_come_first() -> None:
    placed = assign_stickily(workers_of({"a1": "a", "a2": "a", "b1": "b"}), {"0": 2})
    assert [one for one, tasks in placed.items() if tasks.active] == ["a1", "b1"]


def test_only_tasks_with_state_have_copies() -> None:
    placed = assign_stickily(workers_of({"a": "a", "b": "b"}), {"0": 1, "1": 1}, {"1"}, 1)
    assert holders(placed, TaskKind.STANDBY).keys() == {("1", 0)}


def test_nobody_gets_nothing() -> None:
    assert assign_stickily([], {"0": 3}) == {}


def test_many_tasks_and_members() -> None:
    processes = {f"m{one:03}": f"p{one % 50}" for one in range(200)}
    placed = assign_stickily(workers_of(processes), {str(one): 500 for one in range(8)}, "0123", 2)
    assert sum(len(some) for one in placed.values() for some in one.active.values()) == 4000


def test_an_assignment_is_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignors, "TASKS_AT_ONCE", 10)
    processes = {f"m{one}": f"p{one}" for one in range(4)}
    former = assign_stickily(workers_of(processes), {"0": 50, "1": 50}, "01", 1)
    assignment = TaskAssignment(workers_of(processes, former), {"0": 60, "1": 60}, "01", 1)
    given = 0
    give = assignors._StickyAssignment._give

    def count(*args: Any) -> None:
        nonlocal given
        given += 1
        give(*args)

    monkeypatch.setattr(assignors._StickyAssignment, "_give", count)
    slices = assignment.in_slices()
    most = 0
    for _ in slices:
        most, given = max(most, given), 0
    assert assignment.is_large
    assert 0 < most <= 20
    monkeypatch.undo()
    assert not assignment.is_large


def test_many_threads_of_one_process_are_passed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of what they run go to the one thread of another process."""
    may_copy = assignors._StickyAssignment._may_copy
    asked = 0

    def count(self: assignors._StickyAssignment, place: int, task: TaskId) -> bool:
        nonlocal asked
        asked += 1
        return may_copy(self, place, task)

    monkeypatch.setattr(assignors._StickyAssignment, "_may_copy", count)
    processes = {f"m{number}": "p" for number in range(200)} | {"other": "q"}
    placed = assign_stickily(workers_of(processes), {"0": 400}, {"0"}, 1)
    check(placed, processes, {"0": 400}, 1)
    assert asked <= 2 * 400, "once for each process"
