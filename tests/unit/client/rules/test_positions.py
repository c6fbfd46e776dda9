"""Positions of partitions: where they come from, and what makes them void."""

from __future__ import annotations

import pytest

from moldau.client.consumer.rules.fetch_buffer import Position
from moldau.client.consumer.rules.subscription_state import FetchState, SubscriptionState
from moldau.config.option import OffsetReset, ResetTo
from moldau.errors import LogTruncatedError, NoOffsetError, NotAssignedError, OffsetOutOfRangeError
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def make_table(to: ResetTo = ResetTo.LATEST, *, has_group: bool = True) -> SubscriptionState:
    subscriptions = SubscriptionState(OffsetReset(to, HOUR_MS), has_group=has_group)
    subscriptions.add([ZERO])
    return subscriptions


def test_a_partition_of_a_group_begins_where_the_group_was() -> None:
    subscriptions = make_table()
    state = subscriptions.require(ZERO)
    assert (state.fetch_state, state.is_fetchable) == (FetchState.INITIALIZING, False)
    subscriptions.found_committed(ZERO, Position(42, 3))
    assert (state.fetch_state, state.is_fetchable) == (FetchState.FETCHING, True)
    assert (state.position, state.fetch_offset) == ((42, 3), 42)


@pytest.mark.parametrize(
    ("to", "timestamp"),
    [
        (ResetTo.EARLIEST, EARLIEST_TIMESTAMP),
        (ResetTo.LATEST, LATEST_TIMESTAMP),
        (ResetTo.DURATION, NOW_MS - HOUR_MS),
    ],
)
def test_without_an_offset_the_policy_says_where_to_begin(to: ResetTo, timestamp: int) -> None:
    subscriptions = make_table(to)
    state = subscriptions.require(ZERO)
    subscriptions.found_committed(ZERO, None)
    assert state.fetch_state is FetchState.AWAIT_RESET
    assert subscriptions.choose_timestamp(state, NOW_MS) == timestamp
    subscriptions.found_offset(ZERO, state.epoch, Position(7))
    assert (state.fetch_state, state.position) == (FetchState.FETCHING, (7, -1))


def test_the_policy_can_be_to_raise() -> None:
    subscriptions = make_table(ResetTo.ERROR)
    for _ in range(2):
        with pytest.raises(NoOffsetError, match="t-0"):
            subscriptions.found_committed(ZERO, None)
    subscriptions.seek(ZERO, Position(5))
    assert subscriptions.require(ZERO).is_fetchable


def test_without_a_group_the_policy_is_asked_at_once() -> None:
    subscriptions = make_table(ResetTo.EARLIEST, has_group=False)
    assert subscriptions.require(ZERO).fetch_state is FetchState.AWAIT_RESET


def test_an_answer_that_was_overtaken_by_a_seek_does_not_count() -> None:
    subscriptions = make_table()
    state = subscriptions.require(ZERO)
    subscriptions.request_reset(ZERO, EARLIEST_TIMESTAMP)
    asked_under = state.epoch
    subscriptions.seek(ZERO, Position(5))
    subscriptions.found_offset(ZERO, asked_under, Position(0))
    subscriptions.found_committed(ZERO, Position(9))
    assert state.position == (5, -1)


def test_every_seek_makes_what_was_fetched_void() -> None:
    subscriptions = make_table()
    state = subscriptions.require(ZERO)
    epochs = [state.epoch]
    for move in (
        lambda: subscriptions.seek(ZERO, Position(5)),
        lambda: subscriptions.seek(ZERO, Position(5)),
        lambda: subscriptions.request_reset(ZERO, EARLIEST_TIMESTAMP),
        lambda: subscriptions.found_offset(ZERO, state.epoch, Position(0)),
        lambda: subscriptions.lose_offset(ZERO, state.epoch, 0),
    ):
        move()
        epochs.append(state.epoch)
    assert len(set(epochs)) == len(epochs)


def test_reading_moves_the_position_under_the_same_epoch() -> None:
    subscriptions = make_table()
    subscriptions.seek(ZERO, Position(5))
    epoch = subscriptions.require(ZERO).epoch
    subscriptions.advance({ZERO: Position(9, 1), ONE: Position(3)})
    state = subscriptions.require(ZERO)
    assert (state.position, state.epoch, state.fetch_offset) == ((9, 1), epoch, 5)


def test_a_commit_moves_the_position_on_but_never_back() -> None:
    subscriptions = make_table()
    subscriptions.seek(ZERO, Position(5))
    subscriptions.advance_at_least({ZERO: Position(9, 1), ONE: Position(3)})
    subscriptions.advance_at_least({ZERO: Position(7, 1)})
    assert subscriptions.require(ZERO).position == (9, 1)


