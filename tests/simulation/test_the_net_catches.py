"""The net has no holes where it should have none: each broken rule makes a seed fail.

One rule of replication is broken on purpose; then one of a few seeds has to notice. The schedules
are those of the seed, of the kinds that the rule is about, or a short story where the rule is about
a rare meeting of faults; the story without the broken rule is played too, and has to pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from moldau.broker.membership import Membership
from moldau.cluster.rules.departure import Condition
from moldau.replication import leadership, partition
from moldau.replication.leadership import Leadership
from moldau.replication.partition import Partition
from moldau.replication.rules.acknowledgement import Acknowledgement
from moldau.replication.rules.follower_progress import FollowerFetch, FollowerProgress
from moldau.testing.fault_plan import FaultKind, PlannedFault
from moldau.testing.simulated_cluster import SimulatedCluster, Story

Patch = pytest.MonkeyPatch


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """Instead of to the point where the logs diverge: what is committed may be behind it."""
    apply_state = Partition.apply_state

    def apply_and_truncate(self: Partition, state: Any) -> bool:
        is_news = apply_state(self, state)
        if is_news and self.is_following:
            self.truncate(self.high_watermark)
        return is_news

    patch.setattr(Partition, "apply_state", apply_and_truncate)


def acknowledge_at_once(patch: Patch) -> None:
    """Before the record is committed."""
    patch.setattr(partition, "decide_acknowledgement", lambda **_: Acknowledgement.COMMITTED)


def lead_without_a_session(patch: Patch) -> None:
    """A leader that does not look at its lease."""
    make = Partition.__init__

    def make_without_lease(self: Partition, *args: Any, **options: Any) -> None:
        make(self, *args, **{**options, "lease_end": lambda: math.inf})

    patch.setattr(Partition, "__init__", make_without_lease)


def stay_in_sync_after_a_power_loss(patch: Patch) -> None:
    """A broker that comes back takes its logs for whole."""
    patch.setattr(Membership, "_condition_of", lambda *_: Condition.WHOLE)


def count_the_set_that_is_only_proposed(patch: Patch) -> None:
    """The high watermark passes followers whose leaving is not written yet."""

    def smallest_ends(self: Leadership) -> list[int]:
        return [
            self.progress.get(broker, FollowerProgress()).log_end_offset
            for broker in self.isr.smallest
            if broker != self.broker_id
        ]

    patch.setattr(Leadership, "in_sync_ends", smallest_ends)


def believe_a_fetch_from_before_a_restart(patch: Patch) -> None:
    """Whatever the epoch of the follower's broker is."""

    def note(self: Leadership, follower: Any, fetch: FollowerFetch) -> bool:
        epoch = self._broker_epoch_of(follower)
        known = self.progress.get(follower)
        if known is None:
            return False
        self.progress[follower] = leadership.note_fetch(known, replace(fetch, broker_epoch=epoch))
        return True

    patch.setattr(Leadership, "note_fetch", note)


def caught(
    seeds: Sequence[int],
    *,
    kinds: Sequence[FaultKind] | None = None,
    story: Story | None = None,
) -> str:
    """The first broken promise in any of the seeds; empty when there is none."""
    for seed in seeds:
        cluster = SimulatedCluster(seed=seed, kinds=kinds, brokers=3 if story else None)
        outcome = cluster.run(story)
        if outcome.violations:
            return outcome.violations[0]
    return ""


@pytest.mark.parametrize(
    ("break_rule", "kinds", "rule"),
    [
        (
            truncate_to_the_high_watermark,
            (FaultKind.CRASH, FaultKind.STOP, FaultKind.EXPIRE),
            "REP-3",
        ),
        (acknowledge_at_once, (FaultKind.CRASH,), "REP-3"),
        (
            lead_without_a_session,
            (
                FaultKind.PAUSE,
                FaultKind.CUT_COORDINATION,
                FaultKind.CUT_COORDINATION_ONE_WAY,
            ),
            "REP-4",
        ),
        (
            stay_in_sync_after_a_power_loss,
            (FaultKind.POWER_LOSS, FaultKind.EMPTY_DISK),
            "REP-6",
        ),
    ],
)
def test_a_broken_rule_makes_a_seed_fail(
    monkeypatch: Patch,
    break_rule: Callable[[Patch], None],
    kinds: Sequence[FaultKind],
    rule: str,
) -> None:
    break_rule(monkeypatch)
    assert f" {rule}: " in caught(range(1, 25), kinds=kinds)


def fault(
    cluster: SimulatedCluster, kind: FaultKind, broker: int, other: int, seconds: float
) -> None:
    now = cluster.world.loop.time()
    planned = PlannedFault(
        at_seconds=now, kind=kind, broker=broker, other=other, seconds=seconds, amount=0.0
    )
    cluster.plan.append(planned)
    cluster.faults.strike(planned)


def leader_and_follower(cluster: SimulatedCluster, random: Random) -> tuple[int, int]:
    state = cluster.observer.states[cluster.partitions[-1]]
    followers = [broker for broker in state.in_sync if broker != state.leader]
    return state.leader, random.choice(followers)


async def a_follower_is_to_leave_and_nobody_can_write_it(cluster: SimulatedCluster) -> None:
    """The leader loses a follower, and then the coordination service."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    leader, follower = leader_and_follower(cluster, random)
    fault(cluster, FaultKind.CUT, leader, follower, 4.0)
    await cluster.sleep(random.uniform(0.6, 1.6))
    fault(cluster, FaultKind.CUT_COORDINATION, leader, follower, 2.5)
    await cluster.sleep(4)
    await cluster.heal()
    await cluster.finish()


async def a_follower_loses_power_while_its_fetch_is_under_way(cluster: SimulatedCluster) -> None:
    """It is back before the fetch arrives, which tells of records that it has lost."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    leader, follower = leader_and_follower(cluster, random)
    way = cluster.machines[follower].host, cluster.machines[leader].host
    for _ in range(2):
        cluster.world.network.set_delay(*way, 0.7, one_way=True)
        await cluster.sleep(random.uniform(0.1, 0.3))
        cluster.rest()
        await cluster.sleep(0.35)
        fault(cluster, FaultKind.POWER_LOSS, follower, leader, 0.02)
        await cluster.sleep(2)
        cluster.rest(is_resting=False)
        cluster.world.network.set_delay(*way, 0.002, one_way=True)
        await cluster.sleep(4)
    await cluster.heal()
    await cluster.finish()


STORIES = [
    (count_the_set_that_is_only_proposed, a_follower_is_to_leave_and_nobody_can_write_it),
    (believe_a_fetch_from_before_a_restart, a_follower_loses_power_while_its_fetch_is_under_way),
]


@pytest.mark.parametrize(("break_rule", "story"), STORIES)
def test_a_broken_rule_makes_a_story_fail(
    monkeypatch: Patch, break_rule: Callable[[Patch], None], story: Story
) -> None:
    break_rule(monkeypatch)
    assert " REP-3: " in caught(range(1, 25), story=story)


@pytest.mark.parametrize("story", [story for _, story in STORIES])
def test_the_story_passes_while_the_rules_are_kept(story: Story) -> None:
    assert caught(range(1, 4), story=story) == ""
