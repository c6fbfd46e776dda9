"""Where replicas and leaders go so that brokers carry alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.ops.rules import rebalance_plan
from moldau.ops.rules.rebalance_plan import (
    BrokerLoad,
    ClusterLoad,
    RebalancePlan,
    _excess,
    _square,
    find_staying,
    plan_rebalance,
)


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterLoad:
    brokers = list(range(1, draw(st.integers(1, 6)) + 1))
    has_racks = draw(st.booleans())
    racks = {one: draw(st.sampled_from("abc")) if has_racks else None for one in brokers}
    factor = draw(st.integers(1, min(3, len(brokers))))
    count = draw(st.integers(1, 12))
    replicas = {partition(n): tuple(draw(st.permutations(brokers))[:factor]) for n in range(count)}
    sizes = {key: draw(st.integers(0, 1000)) for key in replicas}
    is_measured = draw(st.booleans())
    rates = {key: draw(st.integers(0, 1000)) for key in replicas} if is_measured else {}
    leave = [brokers[0]] if len(brokers) > factor and draw(st.booleans()) else []
    return ClusterLoad(replicas=replicas, sizes=sizes, rates=rates, racks=racks, leave=leave)


BOUND = 1.1
SIZE, RATE, LEADERS, LEADER_RATE = range(4)


def excess(loads: Mapping[int, BrokerLoad], *things: int) -> float:
    """The planner's measure: squares of what exceeds the tolerated mean."""
    total = 0.0
    for thing in things:
        column = [load[thing] for load in loads.values()]
        mean = sum(column) / len(column)
        ratios = (one / mean if mean else 0.0 for one in column)
        total += sum(max(0.0, ratio - BOUND) ** 2 for ratio in ratios)
    return round(total, 6)


def planned(cluster: ClusterLoad, plan: RebalancePlan) -> dict[TopicPartition, tuple[int, ...]]:
    return {**cluster.replicas, **plan.targets}


@given(clusters())
@settings(max_examples=300)
def test_a_plan_keeps_what_has_to_stay_and_makes_nothing_worse(cluster: ClusterLoad) -> None:
    plan = plan_rebalance(cluster)
    after = planned(cluster, plan)
    for key, replicas in after.items():
        former = cluster.replicas[key]
        assert len(replicas) == len(set(replicas)) == len(former)
        assert set(replicas) <= set(cluster.racks)
        assert not set(replicas) & set(cluster.leave)
        racks = {cluster.racks[one] for one in replicas}
        if not cluster.leave:
            assert len(racks) >= len({cluster.racks[one] for one in former})
        assert plan.targets.get(key) != former
        racks_to_have = {cluster.racks[one] for one in set(cluster.racks) - set(cluster.leave)}
        if any(racks):
            assert len(racks) == min(len(replicas), len(racks_to_have))
    for thing in range(4):
        total = sum(one[thing] for one in plan.before.values())
        assert sum(one[thing] for one in plan.after.values()) == total
    if not cluster.leave and not any(cluster.racks.values()):
        assert excess(plan.after, SIZE, RATE) <= excess(plan.before, SIZE, RATE)


@given(clusters())
@settings(max_examples=300)
def test_changing_leaders_never_makes_their_traffic_worse(cluster: ClusterLoad) -> None:
    """The data is where it should be already, so that leaders are all that changes."""
    placed = planned(cluster, plan_rebalance(cluster))
    skewed = {key: tuple(sorted(row)) for key, row in placed.items()}
    plan = plan_rebalance(replace(cluster, replicas=skewed))
    if all(set(row) == set(skewed[key]) for key, row in plan.targets.items()):
        left = plan.before.keys() - set(cluster.leave)
        before, after = ({one: loads[one] for one in left} for loads in (plan.before, plan.after))
        worse = excess(before, LEADER_RATE), sum(one.leaders**2 for one in before.values())
        better = excess(after, LEADER_RATE), sum(one.leaders**2 for one in after.values())
        assert better < worse or not plan.targets


