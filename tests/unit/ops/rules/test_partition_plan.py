"""How many partitions a throughput makes necessary, and what they cost."""

from __future__ import annotations

from moldau.ops.rules.partition_plan import Demand, plan_partitions


def demand(**changes: float) -> Demand:
    values = {
        "target": 200e6,
        "produce_rate": 30e6,
        "consume_rate": 60e6,
        "replication_factor": 3,
        "brokers": 3,
        **changes,
    }
    return Demand(**values)  # type: ignore[arg-type]


def test_partitions_are_the_larger_of_the_two_quotients() -> None:
    plan = plan_partitions(demand())
    assert (plan.partitions, plan.for_producing, plan.for_consuming) == (7, 7, 4)
    plan = plan_partitions(demand(consume_rate=10e6))
    assert (plan.partitions, plan.for_producing, plan.for_consuming) == (20, 7, 20)
    assert plan_partitions(demand(target=1.0)).partitions == 1
    assert plan_partitions(demand(target=60e6, produce_rate=30e6)).partitions == 2


def test_costs_are_those_of_a_broker() -> None:
    costs = {one.name: one.value for one in plan_partitions(demand()).costs}
    assert costs["replicas_per_broker"] == 7
    assert costs["file_handles_per_broker"] == 21
    assert costs["producer_memory_bytes"] == 7 * 16_384
    assert costs["replication_bytes_per_second"] == 400e6


def test_too_many_partitions_are_warned_of() -> None:
    assert not plan_partitions(demand()).warnings
    (warning,) = plan_partitions(demand(existing_partitions=3000)).warnings
    assert "900" in warning
    (warning,) = plan_partitions(demand(brokers=2)).warnings
    assert "there are 2" in warning
