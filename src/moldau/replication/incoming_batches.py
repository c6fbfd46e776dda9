"""The batches that clients send to one partition: are they as its topic's options ask?

Answers for looking at them, here or in a worker, and for packing them anew where the topic has a
`compression.type` of its own. `storage.rules.append_checks` decides; whether this broker may append
is `partition`'s business.

A shell, owned by its `Partition`.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.config.topic_options import TopicOptions
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.compression import Codec
from moldau.replication.unpacking import SMALL_BYTES, Unpacker
from moldau.storage.rules.append_checks import (
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
