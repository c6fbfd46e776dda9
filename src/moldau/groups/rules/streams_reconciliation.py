"""How a member of a streams group comes from what it has to its target, step by step (KIP-1071).

A step never gives a member an active task that somebody else may still run, nor any task whose
state another member of its own process still has open: the state of a task is one folder of the
process (STG-1). First the one who loses a task says that it has given it up, then the other gets
it. The model is Kafka's `CurrentAssignmentBuilder`. A rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from moldau.groups.rules.streams_group_records import StreamsAssignment, StreamsMemberState
from moldau.groups.rules.streams_tasks import NO_TASKS, TaskId, TaskKind, Tasks, TaskSet

IsTaskFree = Callable[[TaskKind, TaskId], bool]
"""Whether nobody else has a task, or is still giving it up, in a way that hinders this one."""


def reconcile_tasks(
    current: StreamsAssignment,
    target_epoch: int,
    target: Tasks,
    is_free: IsTaskFree,
    owned: Tasks | None,
) -> StreamsAssignment:
    """The next step; the same value when there is none to take.

    `owned` is what the member says it owns; None when it said nothing, so that it may own all that
    it was given.
    """
    match current.state:
        case StreamsMemberState.STABLE:
            if current.epoch == target_epoch:
                return current
            epoch = current.epoch
        case StreamsMemberState.UNREVOKED_TASKS:
            if owned is None or owned.overlaps(current.revoking):
                return current
            epoch = current.epoch + 1
        case StreamsMemberState.UNRELEASED_TASKS:
            epoch = current.epoch
    kept = current.assigned.common_with(target)
    leaving = current.assigned.without(kept)
    if not leaving.is_empty and (owned is None or owned.overlaps(leaving)):
        return _reach(
            current,
            epoch,
            StreamsMemberState.UNREVOKED_TASKS,
            assigned=kept,
            revoking=leaving,
        )
    coming = target.without(kept)
    free = _free_of(coming, is_free)
    is_complete = free == coming
    return _reach(
        current,
        target_epoch,
        StreamsMemberState.STABLE if is_complete else StreamsMemberState.UNRELEASED_TASKS,
        assigned=kept.together_with(free),
        revoking=NO_TASKS,
    )


def _free_of(coming: Tasks, is_free: IsTaskFree) -> Tasks:
    return Tasks(*(_free_tasks(kind, coming.of_kind(kind), is_free) for kind in TaskKind))


def _free_tasks(kind: TaskKind, coming: TaskSet, is_free: IsTaskFree) -> TaskSet:
    return {
        one: free
        for one, numbers in coming.items()
        if (free := frozenset(number for number in numbers if is_free(kind, (one, number))))
    }


def _reach(
    current: StreamsAssignment,
    epoch: int,
    state: StreamsMemberState,
    *,
    assigned: Tasks,
    revoking: Tasks,
) -> StreamsAssignment:
    """What is new to it is so since this epoch, which is its own or later (STG-2)."""
    had = current.assigned.active
    since: dict[TaskId, int] = {}
    for one, numbers in (*assigned.active.items(), *revoking.active.items()):
        known = had.get(one, frozenset())
        since.update(
            ((one, number), current.since.get((one, number), epoch) if number in known else epoch)
            for number in numbers
        )
    reached = replace(current, state=state, assigned=assigned, revoking=revoking, since=since)
    if epoch == current.epoch:
        return reached
    return replace(reached, epoch=epoch, previous_epoch=current.epoch)
