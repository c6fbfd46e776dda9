"""Where records come in: any thread puts them into batches, one at a time.

Answers for what happens to a record in `send`, for the lock that users' threads and the machine's
turns share, for memory, and for waking the machine when a batch was begun. Waiting (for memory, for
a topic to be known) is the business of whoever puts. A shell around `rules.producer_machine`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from moldau.client.batch_promises import BatchPromise
from moldau.client.producer_values import RecordMetadata
from moldau.client.record_preparer import (
    GivenHeaders,
    RecordPreparer,
    as_payload,
    make_headers,
    require_timestamp,
)
from moldau.client.rules.producer_batches import ProducerBatch
from moldau.client.rules.producer_machine import ProducerMachine
from moldau.client.rules.topic_target import TopicTarget
from moldau.clock import Clock
from moldau.errors import BufferFullError, MoldauError, RecordTooLargeError, TopicNotReadyError
from moldau.records.codec import count_fitting, row_size
from moldau.records.record import RecordRow

_ROOM_SHARE = 8
"""Those who wait for memory go on when this part of it is free: not for every single batch."""

CustomPartitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""Chooses a partition from topic, key, value and the number of partitions."""

Place: TypeAlias = tuple[BatchPromise, int, int]
"""Where a record was put: the promise of its batch, the place in it, and the record's timestamp."""


class Placed(NamedTuple):
    """Consecutive records of one call, in one batch."""

    promise: BatchPromise
    first_index: int
    record_count: int


class NotPlacedError(Exception):
    """A record is in no batch yet: its topic is not known, or memory is used up.

    Raised rather than returned, so that a record that can be placed costs nothing more.
    """

    def __init__(self, topic: str, partition: int | None, row: RecordRow) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition
        self.row = row


class Waiting(Protocol):
    """How whoever puts records waits: its task does, or its thread."""

    async def wait_for_topic(self, topic: str) -> TopicTarget[BatchPromise]:
        """Until the topic is known, as it is now; raises why it is not."""
        ...

    async def wait_for_room(self, size_bytes: int, deadline: float) -> None:
        """Until there is so much memory; raises BufferFullError."""
        ...

    async def let_others_go_on(self) -> None:
        """A batch was begun: those before it may be sent."""
        ...


