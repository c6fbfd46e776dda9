"""The log of one shard: a partition that this broker leads, as the records of its coordinator.

Answers for batches and flushes. What the records look like in bytes is handed in, what they mean
is the coordinator's business. A shell over the partition; owned by the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from moldau.clock import Clock
from moldau.errors import CorruptBatchError, InvalidRecordError, KafkaError
from moldau.model import Offset
from moldau.records.batch_header import HEADER_BYTES, BatchHeader, walk_headers
from moldau.records.compression import Codec
from moldau.records.record import Record, RecordRow
from moldau.records.record_batch import EndTransactionMarker, build_batch, records_of
from moldau.replication.damage_watch import find_damaged_batch, read_batches
from moldau.replication.partition import Partition
from moldau.storage.files import FileSlice
from moldau.workers import Workers

_log = logging.getLogger("moldau.coordinators")

_ROW_OVERHEAD_BYTES = 40
"""The most that a record needs in a batch beside its key and value."""


S = TypeVar("S")  # what is written
R = TypeVar("R")  # what is read: also the ends of transactions


class CoordinatorLogFormat(NamedTuple, Generic[S, R]):
    """How the records of one coordinator are written and read."""

    encode: Callable[[S], tuple[bytes, bytes | None]]
    """Key and value. Raises `InvalidRecordError` for what the format has no room for."""
    decode: Callable[[bytes | None, bytes | None], R | None]
    """None for what is not known here; raises `InvalidRecordError` for garbage."""
    codec: Callable[[], Codec]
    load_buffer_bytes: Callable[[], int]
    decode_transactional: Callable[[BatchHeader, Record], R | None] = lambda header, record: None
    """Decodes a record of a batch that is part of a producer's transaction, or ends it."""
    locate: Callable[[R, int], R] = lambda record, offset: record
    """Tells a record its offset in the log, where its coordinator wants to know it."""


class AppendTransaction(Protocol):
    """Whose transaction records are part of, and what the log asks for before it may begin."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def verification(self) -> int: ...


class CoordinatorLog(Generic[S, R]):
    """`watch` once, `close` once. A `shard.ShardLog`."""

    def __init__(
        self,
        partition: Partition,
        log_format: CoordinatorLogFormat[S, R],
        *,
        clock: Clock,
        workers: Workers,
        require: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._partition = partition
        self._format = log_format
        self._clock = clock
        self._workers = workers
        self._require = require
        self._on_commit: Callable[[], None] | None = None
        self._unflushed_from: int | None = None  # where what a flush is awaited for begins

    def watch(self, on_commit: Callable[[], None]) -> None:
        self._on_commit = on_commit
        self._partition.add_commit_listener(on_commit)

    def close(self) -> None:
        if self._on_commit is not None:
            self._partition.remove_commit_listener(self._on_commit)
            self._on_commit = None

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    @property
    def committed_offset(self) -> int:
        committed = self._partition.high_watermark
        return committed if self._unflushed_from is None else min(committed, self._unflushed_from)

    @property
    def is_safe(self) -> bool:
        return self._partition.state.has_enough_in_sync

    def append(self, records: Sequence[S], transaction: AppendTransaction | None = None) -> None:
        former_end = self._partition.log.log_end_offset
        producer: dict[str, Any] = {}
        if transaction is not None:
            producer = {
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "transactional": True,
            }
        codec, parts = self._format.codec(), self._batch_rows(records)
        batches = (build_batch(part, codec=codec, **producer) for part in parts)
        if transaction is None:
            self._partition.append_internal(*batches)
        else:
            self._partition.append_internal(*batches, verification=transaction.verification)
        self._flush_if_due(former_end)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> None:
        former_end = self._partition.log.log_end_offset
        self._partition.append_marker(marker, producer_id, producer_epoch, transaction_version)
        self._flush_if_due(former_end)

    def _batch_rows(self, records: Sequence[S]) -> Iterator[list[RecordRow]]:
        """One batch if it can be; a flood of tombstones may need several."""
        encode = self._format.encode
        max_bytes = self._partition.log.options.max_message_bytes
        now_ms = self._clock.now_ms()
        part: list[RecordRow] = []
        size_bytes = HEADER_BYTES
        for record in records:
            key, value = encode(record)
            row_bytes = len(key) + len(value or b"") + _ROW_OVERHEAD_BYTES
            if part and size_bytes + row_bytes > max_bytes:
                yield part
                part, size_bytes = [], HEADER_BYTES
            part.append((now_ms, key, value, ()))
            size_bytes += row_bytes
        yield part

    def _flush_if_due(self, start_offset: int) -> None:
        if not self._partition.log.flush_is_due:
            return
        if self._unflushed_from is None:
            self._unflushed_from = start_offset
        self._require(f"flush of {self._partition.topic_partition}", self._flush())

    async def _flush(self) -> None:
        """`flush.messages` asks that a record is on the disk before it is acknowledged."""
        log = self._partition.log
        try:
            await log.flush()
        except KafkaError as error:
            _log.error("cannot flush %s: %s", log.topic_partition, error)
            return
        flushed = log.recovery_point
        self._unflushed_from = None if flushed >= log.log_end_offset else flushed
        if self._on_commit is not None:
            self._on_commit()

    async def load(self) -> AsyncGenerator[list[R], None]:
        """Raises `StorageError` when the disk fails, whose directory is offline then, and
        `CorruptBatchError` at a damaged batch: a flipped bit must not change the state (GRP-9).

        The partition is reported as damaged, so that another replica in sync takes over.
        """
        log = self._partition.log
        offset = log.log_start_offset
        end_offset = log.log_end_offset
        while offset < end_offset:
            read = read_batches(log, offset, self._format.load_buffer_bytes(), end_offset)
            if read.slice is None:
                return
            try:
                data, damaged_from = await self._workers.run(partial(_read, read.slice, offset))
            except OSError as error:
                raise log.directory.judge(error) from error
            if damaged_from is not None:
                self._partition.report_damage(damaged_from)
                place = f"{self._partition.topic_partition} at offset {damaged_from}"
                raise CorruptBatchError(f"the batch of {place} is damaged: its CRC does not match")
            batches = memoryview(data)
            for position, header in walk_headers(batches):
                yield self._decode(header, batches[position : position + header.size_bytes])
            offset = Offset(read.end_offset)

    def _decode(self, header: BatchHeader, batch: memoryview) -> list[R]:
        decode, decode_transactional = self._format.decode, self._format.decode_transactional
        locate = self._format.locate
        is_plain = not (header.is_transactional or header.is_control)
        found = []
        for row in records_of(batch, header):
            try:
                if is_plain:
                    record = decode(row.key, row.value)
                else:
                    record = decode_transactional(header, row)
            except InvalidRecordError as error:
                place = f"{self._partition.topic_partition} at offset {row.offset}"
                _log.warning("%s is left out: %s", place, error)
                continue
            if record is not None:
                found.append(locate(record, row.offset))
        return found


def _read(batches: FileSlice, offset: Offset) -> tuple[bytes, Offset | None]:
    """The bytes, and where the first damaged batch among them begins."""
    data = batches.read()
    return data, find_damaged_batch(data, offset)
