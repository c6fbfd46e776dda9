"""ISR-1, ISR-3: who counts while a change of the in-sync set is under way, who comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.rules.isr import (
    Committed,
    FollowerProgress,
    PendingExpand,
    PendingShrink,
    has_caught_up,
    plan_expand,
    plan_settling,
    plan_shrink,
    proposed_isr,
)

LEADER, SECOND, THIRD = 1, 2, 3
REPLICAS = (LEADER, SECOND, THIRD)
CAUGHT_UP = FollowerProgress(log_end_offset=10, caught_up_at=100.0, broker_epoch=7)


def expand(
    state, progress, *, high_watermark=10, start=0, epochs=None, keeps_up=lambda known: True
):
    known = {SECOND: 7, THIRD: 7} if epochs is None else epochs
    return plan_expand(
        state,
        REPLICAS,
        progress,
        high_watermark=high_watermark,
        epoch_start_offset=start,
        broker_epoch_of=lambda broker: known.get(broker, -1),
        keeps_up=keeps_up,
    )


def shrink(state, progress, *, now, end=20, max_lag=30.0):
    return plan_shrink(
        state, LEADER, progress, leader_end_offset=end, now=now, max_lag_seconds=max_lag
    )


def test_the_high_watermark_counts_those_who_may_have_come_in():
    state = PendingExpand(isr=(LEADER, SECOND), new=(THIRD,))

    assert set(state.largest) == {LEADER, SECOND, THIRD}
    assert set(state.smallest) == {LEADER, SECOND}
    assert set(proposed_isr(state)) == {LEADER, SECOND, THIRD}


def test_the_high_watermark_counts_those_who_may_still_be_in():
    state = PendingShrink(isr=(LEADER, SECOND, THIRD), out=(THIRD,))

    assert set(state.largest) == {LEADER, SECOND, THIRD}
    assert set(state.smallest) == {LEADER, SECOND}
    assert set(proposed_isr(state)) == {LEADER, SECOND}


def test_a_follower_at_the_high_watermark_comes_in():
    assert expand(Committed(isr=(LEADER,)), {SECOND: CAUGHT_UP}) == PendingExpand(
        isr=(LEADER,), new=(SECOND,)
    )


def test_a_follower_that_would_be_let_go_at_once_stays_out():
    state = Committed(isr=(LEADER,))
    assert expand(state, {SECOND: CAUGHT_UP}, keeps_up=lambda known: False) is None


def test_the_set_is_written_anew_for_eligible_leaders_that_are_left_over():
    state = Committed(isr=(LEADER, SECOND))
    settled = PendingExpand(isr=(LEADER, SECOND), new=())
    assert plan_settling(state, has_eligible=True, min_in_sync=2) == settled
    assert plan_settling(state, has_eligible=False, min_in_sync=2) is None
    assert plan_settling(state, has_eligible=True, min_in_sync=3) is None
    assert plan_settling(settled, has_eligible=True, min_in_sync=2) is None


def test_a_follower_short_of_the_high_watermark_stays_out():
    assert expand(Committed(isr=(LEADER,)), {SECOND: CAUGHT_UP}, high_watermark=11) is None


def test_a_follower_that_has_not_reached_the_leaders_epoch_stays_out():
    assert not has_caught_up(CAUGHT_UP, high_watermark=3, epoch_start_offset=11)
    assert expand(Committed(isr=(LEADER,)), {SECOND: CAUGHT_UP}, start=11) is None


def test_a_broker_that_was_restarted_since_its_fetch_stays_out():
    assert expand(Committed(isr=(LEADER,)), {SECOND: CAUGHT_UP}, epochs={SECOND: 8}) is None


def test_a_dead_broker_stays_out_even_if_nothing_is_known_of_it():
    unheard = CAUGHT_UP._replace(broker_epoch=-1)
    assert expand(Committed(isr=(LEADER,)), {SECOND: unheard}, epochs={}) is None


def test_a_broker_without_a_replica_stays_out():
    assert expand(Committed(isr=(LEADER,)), {9: CAUGHT_UP}, epochs={9: 7}) is None


def test_one_proposal_at_a_time():
    pending = PendingShrink(isr=(LEADER, SECOND), out=(SECOND,))

    assert expand(pending, {THIRD: CAUGHT_UP}) is None
    assert shrink(pending, {}, now=1e9) is None


def test_a_follower_that_lags_for_too_long_goes():
    progress = {SECOND: CAUGHT_UP, THIRD: CAUGHT_UP._replace(caught_up_at=95.0)}

    assert shrink(Committed(isr=REPLICAS), progress, now=130.0) == PendingShrink(
        isr=REPLICAS, out=(THIRD,)
    )


def test_a_follower_that_has_everything_stays_however_long_it_is_silent():
    assert shrink(Committed(isr=(LEADER, SECOND)), {SECOND: CAUGHT_UP}, now=1e9, end=10) is None


def test_a_member_that_is_no_replica_any_more_goes():
    pending = shrink(Committed(isr=(LEADER, 9)), {}, now=0.0)
    assert pending == PendingShrink(isr=(LEADER, 9), out=(9,))


brokers = st.sets(st.integers(2, 6))


@given(brokers, brokers)
def test_the_smallest_set_is_within_the_proposed_and_both_are_within_the_largest(isr, others):
    committed = (LEADER, *sorted(isr))
    states = [
        Committed(isr=committed),
        PendingExpand(isr=committed, new=tuple(sorted(others - isr))),
        PendingShrink(isr=committed, out=tuple(sorted(others & isr))),
    ]
    for state in states:
        assert set(state.smallest) <= set(proposed_isr(state)) <= set(state.largest)
        assert set(state.smallest) <= set(state.isr) <= set(state.largest)
        assert LEADER in state.smallest
