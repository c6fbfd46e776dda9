"""Positions of partitions: where they come from, and what makes them void."""

from __future__ import annotations

import pytest

from moldau.client.consumer.rules.fetch_buffer import Position
from moldau.client.consumer.rules.subscription_state import FetchState, SubscriptionState
from moldau.config.option import OffsetReset, ResetTo
from moldau.errors import (
    LogTruncatedError,
    NoOffsetError,
    NotAssignedError,
    OffsetOutOfRangeError,
)
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def make_table(to: ResetTo = ResetTo.LATEST, *, has_group: bool = True) -> SubscriptionState:
    table = SubscriptionState(OffsetReset(to, HOUR_MS), has_group=has_group)
    table.add([ZERO])
    return table


def test_a_partition_of_a_group_begins_where_the_group_was() -> None:
    table = make_table()
    state = table.require(ZERO)
    assert (state.need, state.is_fetchable) == (FetchState.COMMITTED, False)
    table.found_committed(ZERO, Position(42, 3))
    assert (state.need, state.is_fetchable) == (FetchState.READY, True)
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
    table = make_table(to)
    state = table.require(ZERO)
    table.found_committed(ZERO, None)
    assert state.need is FetchState.RESET
    assert table.choose_timestamp(state, NOW_MS) == timestamp
    table.found_offset(ZERO, state.epoch, Position(7))
    assert (state.need, state.position) == (FetchState.READY, (7, -1))


def test_the_policy_can_be_to_raise() -> None:
    table = make_table(ResetTo.ERROR)
    for _ in range(2):
        with pytest.raises(NoOffsetError, match="t-0"):
            table.found_committed(ZERO, None)
    table.seek(ZERO, Position(5))
    assert table.require(ZERO).is_fetchable


def test_without_a_group_the_policy_is_asked_at_once() -> None:
    table = make_table(ResetTo.EARLIEST, has_group=False)
    assert table.require(ZERO).need is FetchState.RESET


def test_an_answer_that_was_overtaken_by_a_seek_does_not_count() -> None:
    table = make_table()
    state = table.require(ZERO)
    table.request_reset(ZERO, EARLIEST_TIMESTAMP)
    asked_under = state.epoch
    table.seek(ZERO, Position(5))
    table.found_offset(ZERO, asked_under, Position(0))
    table.found_committed(ZERO, Position(9))
    assert state.position == (5, -1)


def test_every_seek_makes_what_was_fetched_void() -> None:
    table = make_table()
    state = table.require(ZERO)
    epochs = [state.epoch]
    for move in (
        lambda: table.seek(ZERO, Position(5)),
        lambda: table.seek(ZERO, Position(5)),
        lambda: table.request_reset(ZERO, EARLIEST_TIMESTAMP),
        lambda: table.found_offset(ZERO, state.epoch, Position(0)),
        lambda: table.lose_offset(ZERO, state.epoch, 0),
    ):
        move()
        epochs.append(state.epoch)
    assert len(set(epochs)) == len(epochs)


def test_reading_moves_the_position_under_the_same_epoch() -> None:
    table = make_table()
    table.seek(ZERO, Position(5))
    epoch = table.require(ZERO).epoch
    table.advance({ZERO: Position(9, 1), ONE: Position(3)})
    state = table.require(ZERO)
    assert (state.position, state.epoch, state.fetch_offset) == ((9, 1), epoch, 5)


def test_a_commit_moves_the_position_on_but_never_back() -> None:
    table = make_table()
    table.seek(ZERO, Position(5))
    table.advance_at_least({ZERO: Position(9, 1), ONE: Position(3)})
    table.advance_at_least({ZERO: Position(7, 1)})
    assert table.require(ZERO).position == (9, 1)


def test_an_offset_that_is_gone_leads_to_the_policy() -> None:
    table = make_table(ResetTo.EARLIEST)
    table.seek(ZERO, Position(5))
    state = table.require(ZERO)
    table.lose_offset(ZERO, state.epoch - 1, 5)  # of an older position
    assert state.need is FetchState.READY
    table.lose_offset(ZERO, state.epoch, 5)
    assert (state.need, state.position) == (FetchState.RESET, None)


