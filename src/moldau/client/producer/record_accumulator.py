"""The record accumulator: any thread puts records into batches, one at a time.

Answers for what happens to a record in `send`, for the lock that users' threads and the machine's
turns share, for memory, and for waking the machine when a batch was begun. Waiting (for memory,
for a topic to be known) is the business of the caller. A shell around `rules.sender`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from moldau.client.producer.produce_result import (
    AppendedRecord,
    AppendedRecords,
    ProduceResult,
    RecordMetadata,
)
from moldau.client.producer.rules.built_in_partitioner import PartitionedTopic
from moldau.client.producer.rules.record_accumulator import ProducerBatch
from moldau.client.producer.rules.sender import ProducerMachine
from moldau.client.producer.serializers import (
    GivenHeaders,
    NotSerializedError,
    RecordSerializer,
    as_payload,
    make_headers,
    require_several,
    require_timestamp,
)
from moldau.client.rules.arguments import require_topic, require_whole
from moldau.clock import Clock
from moldau.errors import BufferFullError, MoldauError, RecordTooLargeError, TopicNotReadyError
from moldau.records.batch_header import Buffer
from moldau.records.codec import ColumnEncoding, count_fitting, row_size
from moldau.records.lines import LINE_END, TextLines
from moldau.records.record import RECORD_OVERHEAD_BYTES, RecordRow

_FREE_SHARE = 8
"""Those who wait for memory go on when this part of it is free: not for every single batch."""

CustomPartitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""Chooses a partition from topic, key, value and the number of partitions."""


class NotAppendedError(Exception):
    """A record is in no batch yet: its topic is not known, or memory is used up.

    Raised rather than returned, so that a record that can be placed costs nothing more.
    """

    def __init__(self, topic: str, partition: int | None, row: RecordRow) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition
        self.row = row


class AppendWaiter(Protocol):
    """How whoever puts records waits: its task does, or its thread."""

    async def wait_for_topic(self, topic: str) -> PartitionedTopic[ProduceResult]:
        """Until the topic is known, as it is now; raises why it is not."""
        ...

    async def wait_for_memory(self, size_bytes: int, deadline: float) -> None:
        """Until there is so much memory; raises BufferFullError."""
        ...

    async def yield_to_sender(self) -> None:
        """A batch was begun: those before it may be sent."""
        ...

    async def run_work(self, work: Callable[[], object]) -> None:
        """Until something is done that waits for others than brokers."""
        ...


