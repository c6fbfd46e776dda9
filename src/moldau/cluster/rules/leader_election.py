"""Who leads a partition. A rule.

A leader comes from the in-sync set, in the order of the assignment, so that the preferred replica
wins when it can. When no in-sync replica is alive nobody leads, and the set is kept as it was: its
members alone are known to have every committed record. Only where unclean election is allowed does
another replica take over, and what it lacks is lost (CTL-2). Every election adds one to the leader
epoch, also the one of "nobody", since replicas compare epochs to find where logs part.

Replicas that are gone leave the in-sync set of a living leader too, so that it need not wait for
them; but never the last one. This is no election, and the epoch stays.

Writing the outcome with version checks is the controller's work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from moldau.cluster.rules.metadata_image import NO_BROKER, NO_NODE, PartitionState, TopicState
from moldau.model import BrokerId, LeaderEpoch


class Election(NamedTuple):
    """The outcome: a leader and the in-sync set it starts with."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    unclean: bool = False


class PlannedState(NamedTuple):
    """A partition's next state, to be written over `former`'s version."""

    topic: TopicState
    partition: int
    former: PartitionState
    state: PartitionState


def elect(
    replicas: Sequence[BrokerId],
    isr: Collection[BrokerId],
    alive: Collection[BrokerId],
    *,
    unclean_allowed: bool,
) -> Election | None:
    """Choose the leader of a partition that had one before; None when nobody may lead."""
    in_sync = tuple(broker for broker in isr if broker in alive)
    for broker in replicas:
        if broker in in_sync:
            return Election(broker, in_sync)
    if unclean_allowed:
        for broker in replicas:
            if broker in alive:
                return Election(broker, (broker,), unclean=True)
    return None


def first_state(
    replicas: Sequence[BrokerId], alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState:
    """The state of a partition that never had a leader: all replicas are equally empty."""
    in_sync = tuple(broker for broker in replicas if broker in alive)
    return PartitionState(
        leader=in_sync[0] if in_sync else NO_BROKER,
        leader_epoch=LeaderEpoch(0),
        isr=in_sync,
        replicas=tuple(replicas),
        controller_epoch=controller_epoch,
    )


def decide_state(
    state: PartitionState,
    alive: Collection[BrokerId],
    *,
    unclean_allowed: bool,
    controller_epoch: int,
) -> PartitionState | None:
    """The next state of a partition, or None when it stays as it is. A living leader stays."""
    if state.version == NO_NODE:
        first = replace(
            first_state(state.replicas, alive, controller_epoch),
            adding_replicas=state.adding_replicas,
            removing_replicas=state.removing_replicas,
        )
        return None if first.leader == NO_BROKER else first
    if state.leader in alive:
        return _without_the_dead(state, alive, controller_epoch)
    election = elect(state.replicas, state.isr, alive, unclean_allowed=unclean_allowed)
    if election is None and state.leader == NO_BROKER:
        return None
    return replace(
        state,
        leader=NO_BROKER if election is None else election.leader,
        isr=state.isr if election is None else election.isr,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=controller_epoch,
    )


def _without_the_dead(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState | None:
    in_sync = tuple(broker for broker in state.isr if broker in alive)
    if not in_sync or in_sync == state.isr:
        return None
    return replace(state, isr=in_sync, controller_epoch=controller_epoch)


def plan_elections(
    topics: Iterable[TopicState],
    alive: Collection[BrokerId],
    *,
    unclean_allowed: Callable[[TopicState], bool],
    controller_epoch: int,
) -> list[PlannedState]:
    """Every partition whose leader is gone or missing, and every one with a replica in its in-sync
    set that is gone, each with its next state.

    `unclean_allowed` is asked only where nobody else can lead. A leader that was restarted, and so
    lives, has written its new epoch itself (`departure.plan_return`).
    """
    plan = []
    for topic in topics:
        for partition, former in enumerate(topic.partitions):
            state = _decide_state(topic, former, alive, unclean_allowed, controller_epoch)
            if state is not None:
                plan.append(PlannedState(topic, partition, former, state))
    return plan


def _decide_state(
    topic: TopicState,
    former: PartitionState,
    alive: Collection[BrokerId],
    unclean_allowed: Callable[[TopicState], bool],
    controller_epoch: int,
) -> PartitionState | None:
    state = decide_state(former, alive, unclean_allowed=False, controller_epoch=controller_epoch)
    led = former if state is None else state
    if led.leader != NO_BROKER or not unclean_allowed(topic):
        return state
    return decide_state(former, alive, unclean_allowed=True, controller_epoch=controller_epoch)