def test_an_offset_that_is_gone_is_raised_if_that_is_the_policy() -> None:
    table = make_table(ResetTo.ERROR)
    table.seek(ZERO, Position(5))
    with pytest.raises(OffsetOutOfRangeError, match="offset 5 of t-0"):
        table.lose_offset(ZERO, table.require(ZERO).epoch, 5)


def test_paused_and_held_partitions_are_not_fetched() -> None:
    table = make_table()
    table.seek(ZERO, Position(5))
    state = table.require(ZERO)
    state.is_paused = True
    assert (state.is_fetchable, table.paused) == (False, {ZERO})
    state.is_paused, state.is_held = False, True
    assert not state.is_fetchable


def test_what_is_not_assigned_is_an_error() -> None:
    table = make_table()
    table.remove([ZERO])
    with pytest.raises(NotAssignedError, match="t-0"):
        table.seek(ZERO, Position(1))
    assert table.find(ZERO) is None


# --- new leaders --------------------------------------------------------------------------------


def validating(to: ResetTo = ResetTo.LATEST) -> SubscriptionState:
    """Read up to 10 in epoch 3, fetched up to 15; then leader 4 came."""
    table = make_table(to)
    table.seek(ZERO, Position(10, 3))
    state = table.require(ZERO)
    state.fetch_offset = 15
    table.leader_changed(ZERO, 4)
    assert state.need is FetchState.VALIDATION
    return table


def test_the_leader_that_wrote_what_was_read_need_not_be_asked() -> None:
    table = make_table()
    table.seek(ZERO, Position(10, 3))
    table.leader_changed(ZERO, 3)
    assert table.require(ZERO).is_fetchable


def test_a_position_without_an_epoch_cannot_be_validated() -> None:
    table = make_table()
    table.seek(ZERO, Position(10))
    table.leader_changed(ZERO, 4)
    assert table.require(ZERO).is_fetchable


def test_what_was_fetched_counts_also_when_the_program_has_not_dealt_with_it() -> None:
    table = make_table()
    table.seek(ZERO, Position(0))
    state = table.require(ZERO)
    state.fetch_offset, state.fetch_epoch = 15, 3
    table.leader_changed(ZERO, 4)
    assert state.need is FetchState.VALIDATION


def test_a_log_that_has_all_that_was_fetched_is_read_on() -> None:
    table = validating()
    state = table.require(ZERO)
    epoch = state.epoch
    assert not table.validated(ZERO, epoch, 4, Position(15, 3))
    assert (state.need, state.epoch, state.fetch_offset) == (FetchState.READY, epoch, 15)
    table.leader_changed(ZERO, 4)
    assert state.need is FetchState.READY


def test_what_was_fetched_ahead_of_the_truncation_is_fetched_again() -> None:
    table = validating()
    state = table.require(ZERO)
    assert table.validated(ZERO, state.epoch, 4, Position(12, 3))
    assert (state.position, state.fetch_offset) == ((10, 3), 10)


def test_a_position_behind_the_truncation_goes_back_to_it() -> None:
    table = validating()
    state = table.require(ZERO)
    assert table.validated(ZERO, state.epoch, 4, Position(8, 3))
    assert (state.position, state.fetch_offset) == ((8, 3), 8)


def test_a_log_that_does_not_know_the_epoch_leads_to_the_policy() -> None:
    table = validating()
    assert table.validated(ZERO, table.require(ZERO).epoch, 4, None)
    assert table.require(ZERO).need is FetchState.RESET


def test_a_truncation_is_raised_if_that_is_the_policy() -> None:
    table = validating(ResetTo.ERROR)
    with pytest.raises(LogTruncatedError) as raised:
        table.validated(ZERO, table.require(ZERO).epoch, 4, Position(8, 3))
    assert raised.value.offset == 8
    assert table.require(ZERO).need is FetchState.VALIDATION
