"""Where sent records ended up: one result for each batch, and the futures that wait for it.

A result is complete once, when the batch has come to its end, however many records it holds; a
future of a single record is then little more than a place in the batch. `AsyncProduceResult` is
for the tasks of one loop, `SharedProduceResult` for senders in any thread.

`RecordFuture` is a `concurrent.futures.Future` in all that its users see. Making one must cost
next to nothing, so it has no lock and no state of its own: both are its batch's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeAlias

from moldau.client.producer.rules.record_accumulator import Delivered, Divided, NotDelivered
from moldau.errors import InvalidRecordError, InvariantViolation, MoldauError
from moldau.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from moldau.records.record import Headers

_log = logging.getLogger("moldau.client")

ResultListener: TypeAlias = Callable[[], None]


class ProduceResult:
    """Used by the tasks of one loop."""

    __slots__ = ("_listeners", "_parts_due", "is_complete", "outcome", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_complete = False
        self.outcome: Delivered | NotDelivered | Divided[ProduceResult] | None = None
        self._listeners: list[ResultListener] = []
        self._parts_due = 0

    def complete(self, outcome: Delivered | NotDelivered | Divided[ProduceResult]) -> None:
        """The batch has come to its end; one that was divided, when its parts have."""
        self.outcome = outcome
        if isinstance(outcome, Divided):
            self._parts_due = len(outcome.parts)
            for _, part in outcome.parts:
                part.add_listener(self._on_part_complete)
        else:
            self._notify()

    def add_listener(self, listener: ResultListener) -> None:
        """Have the listener called when the result is complete; at once if it is already."""
        if self.is_complete:
            call_listener(listener)
        else:
            self._listeners.append(listener)

    def find_record(self, index: int, timestamp_ms: int) -> RecordMetadata | MoldauError:
        """What became of the record at a place of the batch."""
        outcome = self.outcome
        if isinstance(outcome, Delivered):
            base_offset, log_append_time_ms = outcome
            return RecordMetadata(
                self.partition[0],
                self.partition[1],
                base_offset + index if base_offset != NO_OFFSET else NO_OFFSET,
                timestamp_ms if log_append_time_ms == NO_TIMESTAMP else log_append_time_ms,
            )
        if isinstance(outcome, NotDelivered):
            return _error_of(outcome, index)
        if outcome is None:
            raise InvariantViolation(f"a batch for {self.partition} has not ended yet")
        start, part = _find_part(outcome.parts, index)
        return part.find_record(index - start, timestamp_ms)

    def _notify(self) -> None:
        self.is_complete = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            call_listener(listener)

    def _on_part_complete(self) -> None:
        self._parts_due -= 1
        if not self._parts_due:
            self._notify()


class AsyncProduceResult(ProduceResult):
    """Carries the asyncio futures of its records."""

    __slots__ = ("futures",)

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition)
        # With the place of the record in the batch, and its timestamp.
        self.futures: list[tuple[asyncio.Future[RecordMetadata], int, int]] = []

    def _notify(self) -> None:
        for future, index, timestamp_ms in self.futures:
            if future.done():  # whoever waited for it has gone
                continue
            found = self.find_record(index, timestamp_ms)
            if isinstance(found, RecordMetadata):
                future.set_result(found)
            else:
                future.set_exception(found)
                future.exception()  # seen: the sender has logged it, once for the batch
        self.futures.clear()
        super()._notify()


class SharedProduceResult(ProduceResult):
    """Kept by the loop, waited for by any thread."""

    __slots__ = ("_stop_lingering", "condition")

    def __init__(
        self, partition: TopicPartition, stop_lingering: Callable[[SharedProduceResult], None]
    ) -> None:
        super().__init__(partition)
        self.condition = threading.Condition()
        self._stop_lingering = stop_lingering

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until it is kept; False when it was not in time. A batch that somebody waits for
        does not linger."""
        if self.is_complete:
            return True
        self.stop_lingering()
        with self.condition:
            return self.condition.wait_for(lambda: self.is_complete, timeout_seconds)

    def stop_lingering(self) -> None:
        """Do not let the batch wait for more records."""
        self._stop_lingering(self)

    def add_listener(self, listener: ResultListener) -> None:
        with self.condition:
            if not self.is_complete:
                self._listeners.append(listener)
                return
        call_listener(listener)

    def _notify(self) -> None:
        with self.condition:
            self.is_complete = True
            listeners, self._listeners = self._listeners, []
            self.condition.notify_all()
        for listener in listeners:
            call_listener(listener)


AppendedRecord: TypeAlias = tuple[ProduceResult, int, int]
"""Where a record was put: the result of its batch, the place in it, and the record's timestamp."""


class AppendedRecords(NamedTuple):
    """Consecutive records of one call, in one batch."""

    result: ProduceResult
    first_index: int
    record_count: int


def call_listener(listener: ResultListener) -> None:
    """A listener of the user's must not end the producer's own work."""
    try:
        listener()
    except Exception:  # noqa: BLE001 the code behind it is not ours
        _log.exception("a callback of a producer failed")


def _error_of(outcome: NotDelivered, index: int) -> MoldauError:
    if not outcome.record_faults:
        return outcome.error
    fault = outcome.record_faults.get(index)
    if fault is not None:
        return InvalidRecordError(fault, ((index, fault),))
    return InvalidRecordError(f"another record of the same batch was refused: {outcome.error}")


def _find_part(
    parts: tuple[tuple[int, ProduceResult], ...], index: int
) -> tuple[int, ProduceResult]:
    return parts[bisect_right(parts, index, key=lambda part: part[0]) - 1]


# What a producer takes and gives


class RecordMetadata(NamedTuple):
    """Where a record is. The offset is -1 with acks=0, and where a broker did not tell it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class RecordRange(NamedTuple):
    """Where consecutive records of one `send_many` are. With acks=0 the offset is -1."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


