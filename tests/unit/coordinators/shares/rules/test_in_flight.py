"""What may become of records in a share group, rule by rule."""

from __future__ import annotations

import pytest

from moldau.coordinators.shares.rules.in_flight import (
    AcknowledgedRange,
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRange,
    Acquisition,
    DeadRange,
    InFlight,
    Limits,
    LogBatch,
    Wanted,
    split_by_type,
)
from moldau.coordinators.shares.rules.records import DeliveryState, StateBatch
from moldau.errors import InvalidRecordStateError, InvalidRequestError

LIMITS = Limits(max_record_locks=1000, delivery_count_limit=5, lock_seconds=30)
ACCEPT, RELEASE, REJECT, GAP, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.GAP,
    AcknowledgeType.RENEW,
)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = DeliveryState


def batches(*sizes: int, first: int = 0, hidden: tuple[int, ...] = ()) -> list[LogBatch]:
    found = []
    for index, size in enumerate(sizes):
        found.append(LogBatch(first, first + size - 1, first * 10, 100, index in hidden))
        first += size
    return found


def acquire(
    records: InFlight,
    offered: list[LogBatch],
    member: str = "ann",
    *,
    most: int = 500,
    batch_size: int = 500,
    exact: bool = False,
    limits: Limits = LIMITS,
    now: float = 0,
) -> Acquisition:
    offset = records.find_available()
    wanted = Wanted(most, batch_size, exact)
    return records.acquire(member, offset, iter(offered), wanted, limits, now)


def acknowledge(
    records: InFlight,
    first: int,
    last: int,
    kind: AcknowledgeType,
    member: str = "ann",
    now: float = 0,
) -> None:
    ranges = (AcknowledgedRange(first, last + 1, kind),)
    records.complete(records.acknowledge(member, ranges, LIMITS, now))


def states(records: InFlight) -> list[tuple[int, int, str, int]]:
    return [
        (run.first, run.end - 1, run.record_state.state.name, run.record_state.delivery_count)
        for run in records.runs
    ]


# Acquiring


def test_what_is_acquired_is_one_entry_however_many_records_it_has() -> None:
    records = InFlight(0)
    got = acquire(records, batches(100, 100, 100))
    assert got.ranges == (AcquiredRange(0, 299, 1),)
    assert states(records) == [(0, 299, "ACQUIRED", 1)]


def test_a_limit_of_records_is_met_with_the_batch_that_reaches_it() -> None:
    records = InFlight(0)
    got = acquire(records, batches(100, 100, 100), most=150)
    assert got.record_count == 200
    assert len(got.batches) == 2
    assert got.is_complete


def test_no_record_more_than_wanted_in_the_mode_for_that() -> None:
    records = InFlight(0)
    got = acquire(records, batches(100, 100), most=30, exact=True)
    assert got.ranges == (AcquiredRange(0, 29, 1),)
    assert len(got.batches) == 1
    again = acquire(records, batches(100, 100), "bob", most=30, exact=True)
    assert again.ranges == (AcquiredRange(30, 59, 1),)


def test_ranges_have_about_the_size_that_is_asked_for() -> None:
    got = acquire(InFlight(0), batches(4, 4, 4, 4, 4), batch_size=6)
    assert got.ranges == (
        AcquiredRange(0, 7, 1),
        AcquiredRange(8, 15, 1),
        AcquiredRange(16, 19, 1),
    )


def test_nobody_gets_what_another_one_has() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    assert records.find_available() == 10
    got = acquire(records, batches(10, 10), "bob")
    assert got.ranges == (AcquiredRange(10, 19, 1),)
    assert [batch.first_offset for batch in got.batches] == [10]


def test_markers_and_aborted_batches_are_not_delivered() -> None:
    records = InFlight(0)
    got = acquire(records, batches(5, 1, 5, hidden=(1,)))
    assert got.ranges == (AcquiredRange(0, 4, 1), AcquiredRange(6, 10, 1))
    assert len(got.batches) == 2
    acknowledge(records, 0, 4, ACCEPT)
    assert records.start_offset == 6


def test_offsets_that_compaction_has_emptied_are_passed_over() -> None:
    records = InFlight(0)
    got = acquire(records, batches(5, first=20))
    assert got.ranges == (AcquiredRange(20, 24, 1),)
    assert records.start_offset == 20


def test_new_records_are_not_acquired_beyond_the_limit_of_locks() -> None:
    limits = Limits(max_record_locks=10)
    records = InFlight(0)
    got = acquire(records, batches(6, 6, 6), limits=limits)
    assert got.record_count == 12  # a batch is not cut
    assert not records.has_room(limits)
    assert acquire(records, batches(6, first=12), limits=limits).record_count == 0
    acknowledge(records, 4, 5, RELEASE)  # what has been acquired before may be again
    assert acquire(records, batches(6), "bob", limits=limits).ranges == (AcquiredRange(4, 5, 2),)


def test_exactly_so_many_records_stay_within_the_limit_of_locks() -> None:
    limits = Limits(max_record_locks=10)
    records = InFlight(0)
    assert acquire(records, batches(50), most=40, exact=True, limits=limits).record_count == 10


