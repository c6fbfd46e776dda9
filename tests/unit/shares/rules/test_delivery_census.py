"""How many records are where on their way."""

from __future__ import annotations

from moldau.shares.rules.delivery_census import take_census
from moldau.shares.rules.delivery_state import DeliveryState
from moldau.shares.rules.offset_runs import Lot, OffsetRun

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
DONE, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def test_records_are_counted_by_what_has_become_of_them():
    runs = [
        OffsetRun(10, 13, Lot(ACQUIRED, 1, "a", 105.0)),
        OffsetRun(13, 14, Lot(DONE, 4)),
        OffsetRun(14, 19, Lot(AVAILABLE, 2)),
        OffsetRun(19, 21, Lot(ACQUIRED, 3, "b", 102.5)),
        OffsetRun(21, 25, Lot(ARCHIVED, 9)),
        OffsetRun(25, 26, Lot(AVAILABLE, 0)),
    ]
    census = take_census(runs, now=100.0)
    assert (census.acquired, census.waiting, census.done) == (5, 6, 5)
    assert (census.redelivered, census.most_deliveries) == (7, 3)
    assert census.oldest_offset == 10
    assert census.members == {"a": 3, "b": 2}
    assert census.lock_seconds == 2.5


def test_where_all_is_done_nothing_is_old():
    census = take_census([OffsetRun(0, 5, Lot(DONE, 4))], now=100.0)
    assert census.oldest_offset is None
    assert census.lock_seconds is None
    assert take_census([], now=0.0).acquired == 0


def test_a_lock_that_is_over_lasts_no_longer():
    assert take_census([OffsetRun(0, 1, Lot(ACQUIRED, 1, "a", 5.0))], 9.0).lock_seconds == 0.0
