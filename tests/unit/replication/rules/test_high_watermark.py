"""HW-1 and HW-2: within the log, never back, and only what every in-sync replica has."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.rules.replica import (
    advance_high_watermark,
    follow_high_watermark,
    restored_high_watermark,
)

offsets = st.integers(0, 1000)


def test_a_leader_alone_commits_what_it_has_written():
    assert advance_high_watermark(3, 10, ()) == 10


def test_the_slowest_in_sync_replica_decides():
    assert advance_high_watermark(3, 10, (9, 7)) == 7


def test_a_member_that_was_not_heard_of_yet_holds_it_back():
    assert advance_high_watermark(3, 10, (9, -1)) == 3


def test_a_replica_that_is_behind_does_not_take_anything_back():
    assert advance_high_watermark(8, 10, (5,)) == 8


def test_a_follower_goes_as_far_as_its_log_reaches():
    assert follow_high_watermark(3, 20, 10) == 10
    assert follow_high_watermark(3, 7, 10) == 7


def test_a_new_leader_that_knows_less_takes_nothing_back():
    assert follow_high_watermark(8, 5, 10) == 8


def test_what_was_written_down_is_kept_within_the_log():
    assert restored_high_watermark(7, 0, 10) == 7
    assert restored_high_watermark(17, 0, 10) == 10
    assert restored_high_watermark(0, 4, 10) == 4


@given(offsets, offsets, st.lists(offsets))
def test_it_never_goes_back_and_never_passes_the_log(current, extra, ends):
    leader_end = current + extra

    advanced = advance_high_watermark(current, leader_end, ends)

    assert current <= advanced <= leader_end
    assert all(advanced <= max(end, current) for end in ends)
