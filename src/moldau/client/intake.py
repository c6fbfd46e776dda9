"""Where records come in: any thread adds to the batches, one at a time.

Answers for the lock that users' threads and the sender share, for memory, and for waking the
sender when a batch was begun. Waiting (for memory, for a topic to be known) is the business of the
two faces, each in its own way. A shell around `rules.accumulator`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, NamedTuple

from moldau.client.rules.accumulator import Accumulator
from moldau.client.rules.producer_batches import P, ProducerBatch
from moldau.client.rules.topic_target import TopicTarget
from moldau.clock import Clock
from moldau.errors import MoldauError, RecordTooLargeError
from moldau.records.codec import count_fitting, row_size
from moldau.records.record import RecordRow

_ROOM_SHARE = 8
"""Those who wait for memory go on when this part of it is free: not for every single batch."""


class Added(NamedTuple, Generic[P]):
    """Consecutive rows that went into one batch."""

    promise: P
    first_index: int
    record_count: int


class Intake(Generic[P]):
    """Takes records while there is room. Safe for threads."""

    def __init__(self, accumulator: Accumulator[P], clock: Clock, wake: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.refusal: MoldauError | None = None  # why nothing is taken any more
        self.announce_room: Callable[[], None] = _do_nothing
        self._accumulator = accumulator
        self._clock = clock
        self._wake = wake
        self._batch_bytes = accumulator.limits.batch_bytes
        self._memory_bytes = accumulator.limits.memory_bytes
        self._max_record_bytes = accumulator.limits.request_bytes
        self._waiter_count = 0

    def add(
        self, target: TopicTarget[P], partition: int | None, row: RecordRow
    ) -> tuple[P, int] | None:
        """Put a record into a batch: the promise and its place there; None without memory."""
        size_bytes = row_size(row)
        if size_bytes > self._max_record_bytes:
            raise self._too_large(size_bytes)
        accumulator = self._accumulator
        with self.lock:  # done for every single record: few calls, by design
            if self.refusal is not None:
                raise self.refusal.with_traceback(None)
            used_bytes = accumulator.used_bytes + size_bytes
            if used_bytes > self._memory_bytes and accumulator.used_bytes:
                return None
            if partition is not None:
                batch = target.queues[partition].open
            elif row[-3] is None and target.free is not None:
                batch = target.free.open
            else:
                batch = target.find_open(row[-3])
            if batch is None or batch.size_bytes + size_bytes > self._batch_bytes:
                batch = self._begin_batch(target, partition, row[-3], size_bytes)
            accumulator.used_bytes = used_bytes
            batch.size_bytes += size_bytes
            batch.rows.append(row)
            return batch.promise, len(batch.rows) - 1

    def add_some(
        self, target: TopicTarget[P], partition: int | None, rows: list[RecordRow], start: int
    ) -> Added[P] | None:
        """Put rows from a place on into one batch, as many as fit; None without memory.

        Without a partition the rows are free to go anywhere.
        """
        first_bytes = row_size(rows[start])
        if first_bytes > self._max_record_bytes:
            raise self._too_large(first_bytes)
        accumulator = self._accumulator
        with self.lock:
            if self.refusal is not None:
                raise self.refusal.with_traceback(None)
            room = self._memory_bytes - accumulator.used_bytes
            if first_bytes > room and accumulator.used_bytes:
                return None
            batch = target.find_open(None) if partition is None else target.queues[partition].open
            if batch is None or batch.size_bytes + first_bytes > self._batch_bytes:
                batch = self._begin_batch(target, partition, None, first_bytes)
            limit = min(room, self._batch_bytes - batch.size_bytes)
            count, size_bytes = count_fitting(rows, start, limit)
            if not count:  # larger than any batch, or than all memory: it goes alone
                count, size_bytes = 1, first_bytes
            accumulator.used_bytes += size_bytes
            return Added(batch.promise, batch.add_some(rows, start, count, size_bytes), count)

    def _begin_batch(
        self, target: TopicTarget[P], partition: int | None, key: bytes | None, size_bytes: int
    ) -> ProducerBatch[P]:
        """Begin a batch where the record belongs; a free one may go elsewhere than the last."""
        queue = target.choose_anew(key) if partition is None else target.queues[partition]
        batch = queue.open
        if batch is not None and batch.size_bytes + size_bytes <= self._batch_bytes:
            return batch  # begun by others, where free records have just been sent to
        batch = self._accumulator.open_batch(queue, self._clock.monotonic())
        self._wake()
        return batch

    def _too_large(self, size_bytes: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            f"the record has about {size_bytes} bytes, max.request.size is {self._max_record_bytes}"
        )

    # Memory

    def begin_waiting(self) -> None:
        """Somebody waits for memory: nothing lingers meanwhile. Called with the lock."""
        self._waiter_count += 1
        self._accumulator.hurry_count += 1
        self._wake()

    def end_waiting(self) -> None:
        self._waiter_count -= 1
        self._accumulator.hurry_count -= 1

    @property
    def has_room(self) -> bool:
        """Whether so much memory is free that waiting has an end. Called with the lock."""
        accumulator = self._accumulator
        free = self._memory_bytes - accumulator.used_bytes
        return not accumulator.used_bytes or free * _ROOM_SHARE >= self._memory_bytes

    def maybe_announce_room(self) -> None:
        """Called by the sender after batches were finished."""
        if self._waiter_count and (self.has_room or self.refusal is not None):
            self.announce_room()

    def on_fork(self, reason: MoldauError) -> None:
        """In a child process: a thread that is not here may hold the lock for ever."""
        self.lock = threading.Lock()
        self.refusal = reason

    def refuse(self, reason: MoldauError) -> None:
        """Take nothing any more; the first reason counts."""
        with self.lock:
            if self.refusal is None:
                self.refusal = reason
        self.announce_room()


def _do_nothing() -> None:
    """Nobody waits for room."""
