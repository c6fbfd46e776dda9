"""The log behind a shard: one partition of the offsets topic, as records of groups.

Answers for turning records into batches and back. What the records mean is the machine's business,
when a reply may go is the shard's. A shell over a partition that this broker leads; owned by the
event loop.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.errors import InvalidRecordError, KafkaError
from moldau.groups.offsets_log import decode, encode
from moldau.groups.rules.outcome import OffsetsTransaction
from moldau.groups.rules.records import (
    CoordinatorRecord,
    OffsetRecord,
    PendingOffsetRecord,
    StoredRecord,
    TransactionEnd,
)
from moldau.records.batch_builder import build_batch
from moldau.records.batch_header import HEADER_BYTES, BatchHeader, walk_headers
from moldau.records.batch_reader import records_of
from moldau.records.compression import Codec
from moldau.records.control_records import ControlType, EndTransactionMarker, find_marker
from moldau.records.record import NewRecord
from moldau.replication.partition import Partition
from moldau.workers import Workers

_log = logging.getLogger(__name__)

_ROW_OVERHEAD_BYTES = 40
"""The most that a record needs in a batch beside its key and value."""


class ShardLog(Protocol):
    """What a shard needs of its log."""

    def watch(self, on_commit: Callable[[], None]) -> None:
        """Call it, until `close`, when `committed_offset` may have moved."""
        ...

    def close(self) -> None: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int:
        """All before it is there to stay: every in-sync replica has it."""
        ...

    @property
    def is_safe(self) -> bool:
        """Whether so many replicas are in sync that what is committed may be acknowledged."""
        ...

    def append(self, records: Sequence[StoredRecord]) -> None:
        """Append at once; raises `KafkaError` when that is not possible.

        Nothing was appended then, unless `end_offset` has moved: a disk failed in the middle.
        """
        ...

    def append_in_transaction(
        self, records: Sequence[StoredRecord], transaction: OffsetsTransaction
    ) -> None:
        """As `append`, as part of a producer's transaction."""
        ...

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> None:
        """As `append`: the end of a producer's transaction."""
        ...

    def load(self) -> AsyncGenerator[list[CoordinatorRecord], None]:
        """Everything in the log, in pieces that are quick to apply."""
        ...


class PartitionLog:
    """The real one. A `ShardLog`."""

    def __init__(
        self,
        partition: Partition,
        *,
        clock: Clock,
        workers: Workers,
        options: Callable[[], BrokerOptions],
        require: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._partition = partition
        self._clock = clock
        self._workers = workers
        self._options = options
        self._require = require
        self._on_commit: Callable[[], None] | None = None
        self._unflushed_from: int | None = None  # where what a flush is awaited for begins

    def watch(self, on_commit: Callable[[], None]) -> None:
        self._on_commit = on_commit
        self._partition.listeners.add(on_commit)

    def close(self) -> None:
        if self._on_commit is not None:
            self._partition.listeners.remove(self._on_commit)
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

    def append(self, records: Sequence[StoredRecord]) -> None:
        log = self._partition.log
        former_end = log.log_end_offset
        codec = Codec(self._options().offsets_topic_compression_codec)
        parts = self._rows(records, log.options.max_message_bytes)
        self._partition.append_internal(*(build_batch(rows, codec=codec) for rows in parts))
        self._flush_if_due(former_end)

    def append_in_transaction(
        self, records: Sequence[StoredRecord], transaction: OffsetsTransaction
    ) -> None:
        log = self._partition.log
        former_end = log.log_end_offset
        codec = Codec(self._options().offsets_topic_compression_codec)
        batches = (
            build_batch(
                rows,
                codec=codec,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                transactional=True,
            )
            for rows in self._rows(records, log.options.max_message_bytes)
        )
        self._partition.append_internal(*batches, verification=transaction.verification)
        self._flush_if_due(former_end)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> None:
        former_end = self.end_offset
        self._partition.append_marker(marker, producer_id, producer_epoch, transaction_version)
        self._flush_if_due(former_end)

    def _flush_if_due(self, former_end: int) -> None:
        log = self._partition.log
        if log.flush_is_due:
            if self._unflushed_from is None:
                self._unflushed_from = former_end
            self._require(f"flush of {log.topic_partition}", self._flush())

    def _rows(self, records: Sequence[StoredRecord], max_bytes: int) -> Iterator[list[NewRecord]]:
        """One batch if it can be; a flood of tombstones may need several."""
        now_ms = self._clock.now_ms()
        rows: list[NewRecord] = []
        size_bytes = HEADER_BYTES
        for record in records:
            key, value = encode(record)
            row_bytes = len(key) + len(value or b"") + _ROW_OVERHEAD_BYTES
            if rows and size_bytes + row_bytes > max_bytes:
                yield rows
                rows, size_bytes = [], HEADER_BYTES
            rows.append(NewRecord(now_ms, key, value))
            size_bytes += row_bytes
        yield rows

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

    # Loading

    async def load(self) -> AsyncGenerator[list[CoordinatorRecord], None]:
        log = self._partition.log
        offset: int = log.log_start_offset
        end_offset = log.log_end_offset
        while offset < end_offset:
            max_bytes = self._options().offsets_load_buffer_size
            read = log.read(offset, max_bytes, end_offset=end_offset, min_one=True)
            if read.slice is None:
                return
            batches = memoryview(await self._workers.run(read.slice.read))
            for position, header in walk_headers(batches):
                batch = batches[position : position + header.size_bytes]
                yield self._decode(header, batch)
            offset = read.end_offset

    def _decode(self, header: BatchHeader, batch: memoryview) -> list[CoordinatorRecord]:
        """The records of a batch, or what it says about the transaction of its producer."""
        rows = records_of(batch, header)
        if header.is_control:
            marker = find_marker(rows[0]) if rows else None
            if marker is None:
                return []
            return [TransactionEnd(header.producer_id, marker.control_type is ControlType.COMMIT)]
        found: list[CoordinatorRecord] = []
        for row in rows:
            try:
                record = decode(row.key, row.value)
            except InvalidRecordError as error:
                place = f"{self._partition.topic_partition} at offset {row.offset}"
                _log.warning("%s is left out: %s", place, error)
                continue
            if header.is_transactional and isinstance(record, OffsetRecord):
                if record.committed is not None:  # nobody deletes in a transaction
                    where, committed = record[:3], record.committed
                    found.append(PendingOffsetRecord(header.producer_id, *where, committed))
            elif record is not None:
                found.append(record)
        return found