def test_what_failed_often_comes_in_smaller_parts_and_last_alone() -> None:
    records = InFlight(0)
    counts = []
    for _ in range(4):
        got = acquire(records, batches(8))
        counts.append(got.record_count)
        records.complete(records.release("ann", LIMITS))
    assert counts == [8, 8, 8, 4]
    got = acquire(records, batches(8))
    assert got.ranges == (AcquiredRange(0, 0, 5),)


# Acknowledging


def test_the_start_moves_behind_what_is_done_from_the_beginning_on() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    acknowledge(records, 5, 6, ACCEPT)
    assert records.start_offset == 0
    acknowledge(records, 0, 4, REJECT)
    assert records.start_offset == 7
    assert states(records) == [(7, 9, "ACQUIRED", 1)]


def test_only_who_has_a_record_acknowledges_it() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    with pytest.raises(InvalidRecordStateError):
        acknowledge(records, 0, 3, ACCEPT, "bob")
    acknowledge(records, 5, 5, RELEASE)
    with pytest.raises(InvalidRecordStateError):
        acknowledge(records, 4, 5, ACCEPT)
    assert states(records) == [
        (0, 4, "ACQUIRED", 1),
        (5, 5, "AVAILABLE", 1),
        (6, 9, "ACQUIRED", 1),
    ]


def test_nothing_counts_when_one_part_does_not() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    wrong = (AcknowledgedRange(0, 5, ACCEPT), AcknowledgedRange(8, 12, ACCEPT))
    with pytest.raises(InvalidRequestError):
        records.acknowledge("ann", wrong, LIMITS, 0)
    assert states(records) == [(0, 9, "ACQUIRED", 1)]


def test_what_is_before_the_start_is_done_whoever_says_so() -> None:
    records = InFlight(100)
    assert records.acknowledge("eve", (AcknowledgedRange(0, 50, ACCEPT),), LIMITS, 0).is_empty


def test_while_a_change_is_stored_nobody_has_the_records() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    change = records.acknowledge("ann", (AcknowledgedRange(0, 5, RELEASE),), LIMITS, 0)
    assert records.find_available() == 10
    with pytest.raises(InvalidRecordStateError):
        acknowledge(records, 0, 0, ACCEPT)
    assert records.expire(31, LIMITS).ranges == ((5, 10),)
    records.complete(change)
    assert states(records) == [(0, 9, "AVAILABLE", 1)]


def test_a_change_that_is_not_stored_is_taken_back() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    change = records.acknowledge("ann", (AcknowledgedRange(0, 10, ACCEPT),), LIMITS, 0)
    records.take_back(change)
    assert states(records) == [(0, 9, "ACQUIRED", 1)]
    acknowledge(records, 0, 9, ACCEPT)
    assert records.start_offset == 10


# Locks


def test_a_lock_that_is_over_makes_the_record_available_with_its_count() -> None:
    records = InFlight(0)
    acquire(records, batches(10), now=5)
    assert records.next_deadline() == 35
    assert records.expire(34.9, LIMITS).is_empty
    assert records.expire(35, LIMITS).ranges == ((0, 10),)
    assert acquire(records, batches(10), "bob").ranges == (AcquiredRange(0, 9, 2),)


def test_a_renewal_begins_the_lock_again_and_is_not_stored() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    ranges = (AcknowledgedRange(0, 5, RENEW),)
    assert records.acknowledge("ann", ranges, LIMITS, 20).is_empty
    assert records.expire(30, LIMITS).ranges == ((5, 10),)
    assert records.next_deadline() == 50


def test_what_was_delivered_too_often_comes_to_its_end() -> None:
    records = InFlight(0, [StateBatch(0, 0, AVAILABLE, 4)])
    assert acquire(records, batches(1)).ranges == (AcquiredRange(0, 0, 5),)
    change = records.expire(31, LIMITS)
    assert change.dead == (DeadRange(0, 1, 5, False),)
    assert records.find_available() == 1
    records.complete(change)
    assert records.start_offset == 1


def test_what_a_member_closes_its_session_with_was_delivered() -> None:
    records = InFlight(0, [StateBatch(0, 0, AVAILABLE, 3)])
    acquire(records, batches(1))
    assert records.release("ann", LIMITS).dead == ()
    assert states(records) == [(0, 0, "AVAILABLE", 4)]
    acquire(records, batches(1))
    assert records.release("ann", LIMITS).dead == (DeadRange(0, 1, 5, False),)


# Storing


def test_a_higher_start_says_all_of_what_is_done_behind_it() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    change = records.acknowledge("ann", (AcknowledgedRange(0, 10, ACCEPT),), LIMITS, 0)
    assert records.plan_write([change]) == (10, 0, ())


