"""Batches by size and time, requests by broker, and the account of memory."""

from __future__ import annotations

import pytest

from moldau.client.rules.accumulator import Accumulator, BatchLimits, SendPlan
from moldau.client.rules.partition_queue import NEVER
from moldau.client.rules.producer_batches import ProducerBatch
from moldau.client.rules.sequences import ProducerIdentity
from moldau.model import TopicPartition

ONE, TWO, THREE = (TopicPartition("rivers", number) for number in range(3))
RECORD_BYTES = 20


def make(
    *, batch_records: int = 3, linger: float = 5.0, request_bytes: int = 10_000, most: int = 5
) -> Accumulator[TopicPartition]:
    limits = BatchLimits(
        batch_bytes=batch_records * RECORD_BYTES,
        linger_seconds=linger,
        delivery_seconds=100.0,
        memory_bytes=200,
        request_bytes=request_bytes,
        most_under_way=most,
        is_idempotent=False,
    )
    return Accumulator(limits, lambda partition: partition)


def add(
    accumulator: Accumulator[TopicPartition],
    partition: TopicPartition = ONE,
    count: int = 1,
    now: float = 0.0,
) -> ProducerBatch[TopicPartition]:
    """Put records in, as the intake does."""
    queue = accumulator.queue_of(partition)
    for _ in range(count):
        batch = queue.open
        if batch is None or batch.size_bytes + RECORD_BYTES > accumulator.limits.batch_bytes:
            batch = accumulator.open_batch(queue, now)
        batch.add((0, None, b"", ()), RECORD_BYTES)
        accumulator.used_bytes += RECORD_BYTES
    return batch


def plan(
    accumulator: Accumulator[TopicPartition],
    now: float,
    leaders: dict[TopicPartition, int] | None = None,
    slots: bool = True,
) -> SendPlan[TopicPartition]:
    known = leaders if leaders is not None else {ONE: 1, TWO: 1, THREE: 2}
    return accumulator.plan(now, known.get, lambda broker_id: slots)


def test_a_batch_waits_for_company_until_its_time_is_over() -> None:
    accumulator = make(linger=5.0)
    batch = add(accumulator, now=1.0)
    early = plan(accumulator, 5.9)
    assert (early.requests, early.look_again_at) == ({}, 6.0)
    assert plan(accumulator, 6.0).requests == {1: [batch]}


def test_a_full_batch_does_not_wait() -> None:
    accumulator = make(batch_records=3)
    add(accumulator, count=4, now=1.0)
    (batch,) = plan(accumulator, 1.0).requests[1]
    assert len(batch) == 3
    rest = plan(accumulator, 1.0)
    assert (rest.requests, rest.look_again_at) == ({}, 6.0)


def test_nothing_waits_while_somebody_is_in_a_hurry() -> None:
    accumulator = make()
    batch = add(accumulator)
    accumulator.hurry_count += 1
    assert plan(accumulator, 0.0).requests == {1: [batch]}


def test_a_single_batch_can_be_let_go() -> None:
    accumulator = make()
    batch, other = add(accumulator, ONE), add(accumulator, TWO)
    assert accumulator.close_batch(batch)
    assert not accumulator.close_batch(batch)
    assert plan(accumulator, 0.0).requests == {1: [batch]}
    assert accumulator.queue_of(TWO).open is other


def test_what_comes_after_a_batch_has_left_begins_another() -> None:
    accumulator = make(linger=0.0)
    first = add(accumulator)
    plan(accumulator, 0.0)
    second = add(accumulator)
    assert second is not first
    assert (second.first_number, len(first)) == (1, 1)


def test_a_broker_gets_one_request_with_one_batch_for_each_partition() -> None:
    accumulator = make(batch_records=1)
    for partition in (ONE, TWO, THREE):
        add(accumulator, partition, count=2)
    accumulator.hurry_count = 1
    requests = plan(accumulator, 0.0).requests
    assert {broker: [one.partition for one in batches] for broker, batches in requests.items()} == {
        1: [ONE, TWO],
        2: [THREE],
    }
    assert all(one.first_number == 0 for batches in requests.values() for one in batches)


def test_a_request_does_not_grow_past_its_limit_and_everybody_gets_a_turn() -> None:
    accumulator = make(batch_records=1, linger=0.0, request_bytes=2 * (RECORD_BYTES + 61))
    partitions = [TopicPartition("rivers", number) for number in range(3)]
    for partition in partitions:
        add(accumulator, partition, count=2)
    leaders = dict.fromkeys(partitions, 1)
    turns = [
        [one.partition.partition for one in plan(accumulator, 0.0, leaders).requests[1]]
        for _ in range(3)
    ]
    assert turns == [[0, 1], [2, 0], [1, 2]]


