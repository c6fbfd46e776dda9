"""How many records are where on their way."""

from __future__ import annotations

from moldau.coordinators.shares.rules.in_flight import take_census
from moldau.coordinators.shares.rules.in_flight_state import InFlightBatch, InFlightRecordState
from moldau.coordinators.shares.rules.records import DeliveryState

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
DONE, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def test_records_are_counted_by_what_has_become_of_them():
    runs = [
        InFlightBatch(10, 13, InFlightRecordState(ACQUIRED, 1, "a", 105.0)),
        InFlightBatch(13, 14, InFlightRecordState(DONE, 4)),
        InFlightBatch(14, 19, InFlightRecordState(AVAILABLE, 2)),
        InFlightBatch(19, 21, InFlightRecordState(ACQUIRED, 3, "b", 102.5)),
        InFlightBatch(21, 25, InFlightRecordState(ARCHIVED, 9)),
        InFlightBatch(25, 26, InFlightRecordState(AVAILABLE, 0)),
    ]
    census = take_census(runs, now=100.0)
    assert (census.acquired, census.waiting, census.done) == (5, 6, 5)
    assert (census.redelivered, census.most_deliveries) == (7, 3)
    assert census.oldest_offset == 10
    assert census.members == {"a": 3, "b": 2}
    assert census.lock_seconds == 2.5


def test_where_all_is_done_nothing_is_old():
    census = take_census([InFlightBatch(0, 5, InFlightRecordState(DONE, 4))], now=100.0)
    assert census.oldest_offset is None
    assert census.lock_seconds is None
    assert take_census([], now=0.0).acquired == 0


def test_a_lock_that_is_over_lasts_no_longer():
    assert (
        take_census(
            [InFlightBatch(0, 1, InFlightRecordState(ACQUIRED, 1, "a", 5.0))], 9.0
        ).lock_seconds
        == 0.0
    )
