"""What of a log goes into a branch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.storage.log_branch import plan_branch, stable_end
from moldau.storage.rules.epoch_cache import EpochCache, EpochStart


def test_whole_segments_are_shared_and_the_one_that_holds_the_end_is_copied():
    plan = plan_branch([0, 10, 20, 30], 0, 40, stable_offset=25)
    assert (plan.shared, plan.copied, plan.end_offset) == (range(2), 2, 25)


def test_the_segment_that_is_written_to_is_never_shared():
    plan = plan_branch([0, 10], 0, 20, stable_offset=20)
    assert (plan.shared, plan.copied, plan.end_offset) == (range(1), 1, 20)


def test_where_the_end_is_between_two_segments_nothing_is_copied():
    plan = plan_branch([0, 10], 0, 20, stable_offset=10)
    assert (plan.shared, plan.copied, plan.end_offset) == (range(1), None, 10)


def test_what_is_before_the_start_is_left_out():
    plan = plan_branch([0, 10, 20], 15, 30, stable_offset=30)
    assert (plan.shared, plan.copied, plan.start_offset) == (range(1, 2), 2, 15)


def test_a_branch_of_nothing_begins_where_the_log_does():
    assert plan_branch([0], 0, 0, stable_offset=0).copied is None
    plan = plan_branch([0, 10], 15, 20, stable_offset=12)
    assert (list(plan.shared), plan.copied, plan.end_offset) == ([], None, 15)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True).map(sorted),
    st.data(),
)
def test_every_offset_below_the_end_is_in_the_branch_once(bases: list[int], data: st.DataObject):
    end = data.draw(st.integers(bases[-1], bases[-1] + 20))
    start = data.draw(st.integers(bases[0], end))
    stable = data.draw(st.integers(start, end))
    plan = plan_branch(bases, start, end, stable)
    assert (plan.start_offset, plan.end_offset) == (start, stable)
    held = set()
    for number in plan.shared:
        assert number < len(bases) - 1  # that one is appended to
        assert bases[number + 1] <= stable
        held |= set(range(bases[number], bases[number + 1]))
    if plan.copied is not None:
        assert plan.copied not in plan.shared
        held |= set(range(bases[plan.copied], stable))
    assert set(range(start, stable)) <= held
    assert not held or max(held) < stable
    assert stable not in [bases[number] for number in plan.shared]  # a new segment is there


def test_nothing_of_an_epoch_that_the_branch_may_use_itself_is_taken():
    epochs = EpochCache((EpochStart(3, 0), EpochStart(5, 10), EpochStart(8, 20)))
    assert stable_end(epochs, 8, 30, stable_offset=25) == 25
    assert stable_end(epochs, 7, 30, stable_offset=25) == 20
    assert stable_end(epochs, 7, 30, stable_offset=15) == 15
    assert stable_end(epochs, 4, 30, stable_offset=25) == 10
    assert stable_end(EpochCache(), 4, 30, stable_offset=25) == 25
