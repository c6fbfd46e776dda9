"""Futures of records, as the standard library's own functions see them."""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import inspect
import threading
from concurrent.futures import Future, _base

from moldau.client.producer.produce_result import RecordFuture, ResultListener, SharedProduceResult
from moldau.client.producer.rules.record_accumulator import Delivered, NotDelivered
from moldau.errors import InvalidRecordError
from moldau.model import TopicPartition

PATIENCE_SECONDS = 60.0


class WatchedPromise(SharedProduceResult):
    """Tells when somebody has begun to wait for it."""

    def __init__(self) -> None:
        super().__init__(TopicPartition("rivers", 0), lambda result: None)
        self.is_awaited = threading.Event()

    def add_listener(self, listener: ResultListener) -> None:
        super().add_listener(listener)
        self.is_awaited.set()


def futures_of(result: SharedProduceResult, count: int) -> list[RecordFuture]:
    return [RecordFuture((result, index, 5)) for index in range(count)]


def test_what_was_done_before_is_completed_once() -> None:
    early, late = WatchedPromise(), WatchedPromise()
    futures = futures_of(early, 3) + futures_of(late, 2)
    early.complete(Delivered(10))
    completed = concurrent.futures.as_completed(futures, PATIENCE_SECONDS)
    first = {next(completed) for _ in range(3)}
    late.complete(NotDelivered(InvalidRecordError("nonsense")))
    assert first == set(futures[:3])
    assert set(completed) == set(futures[3:])


def test_waiting_for_all_does_not_end_with_those_that_were_done_before() -> None:
    early, late = WatchedPromise(), WatchedPromise()
    futures = futures_of(early, 3) + futures_of(late, 3)
    early.complete(Delivered(10))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(concurrent.futures.wait, futures, PATIENCE_SECONDS)
        assert late.is_awaited.wait(PATIENCE_SECONDS)
        late.complete(Delivered(13))
        done, left = waiting.result(PATIENCE_SECONDS)
    assert (done, left) == (set(futures), set())
    assert sorted(one.result(0).offset for one in futures) == [10, 11, 12, 13, 14, 15]


def test_all_futures_of_a_batch_are_done_together() -> None:
    result = WatchedPromise()
    futures = futures_of(result, 3)
    assert concurrent.futures.wait(futures, 0).not_done == set(futures)
    result.complete(Delivered(0))
    assert concurrent.futures.wait(futures, 0).done == set(futures)


# `RecordFuture` stands in for fields that CPython keeps to itself. A Python that keeps others, or
# that looks at them from elsewhere, fails here and says what there is to do.


def test_cpython_keeps_no_field_in_a_future_that_a_record_future_does_not_stand_in_for() -> None:
    stood_in_for = {name for name in vars(RecordFuture) if name.startswith("_")}
    inherited = {name for name in vars(Future) if name not in vars(RecordFuture)}
    unused = {"_done_callbacks"}  # of methods that a record future has of its own
    assert vars(Future()).keys() - stood_in_for == unused
    assert {name for name in inherited if not name.startswith("__")} == {
        "_Future__get_result",
        "_invoke_callbacks",
        # What an executor calls, which makes futures of its own:
        "set_exception",
        "set_result",
        "set_running_or_notify_cancel",
    }


def test_waiting_functions_look_at_no_other_field_of_a_future() -> None:
    looked_at = {
        node.attr
        for function in ast.parse(inspect.getsource(_base)).body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_")
    }
    assert looked_at == {"_condition", "_state", "_waiters"}


def test_asyncio_can_wait_for_the_future_of_a_record() -> None:
    async def wait_for_two() -> list[object]:
        result = WatchedPromise()
        futures = [asyncio.wrap_future(one) for one in futures_of(result, 2)]
        threading.Thread(target=result.complete, args=(Delivered(7),)).start()
        return [(await one).offset for one in futures]

    assert asyncio.run(wait_for_two()) == [7, 8]


def test_a_future_shows_how_it_stands() -> None:
    result = WatchedPromise()
    (future,) = futures_of(result, 1)
    assert "state=pending" in repr(future)
    result.complete(NotDelivered(InvalidRecordError("nonsense")))
    assert "state=finished raised InvalidRecordError" in repr(future)