def test_a_batch_that_is_larger_than_a_request_goes_alone() -> None:
    accumulator = make(batch_records=3, linger=0.0, request_bytes=10)
    add(accumulator, ONE, count=3)
    assert len(plan(accumulator, 0.0).requests[1]) == 1


def test_a_broker_without_a_free_slot_gets_nothing() -> None:
    accumulator = make(linger=0.0)
    add(accumulator)
    assert plan(accumulator, 0.0, slots=False).requests == {}


def test_no_more_batches_of_a_partition_are_under_way_than_may_be() -> None:
    accumulator = make(batch_records=1, linger=0.0, most=2)
    add(accumulator, count=3)
    assert [len(plan(accumulator, 0.0).requests) for _ in range(3)] == [1, 1, 0]


def test_topics_without_a_leader_are_named_and_their_batches_know_why_they_wait() -> None:
    accumulator = make(linger=0.0)
    batch = add(accumulator)
    found = plan(accumulator, 0.0, leaders={})
    assert (found.requests, found.leaderless) == ({}, {ONE})
    assert "no leader" in str(batch.last_error)


def test_a_producer_id_is_asked_for_when_there_is_something_to_send() -> None:
    limits = make(linger=0.0).limits
    accumulator: Accumulator[TopicPartition] = Accumulator(
        BatchLimits(
            batch_bytes=limits.batch_bytes,
            linger_seconds=0.0,
            delivery_seconds=100.0,
            memory_bytes=200,
            request_bytes=1_000,
            most_under_way=5,
            is_idempotent=True,
        ),
        lambda partition: partition,
    )
    assert not plan(accumulator, 0.0).needs_identity
    add(accumulator)
    assert plan(accumulator, 0.0).needs_identity
    accumulator.identity = ProducerIdentity(7, 0)
    (batch,) = plan(accumulator, 0.0).requests[1]
    assert (batch.identity, batch.base_sequence) == ((7, 0), 0)


def test_memory_is_taken_by_records_and_given_back_by_finished_batches() -> None:
    accumulator = make(linger=0.0)
    assert accumulator.has_room(1_000)  # whatever it is, if nothing else is there
    batch = add(accumulator, count=3)
    assert accumulator.used_bytes == 3 * RECORD_BYTES
    assert accumulator.has_room(140)
    assert not accumulator.has_room(141)
    plan(accumulator, 0.0)
    accumulator.queue_of(ONE).settle(batch, is_confirmed=True)
    accumulator.finish(batch)
    assert accumulator.used_bytes == 0
    assert accumulator.is_empty


def test_what_is_finished_is_known_by_the_order_of_opening() -> None:
    accumulator = make(batch_records=1, linger=0.0)
    first, second = add(accumulator, ONE), add(accumulator, TWO)
    plan(accumulator, 0.0)
    assert not accumulator.is_finished_up_to(second.serial)
    accumulator.queue_of(TWO).settle(second, is_confirmed=True)
    accumulator.finish(second)
    assert not accumulator.is_finished_up_to(first.serial)
    accumulator.queue_of(ONE).settle(first, is_confirmed=True)
    accumulator.finish(first)
    assert accumulator.is_finished_up_to(accumulator.last_serial)


def test_a_divided_batch_is_finished_when_its_halves_are() -> None:
    accumulator = make(batch_records=4, linger=0.0)
    batch = add(accumulator, count=4)
    plan(accumulator, 0.0)
    later = add(accumulator, THREE)
    halves = accumulator.divide(batch)
    assert [len(half) for half in halves] == [2, 2]
    assert batch.is_finished
    assert not accumulator.is_finished_up_to(batch.serial)
    for half in halves:
        assert not accumulator.is_finished_up_to(batch.serial)
        assert plan(accumulator, 0.0, {ONE: 1}).requests == {1: [half]}
        accumulator.queue_of(ONE).settle(half, is_confirmed=True)
        accumulator.finish(half)
    assert accumulator.is_finished_up_to(batch.serial)
    assert not accumulator.is_finished_up_to(later.serial)
    assert accumulator.used_bytes == RECORD_BYTES


def test_batches_expire_by_the_time_of_their_first_record() -> None:
    accumulator = make(batch_records=1, linger=1_000.0)
    first = add(accumulator, ONE, now=1.0)
    add(accumulator, TWO, now=2.0)
    assert accumulator.next_expiry() == 101.0
    assert accumulator.take_expired(100.9) == []
    assert accumulator.take_expired(101.0) == [first]
    accumulator.finish(first)
    assert accumulator.next_expiry() == 102.0


def test_an_empty_accumulator_never_expires() -> None:
    assert make().next_expiry() == pytest.approx(NEVER)
