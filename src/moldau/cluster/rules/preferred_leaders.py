"""Giving leadership back to the first replica of each partition, the preferred one. A rule.

Placement spreads the first replicas evenly; elections after failures undo that. The preferred
replica takes over when it is alive and in sync, under a new epoch and with the same in-sync set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from moldau.cluster.rules.eligible_leaders import led_by
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import PartitionState, TopicState
from moldau.model import BrokerId


def prefer_first_replica(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState | None:
    """The partition led by its preferred replica; None when that one cannot take over."""
    preferred = state.replicas[0]
    if preferred not in alive or preferred not in state.isr:
        return None
    return replace(led_by(state, preferred), controller_epoch=controller_epoch)


def plan_rebalancing(
    topics: Iterable[TopicState],
    alive: Collection[BrokerId],
    *,
    accepted_percentage: int,
    controller_epoch: int,
) -> list[PlannedState]:
    """The elections of `auto.leader.rebalance.enable`.

    For each living broker the partitions are counted that prefer it, and those of them that are
    led by another one. Where the share of these is above what is accepted, it gets them back.
    Partitions that are being moved stay as they are until they have arrived.
    """
    preferring: dict[BrokerId, int] = {}
    elsewhere: dict[BrokerId, list[PlannedState]] = {}
    for topic in topics:
        for number, state in enumerate(topic.partitions):
            broker = state.replicas[0]
            preferring[broker] = preferring.get(broker, 0) + 1
            if state.leader != broker:
                elsewhere.setdefault(broker, []).append(PlannedState(topic, number, state, state))
    plan: list[PlannedState] = []
    for broker in sorted(elsewhere):
        lost = elsewhere[broker]
        if broker in alive and 100 * len(lost) > accepted_percentage * preferring[broker]:
            plan += _returned(lost, alive, controller_epoch)
    return plan


def _returned(
    lost: Iterable[PlannedState], alive: Collection[BrokerId], controller_epoch: int
) -> Iterable[PlannedState]:
    for planned in lost:
        state = planned.former
        if state.adding_replicas or state.removing_replicas:
            continue
        returned = prefer_first_replica(state, alive, controller_epoch)
        if returned is not None:
            yield planned._replace(state=returned)
