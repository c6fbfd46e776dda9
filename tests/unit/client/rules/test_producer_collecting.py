"""Batches by size and time, requests by broker, and the account of memory."""

from __future__ import annotations

import pytest

from client.rules.producer_story import make_cluster
from moldau.client.producer.rules.built_in_partitioner import RoundRobinPartitioner
from moldau.client.producer.rules.record_accumulator import (
    NEVER,
    AskIdentity,
    Delivered,
    Divided,
    Finish,
    FinishFlush,
    NotDelivered,
    PartitionAnswer,
    ProducerBatch,
    ProducerIdentity,
    RefreshTopics,
    ReportRefusal,
    ReportSuccess,
    Send,
)
from moldau.client.producer.rules.sender import ProducerMachine, ProducerSettings, RetryPolicy, Turn
from moldau.client.rules.broker_errors import Backoff
from moldau.errors import BatchTooLargeError, DeliveryTimeoutError, NotLeaderError
from moldau.model import TopicPartition

ONE, TWO, THREE = (TopicPartition("rivers", number) for number in range(3))
RECORD_BYTES = 20

Machine = ProducerMachine[TopicPartition]
Batch = ProducerBatch[TopicPartition]


def make(
    *,
    batch_records: int = 3,
    linger: float = 5.0,
    request_bytes: int = 10_000,
    most: int = 5,
    in_flight: int = 100,
    is_idempotent: bool = False,
) -> Machine:
    settings = ProducerSettings(
        batch_bytes=batch_records * RECORD_BYTES,
        linger_seconds=linger,
        delivery_seconds=100.0,
        memory_bytes=200,
        request_bytes=request_bytes,
        most_under_way=most,
        most_in_flight=in_flight,
        metadata_max_age_seconds=1_000.0,
        is_idempotent=is_idempotent,
    )
    return ProducerMachine(
        settings,
        RetryPolicy(retries=5, is_idempotent=is_idempotent),
        Backoff(first_seconds=1.0, max_seconds=8.0, jitter=0.0),
        lambda: 0.5,
        make_result=lambda partition: TopicPartition(*partition),  # each is another one
        make_partitioner=RoundRobinPartitioner,
    )


def add(
    machine: Machine, partition: TopicPartition = ONE, count: int = 1, now: float = 0.0
) -> Batch:
    """Put records in, as the intake does."""
    queue = machine.queue_of(partition)
    for _ in range(count):
        batch = queue.open
        if batch is None or batch.size_bytes + RECORD_BYTES > machine.settings.batch_bytes:
            batch = machine.open_batch(queue, now)
        batch.add((0, None, b"", ()), RECORD_BYTES)
        machine.used_bytes += RECORD_BYTES
    return batch


def turn(
    machine: Machine, now: float, leaders: dict[TopicPartition, int] | None = None
) -> Turn[TopicPartition]:
    return machine.end_turn(now, make_cluster(leaders or {ONE: 1, TWO: 1, THREE: 2}))


def sent(found: Turn[TopicPartition]) -> list[tuple[int, list[Batch]]]:
    return [(one.broker_id, list(one.batches)) for one in found.instructions if type(one) is Send]


def finished(found: Turn[TopicPartition]) -> list[Batch]:
    return [one.batch for one in found.instructions if isinstance(one, Finish)]


def confirm(machine: Machine, *batches: Batch, now: float = 0.0, pause: float = 0.0) -> None:
    machine.answered(1, [(batch, PartitionAnswer(base_offset=0)) for batch in batches], now, pause)


def test_a_batch_waits_for_company_until_its_time_is_over() -> None:
    machine = make(linger=5.0)
    batch = add(machine, now=1.0)
    early = turn(machine, 5.9)
    assert (sent(early), early.wake_at) == ([], 6.0)
    assert sent(turn(machine, 6.0)) == [(1, [batch])]


def test_a_full_batch_does_not_wait() -> None:
    machine = make(batch_records=3)
    add(machine, count=4, now=1.0)
    found = turn(machine, 1.0)
    ((_, (batch,)),) = sent(found)
    assert len(batch) == 3
    assert found.wake_at == 6.0


def test_nothing_waits_while_somebody_is_in_a_hurry() -> None:
    machine = make()
    batch = add(machine)
    machine.flusher_count += 1
    assert sent(turn(machine, 0.0)) == [(1, [batch])]


def test_a_single_batch_can_be_let_go() -> None:
    machine = make()
    batch, other = add(machine, ONE), add(machine, TWO)
    assert machine.close_batch(ONE, batch.result)
    assert not machine.close_batch(ONE, batch.result)
    assert sent(turn(machine, 0.0)) == [(1, [batch])]
    assert machine.queue_of(TWO).open is other


