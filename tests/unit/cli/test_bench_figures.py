"""Figures of measurements, and how many partitions they make necessary."""

from __future__ import annotations

import pytest

from moldau.cli.bench_run import Figures, middle, parse_rate, percentiles_ms, rate_text
from moldau.errors import ConfigurationError
from moldau.ops.rules.partition_plan import Demand, plan_partitions


def test_percentiles_count_each_sample_by_its_weight() -> None:
    found = percentiles_ms([(0.001, 98), (0.5, 1), (0.1, 1)])
    assert found == {"p50": 1.0, "p95": 1.0, "p99": 100.0, "p99.9": 500.0, "max": 500.0}
    assert percentiles_ms([]) == {}


def test_several_rounds_give_their_medians() -> None:
    rounds = [
        Figures(count=n, size_bytes=n * 1_000_000, seconds=1.0, latencies_ms={"p50": float(n)})
        for n in (10, 40, 20)
    ]
    assert middle(rounds) == {"per_second": 20.0, "megabytes_per_second": 20.0, "p50_ms": 20.0}


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("200MB/s", 200e6),
        ("1.5 GB/s", 1.5e9),
        ("800k", 800e3),
        ("1MiB/s", 1 << 20),
        ("300", 300.0),
        ("5kBps", 5000.0),
    ],
)
def test_rates_are_read(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0MB/s", "-5", "10 apples"])
def test_other_texts_are_no_rates(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_rate(text)


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


@pytest.mark.parametrize(
    ("rate", "text"),
    [(20, "20 B/s"), (1500, "1.5 kB/s"), (200e6, "200 MB/s"), (1.5e9, "1,500 MB/s")],
)
def test_a_rate_is_told_in_a_unit_of_its_size(rate: float, text: str) -> None:
    assert rate_text(rate) == text
