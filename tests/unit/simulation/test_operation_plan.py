"""Operations are drawn from a seed, each family from a source of its own."""

from __future__ import annotations

from random import Random

from moldau.simulation.fault_plan import PlannedOperation, draw_operations, has_operations

WEIGHTS = {"move": 3, "elect": 1}


def draw(seed: int, share: float = 1.0) -> list[PlannedOperation]:
    return draw_operations(
        Random(seed),
        "moves",
        WEIGHTS,
        share=share,
        fewest=2,
        most=5,
        start_seconds=1.0,
        end_seconds=8.0,
    )


def test_a_plan_is_the_same_for_the_same_seed() -> None:
    assert draw(7) == draw(7) != draw(8)


def test_a_plan_keeps_to_its_kinds_its_number_and_its_times() -> None:
    for seed in range(200):
        plan = draw(seed)
        assert 2 <= len(plan) <= 5
        assert [each.at_seconds for each in plan] == sorted(each.at_seconds for each in plan)
        assert all(1.0 <= each.at_seconds <= 8.0 for each in plan)
        assert {each.kind for each in plan} <= WEIGHTS.keys()


def test_a_share_of_the_seeds_has_operations() -> None:
    assert not any(draw(seed, share=0.0) for seed in range(50))
    assert 60 < sum(bool(draw(seed, share=0.5)) for seed in range(200)) < 140
    assert 60 < sum(has_operations(Random(seed)) for seed in range(200)) < 140


def test_a_schedule_tells_what_is_done_and_with_which_choices() -> None:
    planned = PlannedOperation(at_seconds=2.5, family="moves", kind="move", number=9)
    assert str(planned) == "   2.500 moves: move (9)"