@given(clusters())
@settings(max_examples=300)
def test_no_data_moves_unless_the_spread_gets_better(cluster: ClusterLoad) -> None:
    free = replace(cluster, racks=dict.fromkeys(cluster.racks), leave=())
    plan = plan_rebalance(free)
    if any(set(row) != set(free.replicas[key]) for key, row in plan.targets.items()):
        assert excess(plan.after, SIZE, RATE) < excess(plan.before, SIZE, RATE)


@given(clusters())
@settings(max_examples=200)
def test_what_a_plan_has_made_needs_no_other(cluster: ClusterLoad) -> None:
    after = planned(cluster, plan_rebalance(cluster))
    again = plan_rebalance(replace(cluster, replicas=after))
    assert again.moved_bytes == 0 or again.moved_bytes < plan_rebalance(cluster).moved_bytes


def test_a_new_broker_gets_its_share() -> None:
    replicas = {partition(n): (1, 2) if n % 2 else (2, 1) for n in range(12)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            sizes=dict.fromkeys(replicas, 10),
            racks={1: None, 2: None, 3: None},
        )
    )
    assert set(plan.after.values()) == {BrokerLoad(80, 0, 4, 0)}
    assert plan.moved_bytes == 80


def test_replicas_in_one_rack_are_parted_first() -> None:
    replicas = {partition(n): (1, 2) for n in range(4)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            sizes=dict.fromkeys(replicas, 10),
            racks={1: "a", 2: "a", 3: "b", 4: "b"},
        )
    )
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for target in plan.targets.values():
        assert Counter(racks[one] for one in target) == {"a": 1, "b": 1}
    assert set(plan.after.values()) == {BrokerLoad(20, 0, 1, 0)}


def test_leaders_are_spread_without_moving_anything() -> None:
    replicas = {partition(n): (1, 2, 3) for n in range(9)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            sizes=dict.fromkeys(replicas, 10),
            racks={1: None, 2: None, 3: None},
        )
    )
    assert plan.moved_bytes == 0
    assert {one.leaders for one in plan.after.values()} == {3}


def test_small_partitions_that_are_written_to_all_the_time_are_parted() -> None:
    """By size alone they would stay together."""
    replicas = {partition(0): (1,), partition(1): (1,), partition(2): (2,)}
    cluster = ClusterLoad(
        replicas=replicas,
        sizes={partition(0): 10, partition(1): 10, partition(2): 20},
        racks={1: None, 2: None},
    )
    assert not plan_rebalance(cluster).targets
    plan = plan_rebalance(replace(cluster, rates={partition(0): 500, partition(1): 500}))
    assert len(plan.targets) == 1
    assert {one.bytes_in for one in plan.after.values()} == {500}


def test_leaders_with_traffic_are_parted_though_everybody_leads_as_many() -> None:
    replicas = {
        partition(0): (1, 2),
        partition(1): (1, 2),
        partition(2): (2, 1),
        partition(3): (2, 1),
    }
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            sizes=dict.fromkeys(replicas, 10),
            rates={partition(0): 300, partition(1): 300},
            racks={1: None, 2: None},
        )
    )
    assert plan.moved_bytes == 0
    assert plan.before[1].leader_bytes == 1200
    assert set(plan.after.values()) == {BrokerLoad(40, 600, 2, 600)}


def test_a_hot_partition_that_cannot_be_parted_does_not_keep_bytes_where_they_are_too_many() -> (
    None
):
    replicas = {partition(n): (1,) for n in range(5)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            sizes=dict.fromkeys(replicas, 10),
            rates={partition(0): 1000},
            racks={1: None, 2: None},
        )
    )
    assert sorted(one.size_bytes for one in plan.after.values()) == [20, 30]
    assert partition(0) not in plan.targets


def test_traffic_within_the_tolerance_changes_nothing() -> None:
    replicas = {partition(0): (1, 2), partition(1): (2, 1)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            sizes=dict.fromkeys(replicas, 10),
            rates={partition(0): 105, partition(1): 95},
            racks={1: None, 2: None},
        )
    )
    assert not plan.targets


