"""How a member of a consumer group comes from what it has to its target, step by step (KIP-848).

A step never gives a member a partition that somebody else may still read (CGR-1): first the one who
loses a partition says that it has given it up, then the other gets it. The member's epoch becomes
the target's as soon as nothing is left that it must give up. A rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from moldau.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    AssignmentEpochs,
    common,
    is_within,
    overlap,
    together,
    without,
)
from moldau.groups.rules.consumer_group_records import MemberAssignment, MemberState

IsFree = Callable[[UUID, int], bool]
"""Whether nobody has a partition or is still giving it up."""


def reconcile(
    current: MemberAssignment,
    target_epoch: int,
    target: AssignedPartitions,
    is_free: IsFree,
    owned: AssignedPartitions | None,
) -> MemberAssignment:
    """The next step; the same value when there is none to take.

    `owned` is what the member says it owns; None when it said nothing, so that it may own all that
    it was given.
    """
    match current.state:
        case MemberState.STABLE:
            # It may want less than its target, when the next one is delayed (KIP-1263).
            if current.epoch == target_epoch and is_within(current.assigned, target):
                return current
            return _step(current, target_epoch, target, is_free, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if _owns(current.revoking, owned):
                return current
            return _step(current, target_epoch, target, is_free, owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _step(current, target_epoch, target, is_free, owned)


def _step(
    current: MemberAssignment,
    target_epoch: int,
    target: AssignedPartitions,
    is_free: IsFree,
    owned: AssignedPartitions | None,
) -> MemberAssignment:
    kept = common(current.assigned, target)
    leaving = without(current.assigned, kept)
    if leaving and _owns(leaving, owned):
        stays = replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=leaving,
            assignment_epochs=_epochs_of(current, current.epoch, kept, leaving),
        )
        return _in_epoch(stays, current.epoch)
    coming = without(target, kept)
    free = {
        topic_id: some
        for topic_id, partitions in coming.items()
        if (
            some := frozenset(
                one
                for one in partitions
                # What it has just given up is its own again.
                if is_free(topic_id, one) or one in current.revoking.get(topic_id, ())
            )
        )
    }
    is_complete = free == coming
    assigned = together(kept, free)
    moved = replace(
        current,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=assigned,
        revoking=NO_PARTITIONS,
        assignment_epochs=_epochs_of(current, target_epoch, assigned),
    )
    return _in_epoch(moved, target_epoch)


def _epochs_of(
    current: MemberAssignment, epoch: int, *parts: AssignedPartitions
) -> AssignmentEpochs:
    """A partition that the member keeps, or has to revoke, keeps its epoch; a new one has this."""
    epochs: dict[UUID, dict[int, int]] = {}
    for partitions in parts:
        for topic_id, some in partitions.items():
            had = current.assigned.get(topic_id, frozenset())
            known = current.assignment_epochs.get(topic_id, {})
            epochs.setdefault(topic_id, {}).update(
                (one, known.get(one, epoch) if one in had else epoch) for one in some
            )
    return epochs


def _in_epoch(assignment: MemberAssignment, epoch: int) -> MemberAssignment:
    """`epoch` is its own or the target's, which is the latest (CGR-2)."""
    if epoch == assignment.epoch:
        return assignment
    return replace(assignment, epoch=epoch, previous_epoch=assignment.epoch)


def _owns(partitions: AssignedPartitions, owned: AssignedPartitions | None) -> bool:
    return owned is None or overlap(partitions, owned)
