"""How far a follower has come, and when it was last caught up."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.rules.isr import (
    FollowerFetch,
    FollowerProgress,
    begin_progress,
    forget_log,
    is_caught_up,
    is_one_fetch_behind,
    join_isr,
    note_fetch,
    note_idle,
)


def fetch(
    offset: int, leader_end: int, at: float, broker_epoch: int = 7, high_watermark: int = 0
) -> FollowerFetch:
    return FollowerFetch(
        offset=offset,
        log_start_offset=0,
        broker_epoch=broker_epoch,
        leader_end_offset=leader_end,
        high_watermark=high_watermark,
        at=at,
    )


def test_a_fetch_at_the_end_is_caught_up_now():
    progress = note_fetch(FollowerProgress(), fetch(10, 10, at=5.0))

    assert progress.caught_up_at == 5.0
    assert progress.log_end_offset == 10


def test_a_fetch_at_the_former_end_was_caught_up_at_the_former_fetch():
    progress = note_fetch(FollowerProgress(), fetch(0, 10, at=5.0))
    assert progress.caught_up_at == float("-inf")

    progress = note_fetch(progress, fetch(10, 20, at=6.0))
    assert progress.caught_up_at == 5.0


def test_a_follower_that_never_reaches_the_former_end_is_not_caught_up():
    progress = begin_progress(in_sync=True, now=1.0)
    for second in range(2, 50):
        progress = note_fetch(progress, fetch(second, 10 * second, at=float(second)))

    assert progress.caught_up_at == 1.0
    assert not is_caught_up(progress, 500, now=49.0, max_lag_seconds=30.0)


def test_members_of_the_in_sync_set_get_time_to_show_up_and_others_do_not():
    member = begin_progress(in_sync=True, now=100.0)
    other = begin_progress(in_sync=False, now=100.0)

    assert is_caught_up(member, 5, now=110.0, max_lag_seconds=30.0)
    assert not is_caught_up(other, 5, now=110.0, max_lag_seconds=30.0)
    assert member.log_end_offset == -1


def test_what_a_broker_was_before_its_restart_is_no_merit():
    progress = note_fetch(FollowerProgress(), fetch(10, 10, at=5.0, broker_epoch=7))
    progress = note_fetch(progress, fetch(9, 10, at=6.0, broker_epoch=8))

    assert progress.log_end_offset == 9
    assert progress.caught_up_at == float("-inf")


def test_a_log_that_is_forgotten_is_unknown_until_the_next_fetch():
    progress = forget_log(note_fetch(FollowerProgress(), fetch(10, 10, at=5.0)))

    assert progress.log_end_offset == -1
    assert progress.broker_epoch == -1
    assert note_fetch(progress, fetch(4, 10, at=6.0)).log_end_offset == 4


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_the_time_of_being_caught_up_never_lies(steps):
    """Whoever was caught up at a time had, at some fetch since, all that was there by then."""
    ends: list[tuple[float, int]] = []
    progress = FollowerProgress()
    leader_end = 0
    for second, (grown, lag) in enumerate(steps):
        leader_end += grown
        offset = max(0, leader_end - lag)
        ends.append((float(second), leader_end))
        progress = note_fetch(progress, fetch(offset, leader_end, at=float(second)))
        known = dict(ends).get(progress.caught_up_at)
        if known is not None:
            fetched = [max(0, end - lag) for (_, end), (_, lag) in zip(ends, steps, strict=False)]
            assert max(fetched) >= known


def test_one_fetch_behind_is_whoever_has_what_was_committed_at_its_last_fetch():
    former = note_fetch(FollowerProgress(), fetch(5, 12, at=1.0, high_watermark=10))

    assert is_one_fetch_behind(former, fetch(10, 20, at=2.0))
    assert not is_one_fetch_behind(former, fetch(9, 20, at=2.0))
    assert not is_one_fetch_behind(former, fetch(10, 20, at=2.0, broker_epoch=8))
    assert not is_one_fetch_behind(FollowerProgress(), fetch(10, 20, at=2.0))


def test_a_follower_that_was_at_the_end_is_caught_up_until_it_was_heard_of_last():
    at_end = FollowerProgress(
        log_end_offset=10, leader_end_at_fetch=10, caught_up_at=5.0, fetched_at=6.0, broker_epoch=7
    )
    idle = note_idle(at_end, 20.0)
    assert (idle.caught_up_at, idle.fetched_at) == (20.0, 20.0)
    assert note_idle(at_end, 5.5) == at_end._replace(caught_up_at=5.5)
    assert note_idle(at_end, 4.0) == at_end


def test_who_was_not_at_the_end_or_has_not_fetched_says_nothing_by_being_idle():
    behind = FollowerProgress(log_end_offset=9, leader_end_at_fetch=10, broker_epoch=7)
    assert note_idle(behind, 20.0) == behind
    unknown = FollowerProgress()
    assert note_idle(unknown, 20.0) == unknown


def test_who_comes_into_the_set_is_caught_up_from_then_on():
    assert join_isr(FollowerProgress(caught_up_at=5.0), 20.0).caught_up_at == 20.0
    assert join_isr(FollowerProgress(caught_up_at=25.0), 20.0).caught_up_at == 25.0


def test_a_follower_may_lag_for_its_time_and_no_longer():
    behind = FollowerProgress(log_end_offset=9, caught_up_at=100.0)
    assert is_caught_up(behind, 10, 130.0, 30.0)
    assert not is_caught_up(behind, 10, 130.5, 30.0)
    assert is_caught_up(behind, 9, 999.0, 30.0)