class OutgoingRecord(NamedTuple):
    """A record as `send` was given it, before serializers and partitioner have seen it."""

    topic: str
    value: object = None
    key: object = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class Interceptor(Protocol):
    """Sees every record on its way out and every outcome. What it raises is logged, not raised."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Called in the thread of `send`; what it returns is sent instead."""
        ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Called once for each record, in the producer's own thread; one of the two is None."""
        ...


# Futures of records: of one, and of many that were sent together


class RecordFuture(Future[RecordMetadata]):
    """The future of one record. It cannot be cancelled: the record may be on its way."""

    def __init__(self, place: tuple[SharedProduceResult, int, int]) -> None:
        # Not the base's: what it would set up is the result's, see below.
        self._place = place

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self._place[0].is_complete

    def done(self) -> bool:
        return self._place[0].is_complete

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
        self._place[0].add_listener(lambda: _ignore_value(fn(self)))

    def _wait(self, timeout: float | None) -> RecordMetadata | MoldauError:
        result, index, timestamp_ms = self._place
        if not result.wait(timeout):
            raise TimeoutError(f"the record was not confirmed within {timeout} seconds")
        return result.find_record(index, timestamp_ms)

    # What `concurrent.futures.wait`, `as_completed` and `repr` look at.

    @property
    def _condition(self) -> Any:  # type: ignore[override]
        return self._place[0].condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self._place[0].is_complete else "PENDING"

    @property
    def _waiters(self) -> _Waiters:  # type: ignore[override]
        return _Waiters(self)

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self.exception(0) if self._place[0].is_complete else None

    @property
    def _result(self) -> RecordMetadata | None:  # type: ignore[override]
        found = self._wait(0) if self._place[0].is_complete else None
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

        def notify_waiter() -> None:
            failed = future.exception(0) is not None
            (waiter.add_exception if failed else waiter.add_result)(future)

        future._place[0].add_listener(notify_waiter)

    def remove(self, waiter: Any) -> None:
        """It may stay: telling a waiter that has gone does nothing."""


def _ignore_value(value: object) -> None:
    """A callback's result has no meaning."""


class ManyFuture(Future[tuple[RecordRange, ...]]):
    """The future of the records of one `send_many`: done when all of them are."""

    def __init__(self, appended: Sequence[AppendedRecords]) -> None:
        super().__init__()
        self._placed = appended
        self.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        when_all_complete(appended, self._finish)

    def result(self, timeout: float | None = None) -> tuple[RecordRange, ...]:
        """Where the records are: a range for each batch that they went into."""
        self._stop_lingering()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why some of the records were not delivered, or None; others may have been."""
        self._stop_lingering()
        return super().exception(timeout)

    @property
    def delivered(self) -> tuple[RecordRange, ...]:
        """Where those of the records are that are in the log, whatever became of the others."""
        ranges: list[RecordRange] = []
        for one in self._placed:
            if one.result.is_complete:
                _collect_ranges(one.result, one.first_index, one.record_count, ranges)
        return tuple(ranges)

    @property
    def delivered_before_failure(self) -> int:
        """How many of the records, in the order in which they were put into batches, stand before
        the first that was not delivered. Without keys that is the order in which they came."""
        ranges: list[RecordRange] = []
        for one in self._placed:
            if _collect_ranges(one.result, one.first_index, one.record_count, ranges) is not None:
                break
        return sum(found.record_count for found in ranges)

    def _stop_lingering(self) -> None:
        for one in self._placed:
            if not one.result.is_complete and isinstance(one.result, SharedProduceResult):
                one.result.stop_lingering()

    def _finish(self) -> None:
        found = find_ranges(self._placed)
        if isinstance(found, MoldauError):
            self.set_exception(found)
        else:
            self.set_result(found)


def when_all_complete(appended: Sequence[AppendedRecords], then: Callable[[], None]) -> None:
    """Call `then` once the batches of all these records have come to their end."""
    results = {id(one.result): one.result for one in appended}
    due = len(results) + 1
    lock = threading.Lock()  # two results may be completed in two threads at once

    def on_complete() -> None:
        nonlocal due
        with lock:
            due -= 1
            is_last = not due
        if is_last:
            then()

    for result in results.values():
        result.add_listener(on_complete)
    on_complete()


def find_ranges(appended: Sequence[AppendedRecords]) -> tuple[RecordRange, ...] | MoldauError:
    """Where the records of one call are, or the first thing that kept one of them from it."""
    ranges: list[RecordRange] = []
    for one in appended:
        failure = _collect_ranges(one.result, one.first_index, one.record_count, ranges)
        if failure is not None:
            return failure
    return tuple(ranges)


def _collect_ranges(
    result: ProduceResult, first: int, count: int, ranges: list[RecordRange]
) -> MoldauError | None:
    match result.outcome:
        case Delivered(base_offset):
            offset = base_offset + first if base_offset >= 0 else base_offset
            ranges.append(RecordRange(*result.partition, offset, count))
            return None
        case NotDelivered(error):
            return error
        case Divided(parts):
            return _collect_parts(parts, first, count, ranges)
        case None:
            raise InvariantViolation(f"a batch for {result.partition} has not ended yet")


def _collect_parts(
    parts: tuple[tuple[int, ProduceResult], ...], first: int, count: int, ranges: list[RecordRange]
) -> MoldauError | None:
    ends = [start for start, _ in parts[1:]] + [first + count]
    for (start, part), end in zip(parts, ends, strict=True):
        begin, stop = max(first, start), min(first + count, end)
        if begin < stop:
            failure = _collect_ranges(part, begin - start, stop - begin, ranges)
            if failure is not None:
                return failure
    return None
