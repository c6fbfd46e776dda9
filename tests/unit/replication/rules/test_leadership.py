"""What a leader knows of its followers in one epoch, and whom it waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.cluster.rules.metadata_image import PartitionState
from moldau.replication.rules.isr import (
    UNKNOWN_OFFSET,
    Committed,
    FollowerFetch,
    FollowerProgress,
    PendingExpand,
    PendingShrink,
)
from moldau.replication.rules.replica import JOINING_SECONDS, SUSPICIOUS_REPEATS, Leadership

US, SECOND, THIRD = 1, 2, 3
EPOCH = 7
"""Of every broker."""
BEGAN_AT = 100.0
NEVER = float("-inf")


def state_of(*isr: int, version: int = 4, elr: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(
        leader=US, leader_epoch=5, isr=isr, replicas=(US, SECOND, THIRD), version=version, elr=elr
    )


def leads(*isr: int, start_offset: int = 0, elr: tuple[int, ...] = ()) -> Leadership:
    return Leadership(
        US, state_of(*(isr or (US, SECOND)), elr=elr), start_offset=start_offset, now=BEGAN_AT
    )


def fetch(
    leadership: Leadership,
    follower: int,
    offset: int,
    *,
    end: int = 10,
    high_watermark: int = 10,
    at: float = BEGAN_AT,
    log_start: int = 0,
    epoch: int = EPOCH,
) -> bool:
    made = FollowerFetch(offset, log_start, epoch, end, high_watermark, at)
    return leadership.note_fetch(follower, made, EPOCH)


def epoch_of(broker: int) -> int:
    return EPOCH


def second_lives(broker: int) -> int:
    return EPOCH if broker == SECOND else -1


# Newer states


def test_at_the_beginning_members_of_the_set_have_time_to_show_up() -> None:
    leadership = leads()
    assert list(leadership.progress) == [SECOND, THIRD]
    assert leadership.progress[SECOND].caught_up_at == BEGAN_AT
    assert leadership.progress[THIRD].caught_up_at == NEVER


def test_who_comes_into_the_set_has_time_to_show_up() -> None:
    leadership = leads()
    fetch(leadership, THIRD, 9)
    leadership.update(state_of(US, SECOND, THIRD), 200.0)
    assert leadership.progress[THIRD].caught_up_at == 200.0
    assert leadership.progress[THIRD].log_end_offset == 9
    assert leadership.progress[SECOND].caught_up_at == BEGAN_AT
    assert leadership.isr == Committed(isr=(US, SECOND, THIRD))


def test_who_is_not_in_the_set_of_a_newer_state_has_to_fetch_again() -> None:
    leadership = leads()
    for follower in (SECOND, THIRD):
        fetch(leadership, follower, 9)
    leadership.update(state_of(US, SECOND), 200.0)
    assert leadership.progress[SECOND].log_end_offset == 9
    assert leadership.progress[THIRD].log_end_offset == UNKNOWN_OFFSET


def test_another_replica_begins_with_nothing_and_one_that_goes_is_forgotten() -> None:
    leadership = leads()
    fetch(leadership, SECOND, 9)
    leadership.set_replicas((US, SECOND, 4), 300.0)
    assert leadership.state.replicas == (US, SECOND, 4)
    assert leadership.progress[SECOND].log_end_offset == 9
    assert leadership.progress[4] == FollowerProgress()
    assert THIRD not in leadership.progress


# Fetches


def test_a_fetch_counts_that_was_made_in_the_present_life_of_a_replicas_broker() -> None:
    leadership = leads()
    assert fetch(leadership, SECOND, 5)
    assert not fetch(leadership, 9, 5)
    assert not fetch(leadership, SECOND, 6, epoch=EPOCH - 1)
    no_epoch = FollowerFetch(6, 0, -1, 10, 10, BEGAN_AT)
    assert not leadership.note_fetch(SECOND, no_epoch, -1)
    assert leadership.progress[SECOND].log_end_offset == 5
    made = FollowerFetch(6, 0, 0, 10, 10, BEGAN_AT)
    assert leadership.note_fetch(SECOND, made, 0)


def test_a_follower_at_rest_is_caught_up_until_it_was_heard_of_last() -> None:
    leadership = leads()
    fetch(leadership, SECOND, 10)
    leadership.note_idle(SECOND, 150.0)
    assert leadership.progress[SECOND].caught_up_at == 150.0
    leadership.note_idle(9, 150.0)
    assert 9 not in leadership.progress


def test_a_follower_in_sync_that_goes_on_from_the_same_place_is_at_rest() -> None:
    leadership = leads()
    for follower in (SECOND, THIRD):
        fetch(leadership, follower, 10, log_start=2)
    assert leadership.is_at_rest(SECOND, 10, 2, EPOCH)
    assert not leadership.is_at_rest(SECOND, 11, 2, EPOCH)
    assert not leadership.is_at_rest(SECOND, 10, 3, EPOCH)
    assert not leadership.is_at_rest(SECOND, 10, 2, EPOCH + 1)
    assert not leadership.is_at_rest(THIRD, 10, 2, EPOCH)
    assert not leadership.is_at_rest(9, -1, -1, -1)


def test_the_same_offset_again_and_again_is_suspicious() -> None:
    leadership = leads()
    for _ in range(2):
        for _ in range(SUSPICIOUS_REPEATS - 1):
            assert not leadership.note_given(SECOND, 40)
        assert leadership.note_given(SECOND, 40)
    assert not leadership.note_given(SECOND, 40)
    assert not leadership.note_given(SECOND, 41)
    assert not leadership.note_given(THIRD, 41)
    assert not leadership.note_given(SECOND, 41)
    assert not leadership.note_given(SECOND, 40)
    assert not leadership.note_given(SECOND, 41)
    assert not leadership.note_given(SECOND, 41)
    assert leadership.note_given(SECOND, 41)


def test_what_a_broker_held_is_forgotten_with_its_life() -> None:
    leadership = leads()
    fetch(leadership, SECOND, 10)
    leadership.forget(SECOND)
    leadership.forget(9)
    assert leadership.progress[SECOND].log_end_offset == UNKNOWN_OFFSET
    assert leadership.progress[SECOND].caught_up_at == BEGAN_AT


# The follower that is about to come in


def nearly_in(leadership: Leadership, *, offset: int = 9, at: float = BEGAN_AT + 1) -> bool:
    """Two fetches, of which the second says that all is there that was committed at the first."""
    fetch(leadership, THIRD, offset - 2, end=offset, high_watermark=offset, at=at - 1)
    fetch(leadership, THIRD, offset, end=offset + 1, high_watermark=offset + 1, at=at)
    return leadership.joining_until is not None


def test_the_high_watermark_waits_for_a_follower_that_is_one_fetch_behind() -> None:
    leadership = leads()
    fetch(leadership, SECOND, 12)
    assert leadership.in_sync_ends() == [12]
    assert nearly_in(leadership)
    assert leadership.joining_until == BEGAN_AT + 1 + JOINING_SECONDS
    assert leadership.in_sync_ends() == [12, 9]


def test_it_waits_for_one_at_a_time() -> None:
    leadership = leads(US)
    assert nearly_in(leadership)
    fetch(leadership, SECOND, 7, end=9, high_watermark=9, at=BEGAN_AT + 5)
    fetch(leadership, SECOND, 9, end=10, high_watermark=10, at=BEGAN_AT + 6)
    assert leadership.joining_until == BEGAN_AT + 1 + JOINING_SECONDS
    assert leadership.in_sync_ends() == [9]


def test_it_does_not_wait_for_one_in_sync_or_at_the_high_watermark_or_before_the_epoch() -> None:
    assert not nearly_in(leads(US, SECOND, THIRD))
    assert nearly_in(leads(start_offset=9))
    assert not nearly_in(leads(start_offset=10))
    leadership = leads()
    fetch(leadership, THIRD, 7, end=9, high_watermark=9)
    fetch(leadership, THIRD, 9, end=10, high_watermark=9)
    assert leadership.joining_until is None


def test_it_does_not_wait_for_one_that_is_more_than_a_fetch_behind() -> None:
    leadership = leads()
    fetch(leadership, THIRD, 5, end=9, high_watermark=9)
    fetch(leadership, THIRD, 8, end=10, high_watermark=10)
    assert leadership.joining_until is None


def test_who_did_not_come_is_not_waited_for_again_at_once() -> None:
    leadership = leads()
    assert nearly_in(leadership)
    until = leadership.joining_until
    assert until is not None
    leadership.give_up_joining(until - 0.5)
    assert leadership.joining_until == until
    leadership.give_up_joining(until)
    assert leadership.joining_until is None
    assert not nearly_in(leadership, offset=20, at=until + 29)
    assert nearly_in(leadership, offset=30, at=until + 30)


def test_a_newer_state_ends_the_wait() -> None:
    leadership = leads()
    assert nearly_in(leadership)
    leadership.update(state_of(US, SECOND), 200.0)
    assert leadership.joining_until is None


def test_the_wait_ends_with_the_proposal_to_take_the_follower_in() -> None:
    leadership = leads()
    assert nearly_in(leadership)
    fetch(leadership, THIRD, 11, end=11)
    assert leadership.propose_expand(11, 11, BEGAN_AT, 10.0, 1, epoch_of) is not None
    assert leadership.isr == PendingExpand(isr=(US, SECOND), new=(THIRD,))
    assert leadership.joining_until is None


def test_the_wait_goes_on_while_another_is_let_go() -> None:
    leadership = leads()
    assert nearly_in(leadership)
    assert leadership.propose_shrink(11, BEGAN_AT + 11, 10.0, 1) is not None
    assert leadership.isr == PendingShrink(isr=(US, SECOND), out=(SECOND,))
    assert leadership.joining_until is not None


# What followers have


def test_those_who_may_lead_next_have_everything_before_an_offset() -> None:
    leadership = leads(US, SECOND, elr=(THIRD,))
    assert leadership.followers_at(10) == ()
    fetch(leadership, SECOND, 10)
    fetch(leadership, THIRD, 9)
    assert leadership.followers_at(11) == ()
    assert leadership.followers_at(10) == (SECOND,)
    assert leadership.followers_at(9) == (SECOND, THIRD)


def test_the_low_watermark_is_that_of_the_replicas_that_live() -> None:
    leadership = leads()
    assert leadership.low_watermark(8, epoch_of) == UNKNOWN_OFFSET
    assert leadership.low_watermark(8, lambda broker: -1) == 8
    fetch(leadership, SECOND, 10, log_start=3)
    assert leadership.low_watermark(8, second_lives) == 3
    assert leadership.low_watermark(2, second_lives) == 2


def test_consumers_may_read_from_followers_in_sync_that_live() -> None:
    leadership = leads()
    for follower in (SECOND, THIRD):
        fetch(leadership, follower, 10, log_start=3)
    assert leadership.readable_followers({}) == {}
    (follower,) = leadership.readable_followers({SECOND: "a", THIRD: "b"}).items()
    broker, readable = follower
    assert (broker, readable.rack) == (SECOND, "a")
    assert (readable.log_start_offset, readable.log_end_offset) == (3, 10)
    assert readable.caught_up_at == BEGAN_AT


# The in-sync set


def test_a_follower_at_the_high_watermark_and_the_epochs_start_may_come_in() -> None:
    leadership = leads(start_offset=5)
    assert not leadership.may_expand_by(THIRD, -5)
    fetch(leadership, THIRD, 5)
    fetch(leadership, SECOND, 10)
    assert leadership.may_expand_by(THIRD, 5)
    assert not leadership.may_expand_by(THIRD, 6)
    assert not leadership.may_expand_by(SECOND, 5)
    assert not leadership.may_expand_by(9, 5)
    assert not leads(start_offset=-1).may_expand_by(THIRD, -1)


def test_nobody_comes_in_while_a_proposal_is_under_way() -> None:
    leadership = leads()
    fetch(leadership, THIRD, 10)
    assert leadership.propose_expand(10, 10, BEGAN_AT, 10.0, 1, epoch_of) is not None
    assert not leadership.may_expand_by(THIRD, 5)


def test_the_high_watermark_moves_with_enough_in_sync_and_no_eligible_leader() -> None:
    assert leads().may_commit(2)
    assert not leads().may_commit(3)
    assert not leads(elr=(THIRD,)).may_commit(2)


@pytest.mark.parametrize(("min_in_sync", "comes_in"), [(2, True), (3, False)])
def test_who_lags_comes_in_only_while_the_high_watermark_moves(
    min_in_sync: int, comes_in: bool
) -> None:
    leadership = leads()
    fetch(leadership, THIRD, 10, end=50)
    proposed = leadership.propose_expand(10, 50, BEGAN_AT, 10.0, min_in_sync, epoch_of)
    assert (proposed is not None) is comes_in
    if proposed is not None:
        assert proposed.isr == (US, SECOND, THIRD)


def test_a_set_is_written_anew_for_eligible_leaders_that_are_left_over() -> None:
    proposed = leads(elr=(THIRD,)).propose_expand(0, 0, BEGAN_AT, 10.0, 2, epoch_of)
    assert proposed is not None
    assert (proposed.isr, proposed.elr) == ((US, SECOND), ())
    assert leads(elr=(THIRD,)).propose_expand(0, 0, BEGAN_AT, 10.0, 3, epoch_of) is None
    assert leads().propose_expand(0, 0, BEGAN_AT, 10.0, 2, epoch_of) is None


def test_nobody_who_keeps_up_is_let_go() -> None:
    leadership = leads()
    assert leadership.propose_shrink(10, BEGAN_AT + 10, 10.0, 1) is None
    assert leadership.isr == Committed(isr=(US, SECOND))


def test_a_proposal_is_withdrawn_over_the_version_it_was_made_for() -> None:
    leadership = leads()
    proposed = leadership.propose_shrink(10, BEGAN_AT + 11, 10.0, 1)
    assert proposed is not None
    leadership.withdraw(leadership.state.version + 1)
    assert isinstance(leadership.isr, PendingShrink)
    leadership.withdraw(leadership.state.version)
    assert leadership.isr == Committed(isr=(US, SECOND))


def test_the_set_of_a_state_with_other_replicas_stays() -> None:
    leadership = leads()
    former = leadership.state
    leadership.set_replicas((US, THIRD), 300.0)
    assert leadership.state == replace(former, replicas=(US, THIRD))
