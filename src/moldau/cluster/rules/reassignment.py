"""Moving a partition to other brokers, step by step. A rule.

While a partition moves, `replicas` holds the brokers it goes to, in their order, and behind them
those it leaves; `adding_replicas` and `removing_replicas` tell which are new and which go (KIP-455,
`ReplicaAssignment` of Kafka). New replicas follow the leader like any other. When all brokers that
it goes to are in sync, one last step makes them all there is. Every step can be planned again from
what the store says, so a controller that dies in the middle is no loss.

Every step is written together with the partition's state, even where the state stays the same: a
leader that adds a replica at the same moment, which the step takes away, must lose the race. And a
step that changes the set of replicas begins a new leader epoch (CTL-3), as in Kafka: who leaves
deletes its log, and what it has told its leader before must not count when it is added again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from moldau.cluster.rules.leader_election import elect_leader, last_known_replicas
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
)
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch


def is_moving(state: PartitionState) -> bool:
    return bool(state.adding_replicas or state.removing_replicas)


def target_replicas(state: PartitionState) -> tuple[BrokerId, ...]:
    """Where the partition is, or where it goes to."""
    return _without(state.replicas, state.removing_replicas)


def original_replicas(state: PartitionState) -> tuple[BrokerId, ...]:
    """Where the partition is, or was before it began to move."""
    return _without(state.replicas, state.adding_replicas)


def check_target(
    state: PartitionState,
    target: Sequence[int],
    alive: Collection[BrokerId],
    *,
    may_change_factor: bool = True,
) -> tuple[BrokerId, ...]:
    """The brokers to go to, if a partition may go there."""
    if not target:
        raise InvalidReplicaAssignmentError("a partition needs at least one replica")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignmentError(f"a broker is assigned twice: {list(target)}")
    known = {*alive, *original_replicas(state)}
    unknown = sorted(broker for broker in target if broker not in known)
    if unknown:
        raise InvalidReplicaAssignmentError(
            f"no such broker is alive: {', '.join(map(str, unknown))}"
        )
    factor = len(original_replicas(state))
    if not may_change_factor and len(target) != factor:
        raise InvalidReplicationFactorError(
            f"the partition has {factor} replicas, and {len(target)} were asked for"
        )
    return tuple(BrokerId(broker) for broker in target)


def plan_redirection(
    state: PartitionState,
    target: Sequence[BrokerId],
    alive: Collection[BrokerId],
    controller_epoch: int,
) -> PartitionState | None:
    """The partition on its way, or at its end at once; None when that is what it is already.

    Another way that it is on ends. Replicas of that one that are in sync or eligible stay until the
    end: they may be the only ones that have everything.
    """
    begun = _start_moving(state, target)
    arrived = _finish_moving(begun, alive, controller_epoch)
    changed = begun if arrived is None else arrived
    return None if changed == state else _with_epoch(state, changed)


def plan_reassignment_step(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState | None:
    """The partition at the end of its way; None while it is not there, or not on any."""
    arrived = _finish_moving(state, alive, controller_epoch)
    return None if arrived is None else _with_epoch(state, arrived)


def plan_cancellation(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState:
    """The partition back where it was; or on the way back, while nobody in sync lives there."""
    if not is_moving(state):
        raise NoReassignmentInProgressError("the partition is not being reassigned")
    original = original_replicas(state)
    arrived = _arrive(state, original, alive, controller_epoch)
    return _with_epoch(state, _start_moving(state, original) if arrived is None else arrived)


def _start_moving(state: PartitionState, target: Sequence[BrokerId]) -> PartitionState:
    original = original_replicas(state)
    # Where nobody is known to have everything, the best log may be with anybody who had (ELR-4).
    trusted = (*state.isr, *state.elr) or last_known_replicas(state)
    kept = _within(trusted, state.replicas)
    replicas = tuple(dict.fromkeys((*target, *original, *kept)))
    return replace(
        state,
        replicas=replicas,
        last_known_elr=_within(state.last_known_elr, replicas),
        adding_replicas=_without(replicas, original),
        removing_replicas=_without(replicas, target),
    )


def _finish_moving(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState | None:
    target = target_replicas(state)
    if not is_moving(state) or not set(target) <= set(state.isr):
        return None
    return _arrive(state, target, alive, controller_epoch)


def _arrive(
    state: PartitionState,
    replicas: tuple[BrokerId, ...],
    alive: Collection[BrokerId],
    controller_epoch: int,
) -> PartitionState | None:
    """These replicas and no others; None when none of them could lead."""
    in_sync = _within(state.isr, replicas)
    arrived = replace(
        state,
        replicas=replicas,
        isr=in_sync,
        elr=_within(state.elr, replicas),
        last_known_elr=_within(state.last_known_elr, replicas),
        adding_replicas=(),
        removing_replicas=(),
        controller_epoch=controller_epoch,
    )
    if state.leader in in_sync:
        return arrived
    election = elect_leader(replicas, in_sync, alive, eligible=arrived.elr)
    if election is None:
        return None
    return replace(
        arrived,
        leader=election.leader,
        isr=election.isr,
        elr=_without(arrived.elr, election.isr),
        last_known_leader=NO_BROKER,
    )


def _with_epoch(former: PartitionState, changed: PartitionState) -> PartitionState:
    """Under the next epoch, where the leader or the set of replicas is another one (CTL-3)."""
    if changed.leader == former.leader and set(changed.replicas) == set(former.replicas):
        return changed
    return replace(changed, leader_epoch=LeaderEpoch(former.leader_epoch + 1))


def _within(brokers: Iterable[BrokerId], others: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker in others)


def _without(brokers: Iterable[BrokerId], others: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker not in others)