def test_what_comes_after_a_batch_has_left_begins_another() -> None:
    machine = make(linger=0.0)
    first = add(machine)
    turn(machine, 0.0)
    second = add(machine)
    assert second is not first
    assert (second.first_number, len(first)) == (1, 1)


def test_a_broker_gets_a_request_with_one_batch_for_each_partition() -> None:
    machine = make(batch_records=1)
    for partition in (ONE, TWO, THREE):
        add(machine, partition, count=2)
    machine.flusher_count = 1
    first, *_ = requests = sent(turn(machine, 0.0))
    assert [(broker, [one.partition for one in batches]) for broker, batches in requests] == [
        (1, [ONE, TWO]),
        (2, [THREE]),
        (1, [ONE, TWO]),
        (2, [THREE]),
    ]
    assert all(one.first_number == 0 for one in first[1])


def test_a_request_does_not_grow_past_its_limit_and_everybody_gets_a_turn() -> None:
    machine = make(batch_records=1, linger=0.0, request_bytes=2 * (RECORD_BYTES + 61))
    partitions = [TopicPartition("rivers", number) for number in range(3)]
    for partition in partitions:
        add(machine, partition, count=2)
    requests = sent(turn(machine, 0.0, dict.fromkeys(partitions, 1)))
    turns = [[one.partition.partition for one in batches] for _, batches in requests]
    assert turns == [[0, 1], [2, 0], [1, 2]]


def test_a_batch_that_is_larger_than_a_request_goes_alone() -> None:
    machine = make(batch_records=3, linger=0.0, request_bytes=10)
    add(machine, ONE, count=3)
    assert len(sent(turn(machine, 0.0))) == 1


def test_a_broker_with_enough_requests_in_flight_gets_no_more_until_it_has_answered() -> None:
    machine = make(batch_records=1, linger=0.0, in_flight=1)
    first, second = add(machine, ONE), add(machine, ONE)
    assert sent(turn(machine, 0.0)) == [(1, [first])]
    confirm(machine, first)
    assert sent(turn(machine, 0.0)) == [(1, [second])]


def test_a_broker_that_wants_a_pause_gets_it() -> None:
    machine = make(batch_records=1, linger=0.0)
    first = add(machine, ONE)
    turn(machine, 0.0)
    confirm(machine, first, now=1.0, pause=2.5)
    second, elsewhere = add(machine, ONE, now=1.0), add(machine, THREE, now=1.0)
    found = turn(machine, 1.0)
    assert (sent(found), found.wake_at) == ([(2, [elsewhere])], 3.5)
    assert sent(turn(machine, 3.4999)) == []  # a timer that is early by a hair
    assert sent(turn(machine, 3.5)) == [(1, [second])]


def test_no_more_batches_of_a_partition_are_under_way_than_may_be() -> None:
    machine = make(batch_records=1, linger=0.0, most=2)
    add(machine, count=3)
    assert len(sent(turn(machine, 0.0))) == 2


def test_partitions_without_a_leader_are_reported_and_their_batches_know_why_they_wait() -> None:
    machine = make(linger=0.0)
    machine.learn_topic(make_cluster({ONE: 1}).topics["rivers"])
    batch = add(machine)
    found = turn(machine, 0.0, {ONE: -1})
    assert [type(one) for one in found.instructions] == [ReportRefusal, RefreshTopics]
    assert "no broker leads it" in str(batch.last_error)
    machine.topics_refreshed([], 0.0)
    assert sent(turn(machine, 0.0)) == [(1, [batch])]
    confirm(machine, batch)
    assert ReportSuccess(ONE) in turn(machine, 0.0).instructions


def test_metadata_is_asked_for_once_at_a_time_and_with_growing_pauses() -> None:
    machine = make(linger=0.0)
    machine.learn_topic(make_cluster({ONE: 1}).topics["rivers"])
    add(machine)
    now, pauses = 0.0, []
    for _ in range(4):
        found = turn(machine, now, {ONE: -1})
        assert RefreshTopics(("rivers",)) in found.instructions
        assert RefreshTopics(("rivers",)) not in turn(machine, now, {ONE: -1}).instructions
        machine.topics_refreshed(None, now)
        wake_at = turn(machine, now, {ONE: -1}).wake_at
        pauses.append(wake_at - now)
        now = wake_at
    assert pauses == [1.0, 2.0, 4.0, 8.0]


