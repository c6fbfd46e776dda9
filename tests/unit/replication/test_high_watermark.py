"""HW-1 and HW-2: within the log, never back, and only what every in-sync replica has."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.rules.high_watermark import advance_high_watermark

offsets = st.integers(0, 1000)


def test_a_leader_alone_commits_what_it_has_written():
    assert advance_high_watermark(3, 10, ()) == 10


def test_the_slowest_in_sync_replica_decides():
    assert advance_high_watermark(3, 10, (9, 7)) == 7


def test_a_replica_that_is_behind_does_not_take_anything_back():
    assert advance_high_watermark(8, 10, (5,)) == 8


@given(offsets, offsets, st.lists(offsets))
def test_it_never_goes_back_and_never_passes_the_log(current, extra, ends):
    leader_end = current + extra

    advanced = advance_high_watermark(current, leader_end, ends)

    assert current <= advanced <= leader_end
    assert all(advanced <= max(end, current) for end in ends)
