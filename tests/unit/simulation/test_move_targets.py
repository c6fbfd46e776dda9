"""Where a partition may be in the end, by what operators were told."""

from __future__ import annotations

from moldau.model import TopicPartition
from moldau.simulation.history import MoveTargets

T0 = TopicPartition("t", 0)


def lost(targets: MoveTargets, *present: int) -> bool:
    return bool(targets.find_lost({T0: present}))


def test_a_move_that_was_acknowledged_comes_about() -> None:
    targets = MoveTargets()
    assert not lost(targets, 9)
    targets.answer(targets.ask_move(T0, (1, 2)), 0)
    assert not lost(targets, 2, 1)
    assert targets.find_lost({T0: (1, 3)}) == ["t-0 is on [1, 3], and was sent to [[1, 2]]"]


def test_the_last_one_counts() -> None:
    targets = MoveTargets()
    targets.answer(targets.ask_move(T0, (1, 2)), 0)
    targets.answer(targets.ask_move(T0, (3,)), 0)
    assert not lost(targets, 3)
    assert lost(targets, 1, 2)


def test_a_refused_one_does_not_count() -> None:
    targets = MoveTargets()
    targets.answer(targets.ask_move(T0, (1, 2)), 0)
    targets.answer(targets.ask_move(T0, (3,)), 39)
    assert lost(targets, 3)


def test_one_in_doubt_may_come_about_at_any_time() -> None:
    targets = MoveTargets()
    targets.answer(targets.ask_move(T0, (4,)), None)
    targets.answer(targets.ask_move(T0, (5,)), 0, is_in_doubt=True)
    targets.answer(targets.ask_move(T0, (1, 2)), 0)
    assert not lost(targets, 4)
    assert not lost(targets, 5)
    assert not lost(targets, 1, 2)
    assert lost(targets, 3)


def test_of_two_at_the_same_time_either_may_be_the_last() -> None:
    targets = MoveTargets()
    one, other = targets.ask_move(T0, (1,)), targets.ask_move(T0, (2,))
    targets.answer(other, 0)
    targets.answer(one, 0)
    assert not lost(targets, 1)
    assert not lost(targets, 2)


def test_after_a_cancellation_it_may_be_anywhere() -> None:
    targets = MoveTargets()
    targets.answer(targets.ask_move(T0, (1,)), 0)
    targets.answer(targets.ask_move(T0, None), 0)
    assert not lost(targets, 7)
    targets.answer(targets.ask_move(T0, (2,)), 0)
    assert lost(targets, 7)


def test_a_topic_that_is_deleted_is_forgotten() -> None:
    targets = MoveTargets()
    targets.answer(targets.ask_move(T0, (1,)), 0)
    targets.forget_topic("t")
    assert not lost(targets, 2)


def test_who_may_be_taken_away_at_any_moment() -> None:
    moves = MoveTargets()
    assert moves.may_leave(T0, (1, 2, 3)) == frozenset()
    shrinking = moves.ask_move(T0, (2, 3))
    assert moves.may_leave(T0, (1, 2, 3)) == {1}
    moves.answer(shrinking, 0)
    assert moves.may_leave(T0, (1, 2, 3)) == {1}
    assert moves.may_leave(T0, (2, 3)) == frozenset()
    refused = moves.ask_move(T0, (4, 5))
    moves.answer(refused, 37)
    assert moves.may_leave(T0, (2, 3)) == frozenset()
    moves.ask_move(T0, None)
    assert moves.may_leave(T0, (2, 3)) == {2, 3}
