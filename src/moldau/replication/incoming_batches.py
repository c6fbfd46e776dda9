"""The batches that clients send to one partition: do they fit the options of the topic?

They are checked here or in a worker, and compressed again where the topic has a `compression.type`
of its own. `storage.rules.log_validator` decides; whether this broker may append is decided by
`partition`. An `IncomingBatches` is a shell, owned by its `Partition`.

Compressed batches are unpacked in a pool of threads of its own, within a budget of memory (NET-5).
A few kilobytes can unfold to a hundred megabytes, and a client may send as many such batches as it
has connections. So unpacking is not done where a broker flushes its logs, and only so much of it at
the same time: `SMALL_AT_ONCE` batches of up to `SMALL_BYTES` each and, beside them, one that is
larger. What an honest producer sends is small, and does not wait behind what is not. A larger one
is read as a stream where its codec allows (`records.compression`), and then counts as a small
one. The others wait their turn; after `TIMEOUT_SECONDS` the client is told to try again. An
`Unpacker` is owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from moldau.clock import Clock
from moldau.config.topic_options import TopicOptions
from moldau.errors import DecompressionLimitError, RequestTimedOutError
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.compression import LARGEST_PIECE_BYTES, Codec
from moldau.storage.rules.log_validator import (
    AppendLimits,
    InspectedBatch,
    can_stream,
    check_batch,
    check_records_if_quick,
    check_size,
    check_usual_batch,
    expect_unpacked,
    inspect_batch,
    stream_records,
    wanted_codec,
    with_margin,
)
from moldau.tasks import finish_first
from moldau.workers import Workers


class CheckedBatch(NamedTuple):
    """A batch that may be appended; not the client's own bytes where it was packed anew."""

    data: memoryview | bytearray
    header: BatchHeader


class IncomingBatches:
    """See the module."""

    __slots__ = ("_compression_type", "_limits", "_options", "_unpacker", "_usual_ratio")

    def __init__(self, options: TopicOptions, unpacker: Unpacker) -> None:
        self._unpacker = unpacker
        # What each byte of the last compressed batch unfolded to; the next one is expected to be
        # like it. A batch that lies about itself is looked at in a worker, and
        # the one behind it, which puts this right again.
        self._usual_ratio = 0.0
        self.update_options(options)

    def update_options(self, options: TopicOptions) -> None:
        """Go on with other options; what the path of every produce asks for is kept at hand."""
        self._options = options
        self._limits = _limits_of(options)
        self._compression_type = options.compression_type

    def check(self, records: memoryview, now_ms: int) -> BatchHeader | None:
        """The header of a good batch; None when looking inside would hold up the event loop."""
        limits = self._limits
        usual = check_usual_batch(records, limits, now_ms)
        header = check_batch(records, limits, now_ms) if usual is None else usual
        if self._compression_type != "producer" and self._new_codec(header) is not None:
            return None
        if usual is not None:
            return header
        found = check_records_if_quick(records, header, limits, self._usual_ratio)
        if found is None:
            return None
        if found.unpacked_bytes:
            self._usual_ratio = found.unpacked_bytes / len(records)
        return header

    async def check_in_worker(self, records: memoryview, now_ms: int) -> CheckedBatch:
        """As `check`, with the look inside and any recompression in a worker."""
        limits = self._limits
        header = check_batch(records, limits, now_ms)
        codec = self._new_codec(header)
        level = None if codec is None else _level_of(codec, self._options)

        def look_inside(unpacked_bytes: int) -> InspectedBatch:
            return inspect_batch(
                records, header, limits, codec=codec, level=level, unpacked_bytes=unpacked_bytes
            )

        def walk() -> InspectedBatch:
            return InspectedBatch(records, stream_records(records, header, limits))

        usual_ratio = min(self._usual_ratio, SMALL_BYTES / len(records))
        batch, unpacked_bytes = await self._unpacker.unpack(
            look_inside,
            expected_bytes=with_margin(expect_unpacked(records, header, usual_ratio)),
            limit_bytes=limits.decompressed_max_bytes,
            stream=walk if codec is None and can_stream(records, header) else None,
        )
        self._usual_ratio = unpacked_bytes / len(records)
        if batch is records:
            return CheckedBatch(records, header)
        check_size(len(batch), limits)
        return CheckedBatch(batch, read_header(batch))

    def check_size(self, size_bytes: int) -> None:
        """Of a batch that the broker has made itself."""
        check_size(size_bytes, self._limits)

    def _new_codec(self, header: BatchHeader) -> Codec | None:
        """What the topic wants a batch packed with; None where the producer's choice is good."""
        wanted = self._compression_type
        return None if wanted == "producer" else wanted_codec(wanted, header)


