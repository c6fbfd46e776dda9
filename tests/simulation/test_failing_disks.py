"""Disks that fail, brokers that end for it and come back, and power that is lost at any moment.

A broker has one log directory here: when it fails, the broker ends, and is started again as a
supervisor would. What a disk could not sync it has forgotten when the power goes.
"""

from __future__ import annotations

import pytest

from moldau.simulation.cluster import SimulatedCluster
from moldau.simulation.fault_plan import FaultKind

KINDS = (FaultKind.FAIL_SYNC, FaultKind.FAIL_WRITE, FaultKind.POWER_LOSS, FaultKind.STOP)
SEEDS = range(300_000, 300_010)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_with_disks_that_fail(seed: int) -> None:
    SimulatedCluster(seed=seed, kinds=KINDS).run().require_success()


def test_a_broker_without_a_disk_ends_and_comes_back() -> None:
    outcomes = [SimulatedCluster(seed=seed, kinds=KINDS).run() for seed in SEEDS[:4]]
    events = [line for outcome in outcomes for line in outcome.events]
    assert any("cannot go on: no log directory is left" in line for line in events)
