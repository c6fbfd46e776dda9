"""Figures of measurements."""

from __future__ import annotations

from moldau.cli.bench_run import Figures, middle, percentiles_ms


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
