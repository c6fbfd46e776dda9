"""A seed decides everything: the same run, to the step, whatever the process is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from moldau.simulation.campaign import main, run_seed
from moldau.simulation.cluster import SimulatedCluster, SimulationFailure

SEED = 3
_PROGRAM = """
from moldau.testing import SimulatedCluster
outcome = SimulatedCluster(seed={seed}, transactions=True, shares=True).run()
print(outcome.digest, outcome.steps)
"""


def replay(hash_seed: str) -> str:
    """The seed in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(seed=SEED)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    return done.stdout.strip()


def test_a_seed_takes_the_same_steps_each_time() -> None:
    first, second = (
        SimulatedCluster(seed=SEED, transactions=True, shares=True).run() for _ in range(2)
    )
    assert first.events == second.events
    assert (first.digest, first.steps) == (second.digest, second.steps)
    assert first.acknowledged > 20
    assert first.seen > 50
    assert first.commits > 5


def test_a_seed_takes_the_same_steps_in_another_process_with_other_hashes() -> None:
    outcome = SimulatedCluster(seed=SEED, transactions=True, shares=True).run()
    assert outcome.transactions > 0
    assert outcome.shared > 0
    assert replay("1") == replay("2") == f"{outcome.digest} {outcome.steps}"


def test_seeds_differ() -> None:
    assert run_seed(1).digest != run_seed(2).digest


async def broken(cluster: SimulatedCluster) -> None:
    await cluster.begin()
    await cluster.sleep(1)
    cluster.history.report("REP-3", "as if a record were gone")


def test_a_failure_says_what_happened_and_how_to_see_it_again() -> None:
    outcome = SimulatedCluster(seed=77, brokers=3).run(broken)
    with pytest.raises(SimulationFailure) as failure:
        outcome.require_success()
    text = str(failure.value)
    assert "seed 77" in text
    assert "REP-3: as if a record were gone" in text
    assert "make campaign SEEDS=1 FIRST=77" in text
    assert "broker 1 is registered" in text


def test_a_campaign_counts_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--first", "1"]) == 0
    assert "1 seeds in" in capsys.readouterr().out
