"""A hundred runs of a whole cluster with faults: nothing that was promised is lost.

A failing seed prints itself, its schedule and how to see it again. More of them:
`make campaign SEEDS=10000 FIRST=1000`, which `make proof` runs every night.
"""

from __future__ import annotations

import pytest

from moldau.simulation.campaign import run_seed

SEEDS = 100
SEEDS_PER_TEST = 5  # so that the runs spread over the cores


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_a_cluster_keeps_its_promises_whatever_fails(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run_seed(seed).require_success()