def test_an_offset_that_is_gone_leads_to_the_policy() -> None:
    subscriptions = make_table(ResetTo.EARLIEST)
    subscriptions.seek(ZERO, Position(5))
    state = subscriptions.require(ZERO)
    subscriptions.lose_offset(ZERO, state.epoch - 1, 5)  # of an older position
    assert state.fetch_state is FetchState.FETCHING
    subscriptions.lose_offset(ZERO, state.epoch, 5)
    assert (state.fetch_state, state.position) == (FetchState.AWAIT_RESET, None)


def test_an_offset_that_is_gone_is_raised_if_that_is_the_policy() -> None:
    subscriptions = make_table(ResetTo.ERROR)
    subscriptions.seek(ZERO, Position(5))
    with pytest.raises(OffsetOutOfRangeError, match="offset 5 of t-0"):
        subscriptions.lose_offset(ZERO, subscriptions.require(ZERO).epoch, 5)


def test_paused_and_held_partitions_are_not_fetched() -> None:
    subscriptions = make_table()
    subscriptions.seek(ZERO, Position(5))
    state = subscriptions.require(ZERO)
    state.is_paused = True
    assert (state.is_fetchable, subscriptions.paused) == (False, {ZERO})
    state.is_paused, state.is_held = False, True
    assert not state.is_fetchable


def test_what_is_not_assigned_is_an_error() -> None:
    subscriptions = make_table()
    subscriptions.remove([ZERO])
    with pytest.raises(NotAssignedError, match="t-0"):
        subscriptions.seek(ZERO, Position(1))
    assert subscriptions.find(ZERO) is None


# --- new leaders --------------------------------------------------------------------------------


def validating(to: ResetTo = ResetTo.LATEST) -> SubscriptionState:
    """Read up to 10 in epoch 3, fetched up to 15; then leader 4 came."""
    subscriptions = make_table(to)
    subscriptions.seek(ZERO, Position(10, 3))
    state = subscriptions.require(ZERO)
    state.fetch_offset = 15
    subscriptions.leader_changed(ZERO, 4)
    assert state.fetch_state is FetchState.AWAIT_VALIDATION
    return subscriptions


def test_the_leader_that_wrote_what_was_read_need_not_be_asked() -> None:
    subscriptions = make_table()
    subscriptions.seek(ZERO, Position(10, 3))
    subscriptions.leader_changed(ZERO, 3)
    assert subscriptions.require(ZERO).is_fetchable


def test_a_position_without_an_epoch_cannot_be_validated() -> None:
    subscriptions = make_table()
    subscriptions.seek(ZERO, Position(10))
    subscriptions.leader_changed(ZERO, 4)
    assert subscriptions.require(ZERO).is_fetchable


def test_what_was_fetched_counts_also_when_the_program_has_not_dealt_with_it() -> None:
    subscriptions = make_table()
    subscriptions.seek(ZERO, Position(0))
    state = subscriptions.require(ZERO)
    state.fetch_offset, state.fetch_epoch = 15, 3
    subscriptions.leader_changed(ZERO, 4)
    assert state.fetch_state is FetchState.AWAIT_VALIDATION


def test_a_log_that_has_all_that_was_fetched_is_read_on() -> None:
    subscriptions = validating()
    state = subscriptions.require(ZERO)
    epoch = state.epoch
    assert not subscriptions.validated(ZERO, epoch, 4, Position(15, 3))
    assert (state.fetch_state, state.epoch, state.fetch_offset) == (FetchState.FETCHING, epoch, 15)
    subscriptions.leader_changed(ZERO, 4)
    assert state.fetch_state is FetchState.FETCHING


def test_what_was_fetched_ahead_of_the_truncation_is_fetched_again() -> None:
    subscriptions = validating()
    state = subscriptions.require(ZERO)
    assert subscriptions.validated(ZERO, state.epoch, 4, Position(12, 3))
    assert (state.position, state.fetch_offset) == ((10, 3), 10)


def test_a_position_behind_the_truncation_goes_back_to_it() -> None:
    subscriptions = validating()
    state = subscriptions.require(ZERO)
    assert subscriptions.validated(ZERO, state.epoch, 4, Position(8, 3))
    assert (state.position, state.fetch_offset) == ((8, 3), 8)


def test_a_log_that_does_not_know_the_epoch_leads_to_the_policy() -> None:
    subscriptions = validating()
    assert subscriptions.validated(ZERO, subscriptions.require(ZERO).epoch, 4, None)
    assert subscriptions.require(ZERO).fetch_state is FetchState.AWAIT_RESET


def test_a_truncation_is_raised_if_that_is_the_policy() -> None:
    subscriptions = validating(ResetTo.ERROR)
    with pytest.raises(LogTruncatedError) as raised:
        subscriptions.validated(ZERO, subscriptions.require(ZERO).epoch, 4, Position(8, 3))
    assert raised.value.offset == 8
    assert subscriptions.require(ZERO).fetch_state is FetchState.AWAIT_VALIDATION
