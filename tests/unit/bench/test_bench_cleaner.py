"""The study of the cleaner: what its figures are made of, and the sizes it is told."""

from __future__ import annotations

import sys

import pytest
from bench.__main__ import _parse_options, _scale_of
from bench.cleaner import DEDUPE_BYTES, Cleaned, Filled, Phase, _report
from bench.scale import DEFAULT, FULL, TINY

QUIET = Phase(
    reads_ms=[1.0] * 100, writes_ms=[2.0] * 100, seconds=10.0, cpu_seconds=1.0, peak_bytes=50 << 20
)
BUSY = Phase(
    reads_ms=[1.0] * 60 + [4.0] * 40,
    writes_ms=[2.0] * 100,
    seconds=20.0,
    cpu_seconds=12.0,
    peak_bytes=(50 << 20) + DEDUPE_BYTES // 2,
)


def test_costs_are_those_of_the_cleaner_and_latencies_ratios_to_quiet_phases() -> None:
    outcome = _report(
        TINY, Filled(10_000, 1_000_000_000), Cleaned(2, 10.0, 250_000_000), QUIET, BUSY, QUIET
    )
    costs, latencies = outcome.tables
    figures = dict(costs.rows)
    assert figures["MB/s"] == 100.0
    assert figures["CPU s/GB"] == pytest.approx(10.0)  # 2 of the 12 are the client's
    assert figures["rounds"] == 2
    ratios = {(row[0].split()[0], row[1]): row[4] for row in latencies.rows}
    assert ratios == {
        ("read", "p50"): 1.0,
        ("read", "p99"): 4.0,
        ("write", "p50"): 1.0,
        ("write", "p99"): 1.0,
    }
    (goal,) = outcome.goals
    assert (goal.measured, goal.verdict) == (0.5, "reached")


def test_a_size_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["bench", "cleaner", "--megabytes", "100", "--keys", "2000"]
    monkeypatch.setattr(sys, "argv", asked)
    scale = _scale_of(_parse_options())
    assert (scale.cleaner_bytes, scale.cleaner_keys) == (100_000_000, 2000)
    assert scale.log_bytes == DEFAULT.log_bytes
    assert (FULL.cleaner_bytes, FULL.cleaner_keys) == (5_000_000_000, 10_000_000)