class RecordAccumulator:
    """Takes records while there is room. Safe for threads."""

    def __init__(
        self,
        machine: ProducerMachine[ProduceResult],
        serializer: RecordSerializer,
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
        self._serializer = serializer
        self._choose_partition = choose_partition
        self._is_plain = serializer.is_plain and choose_partition is None
        self._clock = clock
        self._now_ms = clock.now_ms
        self._wake = wake
        self._max_block_seconds = max_block_seconds
        self._topics = machine.topics
        self._batch_bytes = machine.settings.batch_bytes
        self._memory_bytes = machine.settings.memory_bytes
        self._max_record_bytes = machine.settings.request_bytes

    # One record

    def append(  # noqa: C901 in one piece, as it says
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
        row: RecordRow | None = None,
    ) -> AppendedRecord:
        """Put a record into a batch: what `send` was given, or a row that is made already.

        Raises NotPlacedError, NotSerializedError. Called for every single record, and therefore
        in one piece.
        """
        if row is None:
            if not self._is_plain:
                return self._append_prepared(
                    *self._serializer.prepare(topic, value, key, partition, timestamp_ms, headers)
                )
            row = (
                self._now_ms() if timestamp_ms is None else require_timestamp(timestamp_ms),
                key if key is None or type(key) is bytes else as_payload(key, "key"),
                value if type(value) is bytes else as_payload(value, "value"),
                make_headers(headers) if headers else (),
            )
        try:
            target = self._topics.get(topic)
            if target is None or (
                partition is not None and not 0 <= partition < len(target.queues)
            ):
                raise NotAppendedError(topic, partition, row)
        except TypeError:  # it is told why by whoever has the time
            raise NotAppendedError(topic, partition, row) from None
        size_bytes = row_size(row)
        if size_bytes > self._max_record_bytes:
            raise self._too_large(size_bytes)
        machine = self._machine
        with self.lock:
            if self.refusal is not None:
                raise self.refusal.with_traceback(None)
            used_bytes = machine.used_bytes + size_bytes
            if used_bytes > self._memory_bytes and machine.used_bytes:
                raise NotAppendedError(topic, partition, row)
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
            return batch.result, len(batch.rows) - 1, row[0]

    def _append_prepared(self, topic: str, partition: int | None, row: RecordRow) -> AppendedRecord:
        """Put a row where the user's own partitioner says, and have interceptors told of it."""
        if partition is None and self._choose_partition is not None:
            target = self._topics.get(topic)
            if target is None:
                raise NotAppendedError(topic, partition, row)
            partition = self._choose_partition(topic, row[-3], row[-2], len(target.queues))
            target.require_queue(partition)
        place = self.append(topic, None, None, partition, None, (), row)
        if self._serializer.interceptors:
            self._acknowledge_later(*place)
        return place

    async def append_later(
        self, left: NotAppendedError | NotSerializedError, waiter: AppendWaiter
    ) -> AppendedRecord:
        """Put a record that could not be put at once."""
        if isinstance(left, NotSerializedError):
            await self._learn_serializers(left.record.topic, waiter)
            row = self._serializer.make_row(left.record)
            left = NotAppendedError(left.record.topic, left.record.partition, row)
        deadline = self._clock.monotonic() + self._max_block_seconds
        await self.require_partitioned_topic(left.topic, left.partition, waiter)
        while True:
            try:
                return self._append_prepared(left.topic, left.partition, left.row)
            except NotAppendedError:
                await waiter.wait_for_memory(row_size(left.row), deadline)

    async def _learn_serializers(self, topic: str, waiter: AppendWaiter) -> None:
        if not self._serializer.is_ready_for(topic):
            await waiter.run_work(lambda: self._serializer.find_serializers(topic))

    def explain_not_appended(self, left: NotAppendedError | NotSerializedError) -> MoldauError:
        """Why a record cannot be put at once."""
        if self.refusal is not None:
            return self.refusal.with_traceback(None)
        if isinstance(left, NotSerializedError):
            return TopicNotReadyError(
                f"the serializers have not been asked for topic {left.record.topic!r} yet; send "
                "the first record with `send`"
            )
        _require_types(left.topic, left.partition)
        target = self._topics.get(left.topic)
        if target is None:
            return TopicNotReadyError(
                f"the partitions of topic {left.topic!r} are not known yet; send the first "
                "record with `await producer.send(...)`"
            )
        if left.partition is not None:
            target.require_queue(left.partition)
        return self.explain_no_memory()

    def explain_no_memory(self) -> BufferFullError:
        return BufferFullError(
            f"the {self._memory_bytes} bytes of buffer.memory are used up: records come "
            "faster than brokers take them"
        )

    async def require_partitioned_topic(
        self, topic: str, partition: int | None, waiter: AppendWaiter, *, to_send: bool = True
    ) -> PartitionedTopic[ProduceResult]:
        """The topic, asked for if it is new, or if it may have got that partition since.

        What refuses records for now, such as that no transaction is open, refuses no question.
        """
        _require_types(topic, partition)
        target = self._topics.get(topic)
        if target is None or (partition is not None and partition >= len(target.queues)):
            if self.refusal is not None and (to_send or self._is_final):
                raise self.refusal.with_traceback(None)
            target = await waiter.wait_for_topic(topic)
        if partition is not None:
            target.require_queue(partition)
        return target

    def _acknowledge_later(self, result: ProduceResult, index: int, timestamp_ms: int) -> None:
        def acknowledge() -> None:
            found = result.find_record(index, timestamp_ms)
            is_there = isinstance(found, RecordMetadata)
            self._serializer.acknowledge(*((found, None) if is_there else (None, found)))

        result.add_listener(acknowledge)

    # Many records

    async def append_many(
        self,
        waiter: AppendWaiter,
        topic: str,
        values: Iterable[object],
        keys: Iterable[object] | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> list[AppendedRecords]:
        """Put what `send_many` was given into batches, waiting as often as it takes."""
        appended: list[AppendedRecords] = []
        require_several("values", values)
        require_several("keys", () if keys is None else keys)
        if self._serializer.interceptors or self._choose_partition is not None:
            for one in self._serializer.pair(values, keys, timestamp_ms, headers):
                try:
                    place = self.append(
                        topic, one.value, one.key, partition, one.timestamp_ms, one.headers
                    )
                except (NotAppendedError, NotSerializedError) as left:
                    place = await self.append_later(left, waiter)
                appended.append(AppendedRecords(place[0], place[1], 1))
                await waiter.yield_to_sender()
            return appended
        await self._learn_serializers(topic, waiter)
        target = await self.require_partitioned_topic(topic, partition, waiter)
        if isinstance(values, TextLines) and self._are_packed(values, keys, headers, target):
            where = target.place_for_free(partition)
            lines = PendingLines(values, self.timestamp_for(timestamp_ms))
            await self._append_all(waiter, target, where, lines, appended)
            return appended
        for chunk in self._serializer.make_rows(topic, values, keys, timestamp_ms, headers):
            for where, rows in target.split(partition, chunk):
                await self._append_all(waiter, target, where, PendingRows(rows), appended)
        return appended

    @property
    def takes_columns(self) -> bool:
        """Whether `append_columns` can be called: nothing is to be done to any single record."""
        return self._is_plain

    @property
    def serializes(self) -> tuple[bool, bool]:
        """Whether keys and values are what serializers make of them."""
        return self._serializer.serializes

    def timestamp_for(self, timestamp_ms: int | None) -> int:
        """Of records that have none of their own."""
        return self._now_ms() if timestamp_ms is None else require_timestamp(timestamp_ms)

    async def append_columns(
        self, waiter: AppendWaiter, topic: str, columns: ColumnEncoding, partition: int | None
    ) -> list[AppendedRecords]:
        """Put the rows of columns into batches, waiting as often as it takes."""
        appended: list[AppendedRecords] = []
        target = await self.require_partitioned_topic(topic, partition, waiter)
        for where, rows in target.split_columns(partition, columns):
            await self._append_all(waiter, target, where, PendingColumns(columns, rows), appended)
        return appended

    def _are_packed(
        self,
        lines: TextLines,
        keys: Iterable[object] | None,
        headers: GivenHeaders,
        target: PartitionedTopic[ProduceResult],
    ) -> bool:
        """Whether lines go into batches as they are: nothing is to be done to any one of them."""
        return (
            lines.are_plain and keys is None and not headers and self._is_plain and target.is_sticky
        )

    async def _append_all(
        self,
        waiter: AppendWaiter,
        target: PartitionedTopic[ProduceResult],
        partition: int | None,
        records: PendingRecords,
        appended: list[AppendedRecords],
    ) -> None:
        deadline: float | None = None
        while (next_bytes := records.next_bytes()) is not None:
            added = self._append_some(target, partition, records, next_bytes)
            if added is None:
                if deadline is None:
                    deadline = self._clock.monotonic() + self._max_block_seconds
                await waiter.wait_for_memory(next_bytes, deadline)
                continue
            deadline = None
            appended.append(added)
            await waiter.yield_to_sender()

    def _append_some(
        self,
        target: PartitionedTopic[ProduceResult],
        partition: int | None,
        records: PendingRecords,
        first_bytes: int,
    ) -> AppendedRecords | None:
        """Put records into one batch, as many as fit; None without memory.

        Without a partition they are free to go anywhere.
        """
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
            first_index = len(batch)
            # One that is larger than any batch, or than all memory, goes alone.
            count, size_bytes = records.move_into(batch, max(limit, first_bytes))
            machine.used_bytes += size_bytes
            return AppendedRecords(batch.result, first_index, count)

    def _begin_batch(
        self,
        target: PartitionedTopic[ProduceResult],
        partition: int | None,
        key: bytes | None,
        size_bytes: int,
    ) -> ProducerBatch[ProduceResult]:
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

    def has_memory(self, size_bytes: int) -> bool:
        """Whether so much memory is free that waiting for it has an end."""
        used_bytes = self._machine.used_bytes
        free = self._memory_bytes - used_bytes
        return not used_bytes or (free >= size_bytes and free * _FREE_SHARE >= self._memory_bytes)

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


def _require_types(topic: object, partition: int | None) -> None:
    require_topic(topic)
    if partition is not None:
        require_whole(partition, "partition", "its number, counted from 0")


# Arrow tables. Columns go into batches as they are, unless a serializer, an interceptor or a
# partitioner of the program's looks at each record.


async def append_arrow(
    accumulator: RecordAccumulator,
    waiter: AppendWaiter,
    topic: str,
    table: object,
    partition: int | None,
    timestamp_ms: int | None,
) -> list[AppendedRecords]:
    """Put the rows of a table into batches, piece by piece, waiting as often as it takes."""
    from moldau.arrow.outgoing import find_bounds, require_value, to_batches, to_encoder, to_rows

    appended: list[AppendedRecords] = []
    for piece in to_batches(table):
        require_value(piece)
        bounds = find_bounds(piece) if partition is None else None
        if bounds is not None:
            await accumulator.require_partitioned_topic(topic, bounds.highest, waiter)
            await accumulator.require_partitioned_topic(topic, bounds.lowest, waiter)
        if accumulator.takes_columns:
            columns = to_encoder(piece, accumulator.timestamp_for(timestamp_ms))
            appended += await accumulator.append_columns(waiter, topic, columns, partition)
            continue
        keep_keys, keep_values = accumulator.serializes
        for named, rows in to_rows(
            piece,
            keep_keys=keep_keys,
            keep_values=keep_values,
            ignores_partitions=partition is not None,
        ):
            where = named if partition is None else partition
            appended += await accumulator.append_many(
                waiter, topic, rows, None, where, timestamp_ms, ()
            )
    return appended


# Records of one call that are in no batch yet, in order: rows, lines of a text, columns


class PendingRecords(Protocol):
    """What is left to be put into batches."""

    def next_bytes(self) -> int | None:
        """About what the next record takes in a batch; None when there is none."""

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        """Put as many as fit into so many bytes, one at least; how many they are, and about what
        they take."""


class PendingRows:
    """Rows, each with a timestamp, a key, a value and headers."""

    def __init__(self, rows: list[RecordRow]) -> None:
        self._rows = rows
        self._next = 0

    def next_bytes(self) -> int | None:
        return row_size(self._rows[self._next]) if self._next < len(self._rows) else None

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        count, size_bytes = count_fitting(self._rows, self._next, limit_bytes)
        batch.add_some(self._rows, self._next, count, size_bytes)
        self._next += count
        return count, size_bytes


class PendingLines:
    """Plain lines: values of one timestamp, without keys and headers."""

    def __init__(self, lines: TextLines, timestamp_ms: int) -> None:
        self._text = lines.text
        self._timestamp_ms = timestamp_ms
        self._next = 0

    def next_bytes(self) -> int | None:
        end = self._text.find(LINE_END, self._next)
        if end < 0:
            return None
        if end > self._next and self._text[end - 1] == ord("\r"):
            end -= 1
        return RECORD_OVERHEAD_BYTES + end - self._next

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        count, size_bytes, self._next = batch.add_lines(
            self._text, self._next, limit_bytes, self._timestamp_ms
        )
        return count, size_bytes


class PendingColumns:
    """Rows of columns, by a list of their numbers; None stands for all of them."""

    def __init__(self, columns: ColumnEncoding, rows: Buffer | None) -> None:
        self._columns = columns
        self._rows = rows
        self._numbers = range(columns.row_count) if rows is None else memoryview(rows).cast("i")
        self._next = 0

    def next_bytes(self) -> int | None:
        if self._next == len(self._numbers):
            return None
        return self._columns.row_size(self._numbers[self._next])

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        count, size_bytes, self._next = batch.add_columns(
            self._columns, self._rows, self._next, limit_bytes
        )
        return count, size_bytes
