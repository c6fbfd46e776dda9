"""Where replicas and leaders go so that brokers carry alike."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client.rules.rebalance_plan import ClusterLoad, RebalancePlan, plan_rebalance
from moldau.model import TopicPartition


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
    loads = {key: float(draw(st.integers(0, 1000))) for key in replicas}
    leave = [brokers[0]] if len(brokers) > factor and draw(st.booleans()) else []
    return ClusterLoad(replicas=replicas, loads=loads, racks=racks, leave=leave)


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
    assert sum(plan.after.values()) == sum(plan.before.values())
    if not cluster.leave and not any(cluster.racks.values()):
        assert max(plan.after.values()) <= max(plan.before.values())


@given(clusters())
@settings(max_examples=200)
def test_what_a_plan_has_made_needs_no_other(cluster: ClusterLoad) -> None:
    after = planned(cluster, plan_rebalance(cluster))
    again = ClusterLoad(
        replicas=after, loads=cluster.loads, racks=cluster.racks, leave=cluster.leave
    )
    moved = plan_rebalance(again).moved_load
    assert moved == 0 or moved < plan_rebalance(cluster).moved_load


def test_a_new_broker_gets_its_share() -> None:
    replicas = {partition(n): (1, 2) if n % 2 else (2, 1) for n in range(12)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            loads=dict.fromkeys(replicas, 10.0),
            racks={1: None, 2: None, 3: None},
        )
    )
    assert plan.after == {1: 80.0, 2: 80.0, 3: 80.0}
    assert plan.leaders_after == {1: 4, 2: 4, 3: 4}
    assert plan.moved_load == 80.0


def test_replicas_in_one_rack_are_parted_first() -> None:
    replicas = {partition(n): (1, 2) for n in range(4)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            loads=dict.fromkeys(replicas, 10.0),
            racks={1: "a", 2: "a", 3: "b", 4: "b"},
        )
    )
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for target in plan.targets.values():
        assert Counter(racks[one] for one in target) == {"a": 1, "b": 1}
    assert set(plan.after.values()) == {20.0}
    assert set(plan.leaders_after.values()) == {1}


def test_leaders_are_spread_without_moving_anything() -> None:
    replicas = {partition(n): (1, 2, 3) for n in range(9)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas,
            loads=dict.fromkeys(replicas, 10.0),
            racks={1: None, 2: None, 3: None},
        )
    )
    assert plan.moved_load == 0
    assert plan.leaders_after == {1: 3, 2: 3, 3: 3}


def test_a_single_large_partition_is_not_carried_to_and_fro() -> None:
    replicas = {partition(0): (1,)}
    plan = plan_rebalance(
        ClusterLoad(
            replicas=replicas, loads={partition(0): 100.0}, racks={1: None, 2: None, 3: None}
        )
    )
    assert not plan.targets
