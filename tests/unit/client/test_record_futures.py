"""Futures of records, as the standard library's own functions see them."""

from __future__ import annotations

import concurrent.futures
import threading

from moldau.client.batch_promises import Listener, SharedPromise
from moldau.client.record_futures import RecordFuture
from moldau.client.rules.batch_delivery import Delivered, NotDelivered
from moldau.errors import InvalidRecordError
from moldau.model import TopicPartition

PATIENCE_SECONDS = 60.0


class WatchedPromise(SharedPromise):
    """Tells when somebody has begun to wait for it."""

    def __init__(self) -> None:
        super().__init__(TopicPartition("rivers", 0), lambda promise: None)
        self.is_awaited = threading.Event()

    def listen(self, listener: Listener) -> None:
        super().listen(listener)
        self.is_awaited.set()


def futures_of(promise: SharedPromise, count: int) -> list[RecordFuture]:
    return [RecordFuture((promise, index), 5) for index in range(count)]


def test_what_was_done_before_is_completed_once() -> None:
    early, late = WatchedPromise(), WatchedPromise()
    futures = futures_of(early, 3) + futures_of(late, 2)
    early.keep(Delivered(10))
    completed = concurrent.futures.as_completed(futures, PATIENCE_SECONDS)
    first = {next(completed) for _ in range(3)}
    late.keep(NotDelivered(InvalidRecordError("nonsense")))
    assert first == set(futures[:3])
    assert set(completed) == set(futures[3:])


def test_waiting_for_all_does_not_end_with_those_that_were_done_before() -> None:
    early, late = WatchedPromise(), WatchedPromise()
    futures = futures_of(early, 3) + futures_of(late, 3)
    early.keep(Delivered(10))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(concurrent.futures.wait, futures, PATIENCE_SECONDS)
        assert late.is_awaited.wait(PATIENCE_SECONDS)
        late.keep(Delivered(13))
        done, left = waiting.result(PATIENCE_SECONDS)
    assert (done, left) == (set(futures), set())
    assert sorted(one.result(0).offset for one in futures) == [10, 11, 12, 13, 14, 15]


def test_all_futures_of_a_batch_are_done_together() -> None:
    promise = WatchedPromise()
    futures = futures_of(promise, 3)
    assert concurrent.futures.wait(futures, 0).not_done == set(futures)
    promise.keep(Delivered(0))
    assert concurrent.futures.wait(futures, 0).done == set(futures)