def test_of_moves_that_do_the_same_the_one_that_copies_least_is_taken() -> None:
    replicas = {partition(n): (1,) for n in range(4)} | {partition(4): (2,)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            sizes={partition(n): size for n, size in enumerate((104, 100, 96, 100, 200))},
            rates=dict.fromkeys(list(replicas)[:4], 10),
            racks={1: None, 2: None},
        ),
        tolerance=0.35,
    )
    moved = {key: row for key, row in plan.targets.items() if row == (2,)}
    assert partition(2) in moved


def test_a_single_large_partition_is_not_carried_to_and_fro() -> None:
    replicas = {partition(0): (1,)}
    plan = plan_rebalance(
        ClusterLoad(replicas=replicas, sizes={partition(0): 100}, racks={1: None, 2: None, 3: None})
    )
    assert not plan.targets


# What is not looked at again could not have been chosen


NOTHING = (0.0, 0.0)


class _EveryMove(rebalance_plan._Moves):
    """Looks at all partitions and all brokers, each time."""

    def _find_best_move(
        self, source: int, carried: Mapping[int, tuple[float, float]], bound: float
    ) -> tuple[TopicPartition, int, int] | None:
        found = []
        for key in self._held[source]:
            more = self._ratios[key]
            less = -more[0], -more[1]
            for target in self._targets:
                if not self._may_move(key, source, target):
                    continue
                before, after = (_excess(carried[source], one, bound) for one in (NOTHING, less))
                burden = _excess(carried[target], more, bound)
                burden -= _excess(carried[target], NOTHING, bound)
                change = round(burden - (before - after), 9)
                load = self._load_of(key)
                found.append((change, load, max(carried[target]), key, target))
        best = min(found, default=None)
        return None if best is None or best[0] >= 0 else (best[3], source, best[4])


class _EveryLeader(rebalance_plan._Leaders):
    """Looks at all that a broker leads, each time."""

    def _find_best_change(self, first: int) -> tuple[TopicPartition, int] | None:
        giver, found = self._carried.of(first), []
        for key in self._led[first]:
            number, rate = self._ratios[key]
            for other in self.replicas[key][1:]:
                if other not in self._brokers:
                    continue
                taker = self._carried.of(other)
                changes = (
                    _square(giver[1] - rate, BOUND)
                    + _square(taker[1] + rate, BOUND)
                    - _square(giver[1], BOUND)
                    - _square(taker[1], BOUND),
                    _square(giver[0] - number, 0.0)
                    + _square(taker[0] + number, 0.0)
                    - _square(giver[0], 0.0)
                    - _square(taker[0], 0.0),
                )
                found.append((round(changes[0], 9), round(changes[1], 9), key, other))
        best = min(found, default=None)
        return None if best is None or best[:2] >= (0.0, 0.0) else best[2:]


@given(clusters())
@settings(max_examples=300)
def test_the_plan_is_the_one_that_looking_at_everything_finds(cluster: ClusterLoad) -> None:
    tolerance = BOUND - 1
    quick, slow = rebalance_plan._Moves(cluster), _EveryMove(cluster)
    for moves in (quick, slow):
        moves.leave_brokers()
        moves.spread_over_racks()
        moves.level_load(tolerance)
    assert quick.replicas == slow.replicas
    leaders = rebalance_plan._Leaders(cluster, quick.replicas, tolerance)
    all_leaders = _EveryLeader(cluster, quick.replicas, tolerance)
    leaders.spread()
    all_leaders.spread()
    assert leaders.replicas == all_leaders.replicas


def test_what_cannot_leave_a_broker_is_named() -> None:
    wide, narrow = TopicPartition("wide", 0), TopicPartition("narrow", 0)
    cluster = ClusterLoad(
        replicas={wide: (1, 2, 3), narrow: (3,)},
        sizes={},
        rates={},
        racks={1: None, 2: None, 3: None},
        leave=frozenset({3}),
    )
    plan = plan_rebalance(cluster)
    assert 3 not in plan.targets[narrow]
    assert find_staying(cluster, plan) == [wide]
    assert find_staying(replace(cluster, leave=frozenset()), plan) == []