def test_what_is_stored_is_what_somebody_else_finds() -> None:
    records = InFlight(0)
    acquire(records, batches(10, 10))
    first = records.acknowledge("ann", (AcknowledgedRange(2, 4, ACCEPT),), LIMITS, 0)
    second = records.acknowledge(
        "ann",
        (AcknowledgedRange(4, 6, RELEASE), AcknowledgedRange(8, 9, REJECT)),
        LIMITS,
        0,
    )
    plan = records.plan_write([first, second])
    assert plan.start_offset == 0
    assert plan.delivery_complete_count == 3
    assert plan.state_batches == (
        StateBatch(2, 3, ACKNOWLEDGED, 1),
        StateBatch(4, 5, AVAILABLE, 1),
        StateBatch(8, 8, ARCHIVED, 1),
    )
    loaded = InFlight(plan.start_offset, plan.state_batches)
    assert states(loaded) == [
        (0, 1, "AVAILABLE", 0),
        (2, 3, "ACKNOWLEDGED", 1),
        (4, 5, "AVAILABLE", 1),
        (6, 7, "AVAILABLE", 0),
        (8, 8, "ARCHIVED", 1),
    ]
    assert loaded.end_offset == 9


def test_records_that_went_from_the_log_are_done() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    records.forget_before(4)
    assert states(records) == [(4, 9, "ACQUIRED", 1)]
    acknowledge(records, 0, 5, ACCEPT)
    assert records.start_offset == 6
    records.forget_before(50)
    assert (records.start_offset, records.end_offset) == (50, 50)


# What a client says


def test_types_for_each_offset_become_ranges() -> None:
    (batch,) = [AcknowledgementBatch(10, 15, (1, 1, 0, 2, 2, 1))]
    assert split_by_type([batch], may_renew=False) == (
        AcknowledgedRange(10, 12, ACCEPT),
        AcknowledgedRange(12, 13, GAP),
        AcknowledgedRange(13, 15, RELEASE),
        AcknowledgedRange(15, 16, ACCEPT),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        (AcknowledgementBatch(5, 4, (1,)),),
        (AcknowledgementBatch(0, 4, ()),),
        (AcknowledgementBatch(0, 4, (1, 1)),),
        (AcknowledgementBatch(0, 0, (5,)),),
        (AcknowledgementBatch(0, 0, (-1,)),),
        (AcknowledgementBatch(0, 0, (4,)),),
        (AcknowledgementBatch(0, 4, (1,)), AcknowledgementBatch(4, 5, (1,))),
        (AcknowledgementBatch(-1, 4, (1,)),),
    ],
)
def test_what_no_client_should_say_is_refused(wrong: tuple[AcknowledgementBatch, ...]) -> None:
    with pytest.raises(InvalidRequestError):
        split_by_type(wrong, may_renew=False)


def test_a_renewal_is_said_by_those_who_may() -> None:
    (found,) = split_by_type([AcknowledgementBatch(0, 4, (4,))], may_renew=True)
    assert found.type is RENEW


def test_new_records_without_room_end_the_search() -> None:
    records = InFlight(0)
    limits = LIMITS._replace(max_record_locks=10)
    assert not acquire(records, batches(9), limits=limits).is_complete
    assert not acquire(records, batches(1, first=9), "bob", limits=limits).is_complete
    full = acquire(records, batches(10, first=10), "bob", limits=limits)
    assert (full.is_complete, full.record_count) == (True, 0)


def test_what_was_deleted_from_the_log_is_not_looked_at_again() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    records.release("ann", LIMITS)
    assert records.find_available() == 0
    records.forget_before(4)
    assert (records.start_offset, records.find_available()) == (4, 4)


def test_a_gap_in_the_log_that_is_out_of_reach_ends_the_search() -> None:
    records = InFlight(0)
    limits = LIMITS._replace(max_record_locks=10)
    acquire(records, batches(10), limits=limits)
    got = acquire(records, batches(5, first=12), "bob", limits=limits)
    assert (got.is_complete, got.record_count, got.next_offset) == (True, 0, 10)
    assert records.end_offset == 10


def test_a_range_that_has_the_size_asked_for_gets_no_more() -> None:
    got = acquire(InFlight(0), batches(3, 3, 3, 3), batch_size=6)
    assert got.ranges == (AcquiredRange(0, 5, 1), AcquiredRange(6, 11, 1))


@pytest.mark.parametrize(("limit", "together"), [(2, [8, 8]), (3, [8, 8, 1]), (5, [8, 8, 8, 4, 1])])
def test_records_that_fail_come_in_parts_until_the_last_attempt_is_alone(
    limit: int, together: list[int]
) -> None:
    records, limits = InFlight(0), LIMITS._replace(delivery_count_limit=limit)
    counts = []
    for _ in range(limit):
        counts.append(acquire(records, batches(8), limits=limits).record_count)
        records.complete(records.release("ann", limits))
    assert counts == together


def test_ranges_that_touch_are_stored_as_one() -> None:
    records = InFlight(0)
    acquire(records, batches(10))
    ranges = (AcknowledgedRange(0, 4, ACCEPT), AcknowledgedRange(4, 6, REJECT))
    assert records.acknowledge("ann", ranges, LIMITS, 0).ranges == ((0, 6),)
    apart = (AcknowledgedRange(6, 7, ACCEPT), AcknowledgedRange(8, 9, ACCEPT))
    assert records.acknowledge("ann", apart, LIMITS, 0).ranges == ((6, 7), (8, 9))
