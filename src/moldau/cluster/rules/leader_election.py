"""Who leads a partition. A rule.

A leader comes from the in-sync set, in the order of the assignment, so that the preferred replica
wins when it can. When no in-sync replica is alive, one that is eligible leads, and is the in-sync
set (`eligible_leaders`, ELR-2). When none of these is alive either nobody leads, and the sets are
kept as they were: their members alone are known to have every committed record. Another replica
takes over only where data may be lost (`unclean_recovery`, CTL-2). Every election adds one to the
leader epoch, also the one of "nobody", since replicas compare epochs to find where logs part.

Replicas that are gone leave the in-sync set of a living leader too, so that it need not wait for
them; but never the last one. This is no election, and the epoch stays.

Writing the outcome with version checks is the controller's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from moldau.cluster.rules.eligible_leaders import MinInSync, led_by, with_in_sync
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState, TopicState
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch


class Election(NamedTuple):
    """The outcome: a leader and the in-sync set it starts with."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]


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
    eligible: Collection[BrokerId] = (),
) -> Election | None:
    """Choose the leader of a partition that had one before; None when nobody may lead.

    Who is elected has every committed record: it is in sync or eligible.
    """
    in_sync = tuple(broker for broker in isr if broker in alive)
    for broker in replicas:
        if broker in in_sync:
            return Election(broker, in_sync)
    for broker in replicas:
        if broker in eligible and broker in alive:
            return Election(broker, (broker,))
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
    min_in_sync: int,
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
        return _without_the_dead(state, alive, min_in_sync, controller_epoch)
    election = elect(state.replicas, state.isr, alive, eligible=state.elr)
    if election is None and state.leader == NO_BROKER:
        return None
    if election is None:
        next_state = led_by(state, NO_BROKER)
    else:
        changed = with_in_sync(state, election.isr, min_in_sync=min_in_sync)
        next_state = led_by(changed, election.leader)
    return replace(next_state, controller_epoch=controller_epoch)


def _without_the_dead(
    state: PartitionState,
    alive: Collection[BrokerId],
    min_in_sync: int,
    controller_epoch: int,
) -> PartitionState | None:
    in_sync = tuple(broker for broker in state.isr if broker in alive)
    if not in_sync or in_sync == state.isr:
        return None
    changed = with_in_sync(state, in_sync, min_in_sync=min_in_sync)
    return replace(changed, controller_epoch=controller_epoch)


def plan_elections(
    topics: Iterable[TopicState],
    alive: Collection[BrokerId],
    *,
    min_in_sync_of: MinInSync,
    controller_epoch: int,
) -> list[PlannedState]:
    """Every partition whose leader is gone or missing, and every one with a replica in its in-sync
    set that is gone, each with its next state.

    A leader that was restarted, and so lives, has written its new epoch itself
    (`departure.plan_return`).
    """
    plan = []
    for topic in topics:
        min_in_sync: int | None = None  # asked for where something may change: it has to be parsed
        for partition, former in enumerate(topic.partitions):
            if _is_well(former, alive):
                continue
            if min_in_sync is None:
                min_in_sync = min_in_sync_of(topic)
            state = decide_state(
                former, alive, min_in_sync=min_in_sync, controller_epoch=controller_epoch
            )
            if state is not None:
                plan.append(PlannedState(topic, partition, former, state))
    return plan


def _is_well(state: PartitionState, alive: Collection[BrokerId]) -> bool:
    """Whether its leader and everybody in sync lives: then there is nothing to decide."""
    return state.leader in alive and all(broker in alive for broker in state.isr)
