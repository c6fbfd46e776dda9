"""What a seed lets go wrong."""

from __future__ import annotations

from random import Random

from moldau.simulation.fault_plan import ON_ONE_MACHINE, FaultKind, PlannedFault, draw_plan

BROKERS = (1, 2, 3)
EXTRAS = (FaultKind.LOSE_FILES, FaultKind.ELECT_COORDINATION, FaultKind.CUT_OFF_COORDINATION)


def plan_of(seed: int, **options: object) -> list[PlannedFault]:
    return draw_plan(
        Random(seed),
        BROKERS,
        start_seconds=1.0,
        end_seconds=9.0,
        session_seconds=1.5,
        **options,  # type: ignore[arg-type]
    )


def test_a_seed_has_one_plan() -> None:
    assert plan_of(5) == plan_of(5)
    assert plan_of(5) != plan_of(6)


def test_faults_are_in_order_within_their_time_and_between_two_brokers() -> None:
    for seed in range(200):
        plan = plan_of(seed)
        in_addition = sum(fault.kind in EXTRAS for fault in plan)
        assert 3 <= len(plan) - in_addition <= 9
        assert in_addition in (0, 1, 3, 4)
        assert [fault.at_seconds for fault in plan] == sorted(fault.at_seconds for fault in plan)
        for fault in plan:
            assert 1.0 <= fault.at_seconds <= 9.0
            assert fault.broker != fault.other
            assert {fault.broker, fault.other} <= set(BROKERS)
            assert fault.seconds > 0


def test_three_hundred_seeds_have_every_kind_of_fault() -> None:
    kinds = {fault.kind for seed in range(300) for fault in plan_of(seed)}
    assert kinds == set(FaultKind) - {FaultKind.KILL_SUPERVISOR, FaultKind.PAUSE_SUPERVISOR}
    served = {fault.kind for seed in range(300) for fault in plan_of(seed, kinds=ON_ONE_MACHINE)}
    assert served == set(ON_ONE_MACHINE)


def test_a_plan_can_be_kept_to_some_kinds() -> None:
    for seed in range(50):
        assert {fault.kind for fault in plan_of(seed, kinds=(FaultKind.PAUSE,))} == {
            FaultKind.PAUSE
        }
