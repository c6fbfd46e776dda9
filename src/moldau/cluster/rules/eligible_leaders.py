"""Who may lead although it is not in sync: eligible leader replicas (KIP-966). A rule.

While fewer than `min.insync.replicas` are in sync nothing new is committed: the high watermark
stands still (ELR-1, `Partition` keeps it). So a replica that leaves the in-sync set then still has
every committed record, and stays so until enough are in sync again. Such replicas are eligible:
they are elected when nobody in sync lives (ELR-2).

    in sync ── leaves, too few are left ──> eligible ── comes in again, or enough are in sync ──> .
       └───────────── has a hole ──────────────┴──> last known ── a leader has enough in sync ──> .

A replica that comes back with a hole at its end is neither; it is remembered as one of the last
that were known to have everything (ELR-3). When nobody else is left, the best log among those
remembered is the best that there is (`unclean_recovery`). They are remembered although others are
in sync still: when a whole cluster loses power, its brokers say so one after the other, and whoever
was the first to say so may have kept the most. Only a leader, which lives and has it all, forgets
them.

`min.insync.replicas` counts at most the number of replicas, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from moldau.cluster.rules.metadata_image import PartitionState, TopicState
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch

MinInSync = Callable[[TopicState], int]
"""`min.insync.replicas` of a topic."""


def effective_min_in_sync(min_in_sync: int, replica_count: int) -> int:
    """How many must be in sync: no more than there are."""
    return min(min_in_sync, replica_count)


def with_in_sync(
    state: PartitionState,
    isr: tuple[BrokerId, ...],
    *,
    min_in_sync: int,
    holed: Collection[BrokerId] = (),
) -> PartitionState:
    """The state with another in-sync set, and what this makes of those that are not in it.

    `holed` are replicas that may lack records at their end.
    """
    known = _ordered(state.isr, state.elr)
    is_short = len(isr) < effective_min_in_sync(min_in_sync, len(state.replicas))
    elr = _replicas_of(state, known, {*isr, *holed}) if is_short else ()
    last_known = (*state.last_known_elr, *(broker for broker in known if broker in holed))
    return replace(
        state,
        isr=isr,
        elr=elr,
        last_known_elr=_replicas_of(state, _ordered(last_known), {*isr, *elr}),
    )


def as_led(state: PartitionState, isr: tuple[BrokerId, ...], *, min_in_sync: int) -> PartitionState:
    """As `with_in_sync`, written by the leader itself: with enough in sync, the last known ones
    are history."""
    changed = with_in_sync(state, isr, min_in_sync=min_in_sync)
    if len(isr) < effective_min_in_sync(min_in_sync, len(state.replicas)):
        return changed
    return replace(changed, last_known_elr=())


def led_by(state: PartitionState, leader: BrokerId) -> PartitionState:
    """Another leader, under a new epoch; with nobody, who led last is remembered."""
    last = state.last_known_leader if state.leader == NO_BROKER else state.leader
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        last_known_leader=last if leader == NO_BROKER else NO_BROKER,
    )


def last_known_replicas(state: PartitionState) -> tuple[BrokerId, ...]:
    """The replicas that were the last to have everything, whatever became of their logs.

    Where nothing was noted (an older broker wrote the state), it may be any of them.
    """
    last = _ordered(state.last_known_elr, (state.last_known_leader,))
    return _replicas_of(state, last) or state.replicas


def _replicas_of(
    state: PartitionState, brokers: Iterable[BrokerId], others: Collection[BrokerId] = ()
) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker in state.replicas and broker not in others)


def _ordered(*brokers: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """All of them, each once."""
    return tuple(dict.fromkeys(broker for some in brokers for broker in some))
