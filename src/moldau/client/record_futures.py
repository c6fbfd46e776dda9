"""Futures of records: of one, and of many that were sent together.

`RecordFuture` is a `concurrent.futures.Future` in all that its users see. Making one must cost
next to nothing, so it has no lock and no state of its own: both are its batch's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from moldau.client.batch_promises import BatchPromise, Placed, SharedPromise
from moldau.client.producer_values import RecordMetadata, RecordRange
from moldau.client.rules.producer_instructions import Delivered, Divided, NotDelivered
from moldau.errors import InvariantViolation, MoldauError


class RecordFuture(Future[RecordMetadata]):
    """The future of one record. It cannot be cancelled: the record may be on its way."""

    def __init__(self, place: tuple[SharedPromise, int, int]) -> None:
        # Not the base's: what it would set up is the promise's, see below.
        self._place = place

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self._place[0].is_kept

    def done(self) -> bool:
        return self._place[0].is_kept

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is, once it is there; raises why it is not. See `exception`."""
        found = self._wait(timeout)
        if isinstance(found, RecordMetadata):
            return found
        # The records of a batch share one error: the traceback of each raising is its own.
        raise found.with_traceback(None)

    def exception(self, timeout: float | None = None) -> MoldauError | None:
        """Why the record was not delivered, or None. Raises TimeoutError after `timeout` seconds;
        without one it waits no longer than `delivery.timeout.ms`."""
        found = self._wait(timeout)
        return None if isinstance(found, RecordMetadata) else found

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Have it called with this future: in the producer's thread, or at once if it is done."""
        self._place[0].listen(lambda: _ignore(fn(self)))

    def _wait(self, timeout: float | None) -> RecordMetadata | MoldauError:
        promise, index, timestamp_ms = self._place
        if not promise.wait(timeout):
            raise TimeoutError(f"the record was not confirmed within {timeout} seconds")
        return promise.look_up(index, timestamp_ms)

    # What `concurrent.futures.wait`, `as_completed` and `repr` look at.

    @property
    def _condition(self) -> Any:  # type: ignore[override]
        return self._place[0].condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self._place[0].is_kept else "PENDING"

    @property
    def _waiters(self) -> _Waiters:  # type: ignore[override]
        return _Waiters(self)

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self.exception(0) if self._place[0].is_kept else None

    @property
    def _result(self) -> RecordMetadata | None:  # type: ignore[override]
        found = self._wait(0) if self._place[0].is_kept else None
        return found if isinstance(found, RecordMetadata) else None


class _Waiters:
    """Stands in for the list in which `concurrent.futures` registers who waits for a future.

    It registers with every future, under the condition of each: those that are done it has counted
    already, and being told of one of them it would take for the end of another.
    """

    def __init__(self, future: RecordFuture) -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        future = self._future
        if future.done():
            return

        def tell() -> None:
            failed = future.exception(0) is not None
            (waiter.add_exception if failed else waiter.add_result)(future)

        future._place[0].listen(tell)

    def remove(self, waiter: Any) -> None:
        """It may stay: telling a waiter that has gone does nothing."""


def _ignore(value: object) -> None:
    """A callback's result has no meaning."""


class ManyFuture(Future[tuple[RecordRange, ...]]):
    """The future of the records of one `send_many`: done when all of them are."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        super().__init__()
        self._placed = placed
        self.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        when_all_are_kept(placed, self._finish)

    def result(self, timeout: float | None = None) -> tuple[RecordRange, ...]:
        """Where the records are: a range for each batch that they went into."""
        self._hurry()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why some of the records were not delivered, or None; others may have been."""
        self._hurry()
        return super().exception(timeout)

    @property
    def delivered(self) -> tuple[RecordRange, ...]:
        """Where those of the records are that are in the log, whatever became of the others."""
        ranges: list[RecordRange] = []
        for one in self._placed:
            if one.promise.is_kept:
                _collect(one.promise, one.first_index, one.record_count, ranges)
        return tuple(ranges)

    @property
    def delivered_before_failure(self) -> int:
        """How many of the records, in the order in which they were put into batches, stand before
        the first that was not delivered. Without keys that is the order in which they came."""
        ranges: list[RecordRange] = []
        for one in self._placed:
            if _collect(one.promise, one.first_index, one.record_count, ranges) is not None:
                break
        return sum(found.record_count for found in ranges)

    def _hurry(self) -> None:
        for one in self._placed:
            if not one.promise.is_kept and isinstance(one.promise, SharedPromise):
                one.promise.hurry()

    def _finish(self) -> None:
        found = ranges_of(self._placed)
        if isinstance(found, MoldauError):
            self.set_exception(found)
        else:
            self.set_result(found)


def when_all_are_kept(placed: Sequence[Placed], then: Callable[[], None]) -> None:
    """Call `then` once the batches of all these records have come to their end."""
    promises = {id(one.promise): one.promise for one in placed}
    due = len(promises) + 1
    lock = threading.Lock()  # two promises may be kept in two threads at once

    def on_kept() -> None:
        nonlocal due
        with lock:
            due -= 1
            is_last = not due
        if is_last:
            then()

    for promise in promises.values():
        promise.listen(on_kept)
    on_kept()


def ranges_of(placed: Sequence[Placed]) -> tuple[RecordRange, ...] | MoldauError:
    """Where the records of one call are, or the first thing that kept one of them from it."""
    ranges: list[RecordRange] = []
    for one in placed:
        failure = _collect(one.promise, one.first_index, one.record_count, ranges)
        if failure is not None:
            return failure
    return tuple(ranges)


def _collect(
    promise: BatchPromise, first: int, count: int, ranges: list[RecordRange]
) -> MoldauError | None:
    match promise.outcome:
        case Delivered(base_offset):
            offset = base_offset + first if base_offset >= 0 else base_offset
            ranges.append(RecordRange(*promise.partition, offset, count))
            return None
        case NotDelivered(error):
            return error
        case Divided(parts):
            return _collect_parts(parts, first, count, ranges)
        case None:
            raise InvariantViolation(f"a batch for {promise.partition} has not ended yet")


def _collect_parts(
    parts: tuple[tuple[int, BatchPromise], ...], first: int, count: int, ranges: list[RecordRange]
) -> MoldauError | None:
    ends = [start for start, _ in parts[1:]] + [first + count]
    for (start, part), end in zip(parts, ends, strict=True):
        begin, stop = max(first, start), min(first + count, end)
        if begin < stop:
            failure = _collect(part, begin - start, stop - begin, ranges)
            if failure is not None:
                return failure
    return None
