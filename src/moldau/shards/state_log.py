"""The log of one shard: a partition that this broker leads, as keys and values.

Answers for batches and flushes. What the records mean is the coordinator's business. A shell over
the partition; owned by the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

from moldau.clock import Clock
from moldau.errors import KafkaError
from moldau.records.batch_builder import build_batch
from moldau.records.batch_header import HEADER_BYTES, BatchHeader, walk_headers
from moldau.records.compression import Codec
from moldau.records.record import NewRecord
from moldau.replication.partition import Partition
from moldau.workers import Workers

_log = logging.getLogger(__name__)

_ROW_OVERHEAD_BYTES = 40
"""The most that a record needs in a batch beside its key and value."""


class StateLogSettings(NamedTuple):
    """How a log is written and read."""

    codec: Codec
    load_buffer_bytes: int


class StateLog:
    """`watch` once, `close` once."""

    def __init__(
        self,
        partition: Partition,
        *,
        clock: Clock,
        workers: Workers,
        settings: Callable[[], StateLogSettings],
        require: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._partition = partition
        self._clock = clock
        self._workers = workers
        self._settings = settings
        self._require = require
        self._on_commit: Callable[[], None] | None = None
        self._unflushed_from: int | None = None  # where what a flush is awaited for begins

    def watch(self, on_commit: Callable[[], None]) -> None:
        """Call it, until `close`, when `committed_offset` may have moved."""
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
        """All before it is there to stay: every in-sync replica has it."""
        committed = self._partition.high_watermark
        return committed if self._unflushed_from is None else min(committed, self._unflushed_from)

    @property
    def is_safe(self) -> bool:
        """Whether so many replicas are in sync that what is committed may be acknowledged."""
        return self._partition.state.has_enough_in_sync

    def append(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append at once; raises `KafkaError` when that is not possible.

        Nothing was appended then, unless `end_offset` has moved: a disk failed in the middle.
        """
        log = self._partition.log
        former_end = log.log_end_offset
        codec = self._settings().codec
        parts = self._parts_of(rows, log.options.max_message_bytes)
        self._partition.append_internal(*(build_batch(part, codec=codec) for part in parts))
        if log.flush_is_due:
            if self._unflushed_from is None:
                self._unflushed_from = former_end
            self._require(f"flush of {log.topic_partition}", self._flush())

    def _parts_of(
        self, rows: Sequence[tuple[bytes, bytes | None]], max_bytes: int
    ) -> Iterator[list[NewRecord]]:
        """One batch if it can be."""
        now_ms = self._clock.now_ms()
        part: list[NewRecord] = []
        size_bytes = HEADER_BYTES
        for key, value in rows:
            row_bytes = len(key) + len(value or b"") + _ROW_OVERHEAD_BYTES
            if part and size_bytes + row_bytes > max_bytes:
                yield part
                part, size_bytes = [], HEADER_BYTES
            part.append(NewRecord(now_ms, key, value))
            size_bytes += row_bytes
        yield part

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

    async def batches(self) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
        """Everything that is in the log now."""
        log = self._partition.log
        offset: int = log.log_start_offset
        end_offset = log.log_end_offset
        while offset < end_offset:
            max_bytes = self._settings().load_buffer_bytes
            read = log.read(offset, max_bytes, end_offset=end_offset, min_one=True)
            if read.slice is None:
                return
            batches = memoryview(await self._workers.run(read.slice.read))
            for position, header in walk_headers(batches):
                yield header, batches[position : position + header.size_bytes]
            offset = read.end_offset
