"""The order of one partition's batches, whatever comes back."""

from __future__ import annotations

from moldau.client.producer.rules.record_accumulator import (
    PartitionQueue,
    ProducerBatch,
    ProducerIdentity,
)
from moldau.model import TopicPartition

ME = ProducerIdentity(7, 0)
MOST = 5
Queue = PartitionQueue[str]
Batch = ProducerBatch[str]


def queue_of(*names: str, records: int = 2) -> Queue:
    """A queue with closed batches of these names."""
    queue = Queue(TopicPartition("rivers", 0))
    for name in names:
        batch = queue.open_batch(name, now=0.0)
        for _ in range(records):
            batch.add((0, None, b"", ()), 20)
    queue.close_batch()
    return queue


def waiting(queue: Queue) -> str:
    return "".join(batch.result for batch in queue.waiting)


def take(queue: Queue, count: int = 1) -> list[Batch]:
    return [queue.drain_batch(1, ME) for _ in range(count)]


def make_known(queue: Queue) -> None:
    """Have the first batch confirmed, so that several may be under way."""
    (first,) = take(queue)
    queue.finish(first, is_confirmed=True)


def test_batches_leave_from_the_front() -> None:
    queue = queue_of("a", "b", "c")
    assert [batch.result for batch in take(queue, 3)] == ["a", "b", "c"]


def test_one_that_comes_back_takes_its_old_place() -> None:
    queue = queue_of("a", "b", "c", "d")
    a, b, c = take(queue, 3)
    for batch in (b, a, c):
        queue.put_back(batch, not_before=0.0)
    assert waiting(queue) == "abcd"


def test_one_that_comes_back_waits_a_while() -> None:
    queue = queue_of("a")
    (batch,) = take(queue)
    queue.put_back(batch, not_before=3.5)
    assert queue.ready_at(linger_seconds=0.0) == 3.5


def test_after_one_came_back_nothing_leaves_until_all_have() -> None:
    queue = queue_of("x", "a", "b", "c")
    make_known(queue)
    a, b = take(queue, 2)
    assert queue.may_send_to(1, MOST)
    queue.put_back(a, not_before=0.0)
    assert not queue.may_send_to(1, MOST)
    queue.finish(b, is_confirmed=True)
    assert queue.may_send_to(1, MOST)


def test_a_batch_that_was_overtaken_counts_with_those_that_overtook_it() -> None:
    queue = queue_of("x", *"abcdefgh")
    make_known(queue)
    a, b, c, d, e = take(queue, 5)
    for batch in (a, c):
        queue.put_back(batch, not_before=0.0)
    for batch in (b, d, e):
        queue.finish(batch, is_confirmed=True)
    assert (a.overtaken_by, c.overtaken_by) == (3, 2)
    assert take(queue, 2) == [a, c]
    assert not queue.may_send_to(1, MOST)  # with a, b, c, d and e the broker's memory is full
    queue.finish(a, is_confirmed=True)
    assert take(queue, 2)[-1].result == "g"  # c to g
    assert not queue.may_send_to(1, MOST)


def test_a_new_epoch_forgets_who_was_overtaken() -> None:
    queue = queue_of("x", "a", "b", "c")
    make_known(queue)
    a, b = take(queue, 2)
    queue.put_back(a, not_before=0.0)
    queue.finish(b, is_confirmed=False)
    queue.demand_restart()
    assert take(queue) == [a]
    assert (a.identity, a.overtaken_by) == ((7, 1), 0)


def test_while_batches_are_with_one_broker_none_leaves_for_another() -> None:
    queue = queue_of("x", "a", "b")
    make_known(queue)
    take(queue)
    assert queue.may_send_to(1, MOST)
    assert not queue.may_send_to(2, MOST)


def test_only_one_is_under_way_until_the_broker_knows_the_producer() -> None:
    queue = queue_of("a", "b", "c")
    (first,) = take(queue)
    assert not queue.may_send_to(1, MOST)
    queue.finish(first, is_confirmed=True)
    take(queue)
    assert queue.may_send_to(1, MOST)


def test_a_batch_sent_again_keeps_its_number() -> None:
    queue = queue_of("x", "a", "b")
    make_known(queue)
    a, b = take(queue, 2)
    queue.put_back(a, not_before=0.0)
    queue.put_back(b, not_before=0.0)
    assert [(one.result, one.base_sequence) for one in take(queue, 2)] == [("a", 2), ("b", 4)]
    assert [a.attempts, b.attempts] == [2, 2]


def test_a_restart_numbers_what_was_sent_before_and_waits_again() -> None:
    queue = queue_of("x", "a", "b", "c")
    make_known(queue)
    a, b = take(queue, 2)
    queue.demand_restart()
    queue.put_back(a, not_before=0.0)
    assert not queue.may_send_to(1, MOST)
    queue.put_back(b, not_before=0.0)
    assert take(queue) == [a]
    assert [(one.identity, one.base_sequence) for one in (a, b)] == [((7, 1), 0), ((7, 1), 2)]
    assert queue.waiting[1].identity is None  # it has never been sent
    assert not queue.may_send_to(1, MOST)  # the broker has yet to learn of the new epoch


def test_a_restart_waits_for_what_is_under_way_even_if_its_cause_is_gone() -> None:
    queue = queue_of("x", "a", "b", "c")
    make_known(queue)
    a, b = take(queue, 2)
    queue.finish(a, is_confirmed=False)
    queue.demand_restart()
    assert not queue.may_send_to(1, MOST)
    queue.finish(b, is_confirmed=False)
    assert queue.may_send_to(1, MOST)


def test_the_oldest_is_the_one_with_nothing_unfinished_before_it() -> None:
    queue = queue_of("x", "a", "b")
    make_known(queue)
    a, b = take(queue, 2)
    assert queue.is_oldest(a)
    assert not queue.is_oldest(b)
    queue.put_back(a, not_before=0.0)
    assert not queue.is_oldest(b)


def test_halves_stand_where_the_whole_stood() -> None:
    queue = queue_of("x", "a", "b", records=4)
    make_known(queue)
    a, b = take(queue, 2)
    names = iter(["1", "2"])
    queue.put_back_divided(a, lambda partition: next(names))
    queue.put_back(b, not_before=0.0)
    assert waiting(queue) == "12b"
    numbers = [(one.first_number, one.base_sequence, len(one)) for one in queue.waiting]
    assert numbers == [(4, 4, 2), (6, 6, 2), (8, 8, 4)]


def test_what_expires_while_it_waits_is_gone_and_what_is_under_way_keeps_its_place() -> None:
    queue = queue_of("x", "a", "b", "c")
    make_known(queue)
    a, b = take(queue, 2)
    expired = queue.take_expired(created_before=0.0)
    assert [one.result for one in expired] == ["a", "b", "c"]
    assert (a.is_abandoned, b.is_abandoned, len(queue.under_way)) == (True, True, 2)
    assert queue.take_expired(created_before=0.0) == []
    queue.finish(a, is_confirmed=True)
    queue.finish(b, is_confirmed=True)
    assert queue.is_idle


def test_an_open_batch_that_expires_takes_no_more_records() -> None:
    queue = Queue(TopicPartition("rivers", 0))
    batch = queue.open_batch("a", now=1.0)
    batch.add((0, None, b"", ()), 20)
    assert queue.take_expired(created_before=1.0) == [batch]
    assert queue.open is None
    assert queue.open_batch("b", now=2.0).first_number == 1
