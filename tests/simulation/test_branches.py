"""Topics are branched, again and again, while brokers die and partitions move."""

from __future__ import annotations

import pytest

from moldau.simulation.cluster import SimulatedCluster
from moldau.simulation.operations import BRANCHES, MOVES


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_branch_has_what_its_origin_had_whatever_fails(seed: int) -> None:
    outcome = SimulatedCluster(seed=seed, operations=[BRANCHES, MOVES]).run()
    outcome.require_success()


def test_some_of_these_branches_are_made_and_promised() -> None:
    """Otherwise the seeds above would show nothing."""
    outcome = SimulatedCluster(seed=3, operations=[BRANCHES]).run()
    assert any("has what was promised of t" in event for event in outcome.events)
