"""What the senders of a batch wait for: one promise for all its records.

A promise is kept once, when the batch has come to its end, however many records it holds; a future
of a single record is then little more than a place in the batch. `AsyncPromise` is for the tasks of
one loop, `SharedPromise` for senders in any thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from moldau.client.producer_values import RecordMetadata
from moldau.client.rules.producer_instructions import Delivered, Divided, NotDelivered
from moldau.errors import InvalidRecordError, InvariantViolation, MoldauError
from moldau.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition

_log = logging.getLogger("moldau.client")

PromiseListener: TypeAlias = Callable[[], None]


class BatchPromise:
    """Used by the tasks of one loop."""

    __slots__ = ("_listeners", "_parts_due", "is_kept", "outcome", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_kept = False
        self.outcome: Delivered | NotDelivered | Divided[BatchPromise] | None = None
        self._listeners: list[PromiseListener] = []
        self._parts_due = 0

    def keep(self, outcome: Delivered | NotDelivered | Divided[BatchPromise]) -> None:
        """The batch has come to its end; one that was divided, when its parts have."""
        self.outcome = outcome
        if isinstance(outcome, Divided):
            self._parts_due = len(outcome.parts)
            for _, part in outcome.parts:
                part.listen(self._on_part_kept)
        else:
            self._complete()

    def listen(self, listener: PromiseListener) -> None:
        """Have the listener called when the promise is kept; at once if it is already."""
        if self.is_kept:
            call_safely(listener)
        else:
            self._listeners.append(listener)

    def look_up(self, index: int, timestamp_ms: int) -> RecordMetadata | MoldauError:
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
        start, part = _part_with(outcome.parts, index)
        return part.look_up(index - start, timestamp_ms)

    def _complete(self) -> None:
        self.is_kept = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            call_safely(listener)

    def _on_part_kept(self) -> None:
        self._parts_due -= 1
        if not self._parts_due:
            self._complete()


class AsyncPromise(BatchPromise):
    """Carries the asyncio futures of its records."""

    __slots__ = ("futures",)

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition)
        # With the place of the record in the batch, and its timestamp.
        self.futures: list[tuple[asyncio.Future[RecordMetadata], int, int]] = []

    def _complete(self) -> None:
        for future, index, timestamp_ms in self.futures:
            if future.done():  # whoever waited for it has gone
                continue
            found = self.look_up(index, timestamp_ms)
            if isinstance(found, RecordMetadata):
                future.set_result(found)
            else:
                future.set_exception(found)
                future.exception()  # seen: the sender has logged it, once for the batch
        self.futures.clear()
        super()._complete()


class SharedPromise(BatchPromise):
    """Kept by the loop, waited for by any thread."""

    __slots__ = ("_hurry", "condition")

    def __init__(self, partition: TopicPartition, hurry: Callable[[SharedPromise], None]) -> None:
        super().__init__(partition)
        self.condition = threading.Condition()
        self._hurry = hurry

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until it is kept; False when it was not in time. A batch that somebody waits for
        does not linger."""
        if self.is_kept:
            return True
        self.hurry()
        with self.condition:
            return self.condition.wait_for(lambda: self.is_kept, timeout_seconds)

    def hurry(self) -> None:
        """Do not let the batch wait for more records."""
        self._hurry(self)

    def listen(self, listener: PromiseListener) -> None:
        with self.condition:
            if not self.is_kept:
                self._listeners.append(listener)
                return
        call_safely(listener)

    def _complete(self) -> None:
        with self.condition:
            self.is_kept = True
            listeners, self._listeners = self._listeners, []
            self.condition.notify_all()
        for listener in listeners:
            call_safely(listener)


Place: TypeAlias = tuple[BatchPromise, int, int]
"""Where a record was put: the promise of its batch, the place in it, and the record's timestamp."""


class Placed(NamedTuple):
    """Consecutive records of one call, in one batch."""

    promise: BatchPromise
    first_index: int
    record_count: int


def call_safely(listener: PromiseListener) -> None:
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


def _part_with(parts: tuple[tuple[int, BatchPromise], ...], index: int) -> tuple[int, BatchPromise]:
    return parts[bisect_right(parts, index, key=lambda part: part[0]) - 1]