class Intake:
    """Takes records while there is room. Safe for threads."""

    def __init__(
        self,
        machine: ProducerMachine[BatchPromise],
        preparer: RecordPreparer,
        choose_partition: CustomPartitioner | None,
        clock: Clock,
        wake: Callable[[], None],
        *,
        max_block_seconds: float,
    ) -> None:
        self.lock = threading.Lock()
        self.refusal: MoldauError | None = None  # why nothing is taken, at the moment or any more
        self._is_final = False  # and nothing ever will be
        self._machine = machine
        self._preparer = preparer
        self._choose_partition = choose_partition
        self._is_plain = preparer.is_plain and choose_partition is None
        self._clock = clock
        self._now_ms = clock.now_ms
        self._wake = wake
        self._max_block_seconds = max_block_seconds
        self._targets = machine.topics
        self._batch_bytes = machine.settings.batch_bytes
        self._memory_bytes = machine.settings.memory_bytes
        self._max_record_bytes = machine.settings.request_bytes

    # One record

    def put(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
        row: RecordRow | None = None,
    ) -> Place:
        """Put a record into a batch: what `send` was given, or a row that is made already.

        Raises NotPlacedError. Called for every single record, and therefore in one piece.
        """
        if row is None:
            if not self._is_plain:
                return self._put_prepared(
                    *self._preparer.prepare(topic, value, key, partition, timestamp_ms, headers)
                )
            row = (
                self._now_ms() if timestamp_ms is None else require_timestamp(timestamp_ms),
                key if key is None or type(key) is bytes else as_payload(key, "key"),
                value if type(value) is bytes else as_payload(value, "value"),
                make_headers(headers) if headers else (),
            )
        target = self._targets.get(topic)
        if target is None or (partition is not None and not 0 <= partition < len(target.queues)):
            raise NotPlacedError(topic, partition, row)
        size_bytes = row_size(row)
        if size_bytes > self._max_record_bytes:
            raise self._too_large(size_bytes)
        machine = self._machine
        with self.lock:
            if self.refusal is not None:
                raise self.refusal.with_traceback(None)
            used_bytes = machine.used_bytes + size_bytes
            if used_bytes > self._memory_bytes and machine.used_bytes:
                raise NotPlacedError(topic, partition, row)
            if partition is not None:
                batch = target.queues[partition].open
            else:
                own_key, free = row[-3], target.free
                if own_key is None and free is not None:
                    batch = free.open
                else:
                    batch = target.find_open(own_key)
            if batch is None or batch.size_bytes + size_bytes > self._batch_bytes:
                batch = self._begin_batch(target, partition, row[-3], size_bytes)
            machine.used_bytes = used_bytes
            batch.size_bytes += size_bytes
            batch.rows.append(row)
            return batch.promise, len(batch.rows) - 1, row[0]

    def _put_prepared(self, topic: str, partition: int | None, row: RecordRow) -> Place:
        """Put a row where the user's own partitioner says, and have interceptors told of it."""
        if partition is None and self._choose_partition is not None:
            target = self._targets.get(topic)
            if target is None:
                raise NotPlacedError(topic, partition, row)
            partition = self._choose_partition(topic, row[-3], row[-2], len(target.queues))
            target.require_queue(partition)
        place = self.put(topic, None, None, partition, None, (), row)
        if self._preparer.interceptors:
            self._acknowledge_later(*place)
        return place

    async def put_later(self, left: NotPlacedError, waiting: Waiting) -> Place:
        """Put a record that could not be put at once."""
        deadline = self._clock.monotonic() + self._max_block_seconds
        await self.require_target(left.topic, left.partition, waiting)
        while True:
            try:
                return self._put_prepared(left.topic, left.partition, left.row)
            except NotPlacedError:
                await waiting.wait_for_room(row_size(left.row), deadline)

    def explain(self, left: NotPlacedError) -> MoldauError:
        """Why a record cannot be put at once."""
        if self.refusal is not None:
            return self.refusal.with_traceback(None)
        target = self._targets.get(left.topic)
        if target is None:
            return TopicNotReadyError(
                f"the partitions of topic {left.topic!r} are not known yet; send the first "
                "record with `await producer.send(...)`"
            )
        if left.partition is not None:
            target.require_queue(left.partition)
        return self.no_room()

    def no_room(self) -> BufferFullError:
        return BufferFullError(
            f"the {self._memory_bytes} bytes of buffer.memory are used up: records come "
            "faster than brokers take them"
        )

    async def require_target(
        self, topic: str, partition: int | None, waiting: Waiting
    ) -> TopicTarget[BatchPromise]:
        """The topic, asked for if it is new, or if it may have got that partition since."""
        target = self._targets.get(topic)
        if target is None or (partition is not None and partition >= len(target.queues)):
            if self.refusal is not None:
                raise self.refusal.with_traceback(None)
            target = await waiting.wait_for_topic(topic)
        if partition is not None:
            target.require_queue(partition)
        return target

    def _acknowledge_later(self, promise: BatchPromise, index: int, timestamp_ms: int) -> None:
        def acknowledge() -> None:
            found = promise.look_up(index, timestamp_ms)
            is_there = isinstance(found, RecordMetadata)
            self._preparer.acknowledge(*((found, None) if is_there else (None, found)))

        promise.listen(acknowledge)

    # Many records

    async def put_many(
        self,
        waiting: Waiting,
        topic: str,
        values: Iterable[object],
        keys: Iterable[object] | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> list[Placed]:
        """Put what `send_many` was given into batches, waiting as often as it takes."""
        placed: list[Placed] = []
        if self._preparer.interceptors or self._choose_partition is not None:
            for one in self._preparer.pair(values, keys, timestamp_ms, headers):
                try:
                    place = self.put(
                        topic, one.value, one.key, partition, one.timestamp_ms, one.headers
                    )
                except NotPlacedError as left:
                    place = await self.put_later(left, waiting)
                placed.append(Placed(place[0], place[1], 1))
                await waiting.let_others_go_on()
            return placed
        target = await self.require_target(topic, partition, waiting)
        for chunk in self._preparer.make_rows(values, keys, timestamp_ms, headers):
            for where, rows in target.split(partition, chunk):
                await self._put_rows(waiting, target, where, rows, placed)
        return placed

    async def _put_rows(
        self,
        waiting: Waiting,
        target: TopicTarget[BatchPromise],
        partition: int | None,
        rows: list[RecordRow],
        placed: list[Placed],
    ) -> None:
        start = 0
        deadline: float | None = None
        while start < len(rows):
            added = self._put_some(target, partition, rows, start)
            if added is None:
                if deadline is None:
                    deadline = self._clock.monotonic() + self._max_block_seconds
                await waiting.wait_for_room(row_size(rows[start]), deadline)
                continue
            deadline = None
            placed.append(added)
            start += added.record_count
            await waiting.let_others_go_on()

    def _put_some(
        self,
        target: TopicTarget[BatchPromise],
        partition: int | None,
        rows: list[RecordRow],
        start: int,
    ) -> Placed | None:
        """Put rows from a place on into one batch, as many as fit; None without memory.

        Without a partition the rows are free to go anywhere.
        """
        first_bytes = row_size(rows[start])
        if first_bytes > self._max_record_bytes:
            raise self._too_large(first_bytes)
        machine = self._machine
        with self.lock:
            if self.refusal is not None:
                raise self.refusal.with_traceback(None)
            room = self._memory_bytes - machine.used_bytes
            if first_bytes > room and machine.used_bytes:
                return None
            batch = target.find_open(None) if partition is None else target.queues[partition].open
            if batch is None or batch.size_bytes + first_bytes > self._batch_bytes:
                batch = self._begin_batch(target, partition, None, first_bytes)
            limit = min(room, self._batch_bytes - batch.size_bytes)
            count, size_bytes = count_fitting(rows, start, limit)
            if not count:  # larger than any batch, or than all memory: it goes alone
                count, size_bytes = 1, first_bytes
            machine.used_bytes += size_bytes
            return Placed(batch.promise, batch.add_some(rows, start, count, size_bytes), count)

    def _begin_batch(
        self,
        target: TopicTarget[BatchPromise],
        partition: int | None,
        key: bytes | None,
        size_bytes: int,
    ) -> ProducerBatch[BatchPromise]:
        """Begin a batch where the record belongs; a free one may go elsewhere than the last."""
        queue = target.choose_anew(key) if partition is None else target.queues[partition]
        batch = queue.open
        if batch is not None and batch.size_bytes + size_bytes <= self._batch_bytes:
            return batch  # begun by others, where free records have just been sent to
        batch = self._machine.open_batch(queue, self._clock.monotonic())
        self._wake()
        return batch

    def _too_large(self, size_bytes: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            f"the record has about {size_bytes} bytes, max.request.size is {self._max_record_bytes}"
        )

    # Memory

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much memory is free that waiting for it has an end."""
        used_bytes = self._machine.used_bytes
        free = self._memory_bytes - used_bytes
        return not used_bytes or (free >= size_bytes and free * _ROOM_SHARE >= self._memory_bytes)

    def refuse(self, reason: MoldauError) -> None:
        """Take nothing any more; the first reason counts."""
        with self.lock:
            if not self._is_final:
                self.refusal = reason
                self._is_final = True

    def refuse_for_now(self, reason: MoldauError | None) -> None:
        """Take nothing until told otherwise: by None. Called with the lock."""
        if not self._is_final:
            self.refusal = reason

    def on_fork(self, reason: MoldauError) -> None:
        """In a child process: a thread that is not here may hold the lock for ever."""
        self.lock = threading.Lock()
        self.refusal = reason