def test_metadata_is_asked_for_again_when_it_is_old() -> None:
    machine = make()
    machine.learn_topic(make_cluster({ONE: 1}).topics["rivers"])
    assert turn(machine, 7.0).wake_at == 1_007.0
    assert turn(machine, 1_007.0).instructions == [RefreshTopics(("rivers",))]
    machine.topics_refreshed(list(make_cluster({ONE: 1, TWO: 1}).topics.values()), 1_008.0)
    assert len(machine.topics["rivers"].queues) == 2
    assert turn(machine, 1_008.0).wake_at == 2_008.0


def test_a_producer_id_is_asked_for_once_when_there_is_something_to_send() -> None:
    machine = make(linger=0.0, is_idempotent=True)
    assert turn(machine, 0.0).instructions == []
    add(machine)
    assert turn(machine, 0.0).instructions == [AskIdentity()]
    assert turn(machine, 0.0).instructions == []
    machine.identity_given(ProducerIdentity(7, 0))
    ((_, (batch,)),) = sent(turn(machine, 0.0))
    assert (batch.identity, batch.base_sequence) == ((7, 0), 0)


def test_memory_is_taken_by_records_and_given_back_by_finished_batches() -> None:
    machine = make(linger=0.0)
    batch = add(machine, count=3)
    assert machine.used_bytes == 3 * RECORD_BYTES
    turn(machine, 0.0)
    confirm(machine, batch)
    assert machine.used_bytes == 0
    assert machine.is_empty


def test_a_flush_is_over_when_all_that_was_collected_before_it_is() -> None:
    machine = make(batch_records=1)
    assert machine.begin_flush() is None
    first, second = add(machine, ONE), add(machine, TWO)
    flush = machine.begin_flush()
    assert flush is not None
    assert sent(turn(machine, 0.0)) == [(1, [first, second])]
    later = add(machine, ONE)
    confirm(machine, second)
    assert FinishFlush(flush) not in turn(machine, 0.0).instructions
    machine.answered(1, [(first, PartitionAnswer(base_offset=0))], 0.0)
    assert FinishFlush(flush) in turn(machine, 0.0).instructions
    machine.end_flush(flush)
    assert (machine.flusher_count, machine.state_of(later).name) == (0, "UNDER_WAY")


def test_a_divided_batch_is_finished_when_its_halves_are() -> None:
    machine = make(batch_records=4, linger=0.0)
    batch = add(machine, count=4)
    flush = machine.begin_flush()
    assert flush is not None
    turn(machine, 0.0)
    later = add(machine, THREE)
    machine.answered(1, [(batch, PartitionAnswer(BatchTooLargeError("large")))], 0.0)
    found = turn(machine, 0.0)
    halves = [one for broker, batches in sent(found) for one in batches if broker == 1]
    assert [len(half) for half in halves] == [2, 2]
    (finish,) = (one for one in found.instructions if isinstance(one, Finish))
    assert finish == (batch, Divided(((0, halves[0].result), (2, halves[1].result))))
    for half in halves:
        assert FinishFlush(flush) not in turn(machine, 0.0).instructions
        confirm(machine, half)
    assert FinishFlush(flush) in turn(machine, 0.0).instructions
    assert not machine.is_empty
    assert machine.used_bytes == later.size_bytes


def test_batches_expire_by_the_time_of_their_first_record() -> None:
    machine = make(batch_records=1, linger=1_000.0)
    first, second = add(machine, ONE, now=1.0), add(machine, TWO, now=2.0)
    early = turn(machine, 100.9)
    assert (finished(early), early.wake_at) == ([], 101.0)
    found = turn(machine, 101.0)
    assert (finished(found), found.wake_at) == ([first], 102.0)
    ((_, outcome),) = (one for one in found.instructions if isinstance(one, Finish))
    assert isinstance(outcome, NotDelivered)
    assert isinstance(outcome.error, DeliveryTimeoutError)
    assert finished(turn(machine, 102.0)) == [second]


def test_one_that_may_pass_is_sent_again_after_a_pause_and_not_finished() -> None:
    machine = make(batch_records=1, linger=0.0)
    batch = add(machine)
    turn(machine, 0.0)
    refusal = NotLeaderError("it was me once")
    machine.answered(1, [(batch, PartitionAnswer(refusal))], 10.0)
    found = turn(machine, 10.0)
    assert list(found.instructions) == [ReportRefusal(ONE, refusal)]
    assert sent(turn(machine, 11.0)) == [(1, [batch])]
    confirm(machine, batch, now=11.0)
    assert Finish(batch, Delivered(0)) in turn(machine, 11.0).instructions


def test_a_machine_without_anything_to_do_is_never_woken() -> None:
    assert turn(make(), 0.0).wake_at == pytest.approx(NEVER)