def _level_of(codec: Codec, options: TopicOptions) -> int | None:
    match codec:
        case Codec.GZIP:
            return options.compression_gzip_level
        case Codec.LZ4:
            return options.compression_lz4_level
        case Codec.ZSTD:
            return options.compression_zstd_level
        case Codec.NONE | Codec.SNAPPY:
            return None


def _limits_of(options: TopicOptions) -> AppendLimits:
    return AppendLimits(
        max_message_bytes=options.max_message_bytes,
        segment_bytes=options.segment_bytes,
        compacted="compact" in options.cleanup_policy,
        log_append_time=options.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=options.message_timestamp_before_max_ms,
        timestamp_after_max_ms=options.message_timestamp_after_max_ms,
        inspect_records=options.record_validation == "full",
    )


T = TypeVar("T")

SMALL_BYTES: Final = LARGEST_PIECE_BYTES
SMALL_AT_ONCE: Final = 8
TIMEOUT_SECONDS: Final = 30.0
GROWTH: Final = 4


class Unpacker:
    """Runs work that unpacks batches."""

    def __init__(self, workers: Workers, clock: Clock) -> None:
        self._workers = workers
        self._clock = clock
        self._small = asyncio.Semaphore(SMALL_AT_ONCE)
        self._large = asyncio.Semaphore(1)

    async def unpack(
        self,
        work: Callable[[int], T],
        *,
        expected_bytes: int,
        limit_bytes: int,
        stream: Callable[[], T] | None = None,
    ) -> T:
        """Call `work` in a worker with the bytes that it may unpack: at most `limit_bytes`.

        Begins with what is expected. Work that raises `DecompressionLimitError` below the limit is
        done again with more; nothing is held meanwhile. What is more than `SMALL_BYTES` is left to
        `stream` where there is one: it does the same and never holds that much.
        """
        size = min(expected_bytes, limit_bytes)
        while True:
            if stream is not None and size > SMALL_BYTES:
                return await self.run(stream, SMALL_BYTES)
            try:
                return await self.run(lambda allowed=size: work(allowed), size)  # type: ignore[misc]
            except DecompressionLimitError:
                if size >= limit_bytes:
                    raise
            size = min(max(size, SMALL_BYTES) * GROWTH, limit_bytes)

    async def run(self, work: Callable[[], T], unpacked_bytes: int) -> T:
        """Do work that holds so many unpacked bytes at most."""
        turns = self._small if unpacked_bytes <= SMALL_BYTES else self._large
        await self._wait_for_turn(turns)
        try:
            # The memory is in use until the worker has finished, whoever has lost interest.
            return await finish_first(self._workers.run(work))
        finally:
            turns.release()

    async def _wait_for_turn(self, turns: asyncio.Semaphore) -> None:
        if not turns.locked():
            await turns.acquire()
            return
        waiting = asyncio.ensure_future(turns.acquire())
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = waiting.cancel()

        timer = self._clock.call_later(TIMEOUT_SECONDS, give_up)
        try:
            await waiting
        except asyncio.CancelledError:
            if is_late and waiting.cancelled():
                raise RequestTimedOutError("too many large compressed batches at once") from None
            raise
        finally:
            timer.cancel()
