"""Users of a simulated cluster whose rights and quotas change while they work.

An eighth of the seeds of `test_seeds` have them; these are some that have them for sure.
"""

from __future__ import annotations

import pytest

from moldau.simulation.cluster import SimulatedCluster
from moldau.simulation.fault_plan import FaultKind

STORE_FAILS = (
    FaultKind.ELECT_COORDINATION,
    FaultKind.CUT_OFF_COORDINATION,
    FaultKind.CUT_COORDINATION,
    FaultKind.PAUSE,
)


@pytest.mark.parametrize("seed", [3, 4])
def test_who_has_no_right_is_denied_and_nothing_is_lost(seed: int) -> None:
    outcome = SimulatedCluster(seed=seed, access=True).run()
    outcome.require_success()
    assert outcome.denied >= 2  # both users at the end


@pytest.mark.parametrize("seed", [12, 13])
def test_rights_hold_while_brokers_are_away_from_the_store(seed: int) -> None:
    outcome = SimulatedCluster(seed=seed, kinds=STORE_FAILS, operations=[], access=True).run()
    outcome.require_success()
    assert outcome.denied >= 2  # both users at the end
