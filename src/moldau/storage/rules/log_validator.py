"""What a batch must look like before it is appended, from a client or from a leader.

`check_usual_batch` is on the path of every produce request and accepts most batches in one step.
For the others, `check_batch` reads the 61-byte header and the CRC, and `inspect_batch` checks the
records inside; `check_records_if_quick` does that where it cannot hold up the event loop.
`wanted_codec` is for topics whose `compression.type` differs from what was sent. A refused batch
names the records at fault (`name_refused`). A follower checks what its leader sent with
`check_replicated`. Producer sequences are checked by `producer_state`.

The rules are those of Kafka's `ProduceRequest`, `UnifiedLog` and `LogValidator`. Differences:

- Kafka checks the timestamp of each record. Here the header's base timestamp, which is the first
  record's, and its max timestamp stand for all of them: the first record is nearly always the
  oldest, and nothing outside the batch depends on the timestamps between.
- A batch that claims LogAppendTime is refused on every topic; Kafka accepts it on a CreateTime
  topic and corrects it.
- A transactional batch without a producer id is refused: nobody could ever end its transaction.

A rule: bytes and `now_ms` in, a header or an error out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordErrors,
    RecordListTooLargeError,
    UnsupportedCompressionError,
)
from moldau.model import NO_TIMESTAMP, TopicPartition
from moldau.records.batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    crc_matches,
    read_header,
    walk_headers,
    write_crc,
)
from moldau.records.codec import RecordWalk, decode_columns, find_fault, read_usual_batch
from moldau.records.columns import BytesColumn, ColumnSource
from moldau.records.compression import (
    Codec,
    DecompressionLimitError,
    can_unfold,
    compress,
    decompress,
    expect_bytes,
    unfold,
)

DECOMPRESSED_MAX_BYTES = 100 * 1024 * 1024
"""Default bound of what a compressed batch may unpack to: that of `socket.request.max.bytes`.

The same records sent uncompressed would not fit into a request, so an honest producer stays below,
and a few hundred hostile bytes cannot make the broker allocate gigabytes.
"""

QUICK_BATCH_BYTES = 64 * 1024
QUICK_UNPACKED_BYTES = 1100 * 1024
"""Gzip, the slowest codec, unpacks this much in about a millisecond."""
QUICK_RECORDS = 10_000

SMALLEST_RECORD_BYTES = 7
"""Seven fields of a byte: length, attributes, two deltas, and lengths of key, value and headers."""

_HIGHEST_CODEC = max(Codec)
_UNUSUAL_FLAGS = TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendLimits:
    """What one topic asks of its batches; made when its options change, not per batch."""

    max_message_bytes: int
    segment_bytes: int
    compacted: bool
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    inspect_records: bool
    decompressed_max_bytes: int = DECOMPRESSED_MAX_BYTES


def check_usual_batch(buffer: memoryview, limits: AppendLimits, now_ms: int) -> BatchHeader | None:
    """The header of a batch that is not compressed, if it is sound inside and out.

    None says nothing: `check_batch` and `check_records_if_quick` look at it again, and tell what is
    wrong. This is for what nearly every batch is, in one step.
    """
    header = read_usual_batch(
        buffer,
        min(limits.max_message_bytes, limits.segment_bytes),
        now_ms,
        limits.timestamp_before_max_ms,
        limits.timestamp_after_max_ms,
        QUICK_RECORDS,
        limits.inspect_records,
        limits.compacted,
        BatchHeader,
    )
    return header if header is not None and crc_matches(buffer, header) else None


def check_batch(buffer: memoryview, limits: AppendLimits, now_ms: int) -> BatchHeader:
    """Check that the buffer is one whole batch that a client may append; return its header."""
    size_bytes = len(buffer)
    if size_bytes < HEADER_BYTES:
        raise _fault_of_short_buffer(buffer)
    header = read_header(buffer)
    if header.magic != CURRENT_MAGIC or header.batch_length + LOG_OVERHEAD_BYTES != size_bytes:
        raise _fault_of_frame(header, size_bytes)
    check_size(size_bytes, limits)
    if not crc_matches(buffer, header):
        raise CorruptBatchError(f"the batch's CRC is not {header.crc:#010x} as its header says")
    _check_offsets(header)
    _check_attributes(header)
    if not limits.log_append_time and header.max_timestamp != NO_TIMESTAMP:
        _check_timestamps(buffer, header, limits, now_ms)
    return header


def check_size(size_bytes: int, limits: AppendLimits) -> None:
    """Check what recompression may have changed again."""
    if size_bytes > limits.max_message_bytes:
        raise BatchTooLargeError(
            f"the batch has {size_bytes} bytes, max.message.bytes is {limits.max_message_bytes}"
        )
    if size_bytes > limits.segment_bytes:
        raise RecordListTooLargeError(
            f"the batch has {size_bytes} bytes, segment.bytes is {limits.segment_bytes}"
        )


class InspectedBatch(NamedTuple):
    """A batch as it is to be appended."""

    data: memoryview | bytearray
    unpacked_bytes: int
    """What its records took while they were looked at; 0 where nobody looked."""


def inspect_batch(
    buffer: memoryview,
    header: BatchHeader,
    limits: AppendLimits,
    *,
    codec: Codec | None,
    level: int | None,
    unpacked_bytes: int,
) -> InspectedBatch:
    """Check the records inside; return the batch to append, under another codec if one is given.

    Unpacks once, and at most `unpacked_bytes`. Slow: run it in a worker.
    """
    if codec is None and not limits.inspect_records:
        return InspectedBatch(buffer, 0)
    payload = _unpack(buffer, header, unpacked_bytes, expected_bytes=unpacked_bytes)
    if limits.inspect_records:
        _check_payload(payload, header, limits)
    batch = buffer if codec is None else _pack(buffer, header, payload, codec, level)
    return InspectedBatch(batch, len(payload))


def can_stream(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the records can be looked at without unpacking all of them at once."""
    codec = header.attributes & CODEC_MASK
    return bool(codec) and can_unfold(Codec(codec), memoryview(buffer)[HEADER_BYTES:])


def stream_records(buffer: Buffer, header: BatchHeader, limits: AppendLimits) -> int:
    """Do as `inspect_batch`, of a batch that `can_stream`, holding one piece of it at a time; what
    it unfolded to.

    Of several bad records the first one is named. Slow: run it in a worker.
    """
    if not limits.inspect_records:
        return 0
    payload = memoryview(buffer)[HEADER_BYTES:]
    walk = RecordWalk(header.record_count, limits.compacted)
    codec = Codec(header.attributes & CODEC_MASK)
    fault = None
    unpacked_bytes = 0
    for piece in unfold(codec, payload, limits.decompressed_max_bytes):
        unpacked_bytes += len(piece)
        fault = walk.feed(piece)
        if fault is not None:
            break
    fault = fault or walk.finish()
    if fault is not None:
        errors = ((fault.index, fault.reason),)
        raise InvalidRecordError(summarize(errors), errors)
    return unpacked_bytes


def expect_unpacked(buffer: Buffer, header: BatchHeader, usual_ratio: float = 0.0) -> int:
    """What the records will most likely take when they are unpacked; nothing if they are.

    LZ4 never says it and zstd not always: what batches before it unfolded to, for each of their
    bytes, is the better guess then.
    """
    codec = Codec(header.attributes & CODEC_MASK)
    if codec is Codec.NONE:
        return 0
    expected = expect_bytes(codec, memoryview(buffer)[HEADER_BYTES:])
    if codec in (Codec.LZ4, Codec.ZSTD):
        return max(expected, int(len(buffer) * usual_ratio))
    return expected


def check_records_if_quick(
    buffer: memoryview, header: BatchHeader, limits: AppendLimits, usual_ratio: float = 0.0
) -> InspectedBatch | None:
    """Do as `inspect_batch`, or return None when that is work for a worker.

    Size alone does not tell: a kilobyte may unpack to megabytes. So the batch is unpacked up to a
    bound that costs about a millisecond.
    """
    if not limits.inspect_records:
        return InspectedBatch(buffer, 0)
    if needs_worker(header, len(buffer)):
        return None
    if not header.attributes & CODEC_MASK:
        _check_payload(buffer[HEADER_BYTES:], header, limits)
        return InspectedBatch(buffer, 0)
    expected_bytes = expect_unpacked(buffer, header, usual_ratio)
    if expected_bytes > QUICK_UNPACKED_BYTES:
        return None
    try:
        payload = _unpack(buffer, header, QUICK_UNPACKED_BYTES, with_margin(expected_bytes))
    except DecompressionLimitError:
        return None
    _check_payload(payload, header, limits)
    return InspectedBatch(buffer, len(payload))


def with_margin(expected_bytes: int) -> int:
    """Room for what is about as large as expected."""
    return expected_bytes + expected_bytes // 8


def needs_worker(header: BatchHeader, size_bytes: int) -> bool:
    """Whether a look inside would hold up the event loop, as far as the header can tell."""
    if header.attributes & CODEC_MASK and size_bytes > QUICK_BATCH_BYTES:
        return True
    return header.record_count > QUICK_RECORDS


def wanted_codec(compression_type: str, header: BatchHeader) -> Codec | None:
    """The codec to rewrite the batch with; None to keep it as it was sent."""
    if compression_type == "producer":
        return None
    wanted = Codec.NONE if compression_type == "uncompressed" else Codec.parse(compression_type)
    return None if header.attributes & CODEC_MASK == wanted else wanted


def _pack(
    buffer: Buffer, header: BatchHeader, records: Buffer, codec: Codec, level: int | None
) -> bytearray:
    batch = bytearray(memoryview(buffer)[:HEADER_BYTES])
    batch += records if codec is Codec.NONE else compress(codec, records, level)
    batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    _write_attributes(batch, header.attributes & ~CODEC_MASK | codec)
    write_crc(batch)
    return batch


def set_log_append_time(batch: bytearray | memoryview, now_ms: int) -> BatchHeader:
    """Give every record of the batch one timestamp, in place; the header is read anew."""
    attributes = int.from_bytes(batch[ATTRIBUTES_AT : ATTRIBUTES_AT + 2], "big")
    _write_attributes(batch, attributes | TIMESTAMP_TYPE_FLAG)
    batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = now_ms.to_bytes(8, "big", signed=True)
    write_crc(batch)
    return read_header(batch)


def _write_attributes(batch: bytearray | memoryview, attributes: int) -> None:
    batch[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = (attributes & 0xFFFF).to_bytes(2, "big")


def _check_offsets(header: BatchHeader) -> None:
    """A client leaves no gaps. Its base offset does not count: the broker writes its own."""
    count = header.record_count
    if count > 0 and header.last_offset_delta == count - 1:
        return
    raise InvalidRecordError(
        f"the batch announces {count} records and a last offset delta of {header.last_offset_delta}"
    )


def _check_attributes(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & _UNUSUAL_FLAGS:
        _check_unusual_flags(header)
    if attributes & CODEC_MASK > _HIGHEST_CODEC:
        raise UnsupportedCompressionError(f"there is no codec {attributes & CODEC_MASK}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecordError(
            f"producer {header.producer_id} sends epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}"
        )


def _check_unusual_flags(header: BatchHeader) -> None:
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecordError("clients may not write control records")
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        reason = "producers may not set the timestamp type to LogAppendTime"
        named = range(header.record_count if _may_name_all(header) else 1)
        raise InvalidTimestampError(reason, tuple((index, reason) for index in named))
    if header.producer_id < 0:
        raise InvalidRecordError("a transactional batch needs a producer id")


def _may_name_all(header: BatchHeader) -> bool:
    """Whether a batch may have as many records as it says, and not too many to name.

    Nobody has looked inside, and an answer is longer than the 61 bytes that claim a million.
    """
    if header.attributes & CODEC_MASK or header.record_count > QUICK_RECORDS:
        return False
    return header.record_count * SMALLEST_RECORD_BYTES <= header.size_bytes - HEADER_BYTES


def _check_timestamps(
    buffer: memoryview, header: BatchHeader, limits: AppendLimits, now_ms: int
) -> None:
    """`NO_TIMESTAMP` is within every limit."""
    if header.max_timestamp - now_ms > limits.timestamp_after_max_ms:
        raise _timestamp_fault(buffer, header, header.max_timestamp, limits, now_ms)
    oldest = header.base_timestamp
    if oldest > header.max_timestamp:
        oldest = header.max_timestamp
    if now_ms - oldest > limits.timestamp_before_max_ms and oldest != NO_TIMESTAMP:
        raise _timestamp_fault(buffer, header, oldest, limits, now_ms)


def _timestamp_fault(
    buffer: memoryview, header: BatchHeader, timestamp: int, limits: AppendLimits, now_ms: int
) -> InvalidTimestampError:
    """With the records that are out of range, unless a look inside would hold up the event loop."""
    allowed = TimestampRange(
        now_ms - limits.timestamp_before_max_ms, now_ms + limits.timestamp_after_max_ms
    )
    errors: RecordErrors = ()
    if limits.inspect_records and not needs_worker(header, len(buffer)):
        with contextlib.suppress(InvalidRecordError, DecompressionLimitError):
            payload = _unpack(buffer, header, QUICK_UNPACKED_BYTES)
            errors = name_refused(payload, header, require_keys=limits.compacted, allowed=allowed)
    reason = summarize(errors) or allowed.find_fault(timestamp) or "a timestamp is out of range"
    return InvalidTimestampError(reason, errors)


def _fault_of_short_buffer(buffer: memoryview) -> InvalidRecordError | CorruptBatchError:
    if not buffer:
        return InvalidRecordError("there must be exactly one record batch per partition, not none")
    if len(buffer) > MAGIC_AT and buffer[MAGIC_AT] != CURRENT_MAGIC:
        return _fault_of_magic(buffer[MAGIC_AT])
    return CorruptBatchError(f"{len(buffer)} bytes are too few for a batch")


def _fault_of_frame(header: BatchHeader, size_bytes: int) -> InvalidRecordError | CorruptBatchError:
    if header.magic != CURRENT_MAGIC:
        return _fault_of_magic(header.magic)
    if HEADER_BYTES <= header.size_bytes < size_bytes:
        return InvalidRecordError("there must be exactly one record batch per partition, not more")
    return CorruptBatchError(f"a batch of {header.size_bytes} bytes came in {size_bytes} bytes")


def _fault_of_magic(magic: int) -> InvalidRecordError:
    return InvalidRecordError(f"record batches must have magic {CURRENT_MAGIC}, this has {magic}")


def _check_payload(payload: Buffer, header: BatchHeader, limits: AppendLimits) -> None:
    fault = find_fault(payload, header.record_count, limits.compacted)
    if fault is not None:
        errors = name_refused(payload, header, require_keys=limits.compacted)
        errors = errors or ((fault.index, fault.reason),)
        raise InvalidRecordError(summarize(errors), errors)


def _unpack(
    buffer: Buffer, header: BatchHeader, limit_bytes: int, expected_bytes: int | None = None
) -> Buffer:
    """What is too much is MESSAGE_TOO_LARGE, on which producers split the batch."""
    payload = memoryview(buffer)[HEADER_BYTES:]
    codec = header.attributes & CODEC_MASK
    return decompress(Codec(codec), payload, limit_bytes, expected_bytes) if codec else payload


# Kafka refuses a batch as a whole and names every record that made it do so (KIP-467), so that a
# producer can give up these and send the others again. `LogValidator` is the model: a record
# without a key where one is needed, or with a timestamp out of range, is named and the next one is
# looked at; a batch with any timestamp out of range is refused for that.
#
# Only a batch that is refused comes here, so this may take longer than the check that found a
# fault; what cannot be read any further ends the list. A rule.


MOST_RECORDS: Final = 100_000
"""Of a batch with more records none is named but the first: naming each would be a way to make the
broker busy."""

_SHOWN: Final = 3


class TimestampRange(NamedTuple):
    """What the topic allows, both ends included."""

    oldest_ms: int
    newest_ms: int

    def find_fault(self, timestamp: int) -> str | None:
        if timestamp == NO_TIMESTAMP or self.oldest_ms <= timestamp <= self.newest_ms:
            return None
        return f"timestamp {timestamp} is not within [{self.oldest_ms}, {self.newest_ms}]"


def name_refused(
    payload: Buffer,
    header: BatchHeader,
    *,
    require_keys: bool,
    allowed: TimestampRange | None = None,
) -> RecordErrors:
    """Every record that is at fault; empty when the records cannot be told apart."""
    if not 0 < header.record_count <= MOST_RECORDS:
        return ()
    source = ColumnSource(payload, header.record_count, 0, header.base_timestamp)
    try:
        columns = decode_columns((source,), keys=require_keys, values=False, headers=False)
    except InvalidRecordError:  # damaged: whoever found that says so
        return ()
    offset_deltas = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    has_key = _has_key(columns.keys, header.record_count)
    return tuple(_find_faults(offset_deltas, timestamps, has_key, allowed))


def _find_faults(
    offset_deltas: Sequence[int],
    timestamps: Sequence[int],
    has_key: Iterator[bool],
    allowed: TimestampRange | None,
) -> Iterator[tuple[int, str]]:
    facts = zip(offset_deltas, timestamps, has_key, strict=True)
    for index, (delta, timestamp, is_keyed) in enumerate(facts):
        if delta != index:
            yield index, f"the offset delta is {delta} where {index} is due"
        elif not is_keyed:
            yield index, "there is no key, and the topic is compacted"
        elif allowed is not None and (fault := allowed.find_fault(timestamp)) is not None:
            yield index, fault


def _has_key(keys: BytesColumn | None, count: int) -> Iterator[bool]:
    """Of each record; where no key is asked for, or none is missing, all count as keyed."""
    validity = None if keys is None else keys.validity
    if validity is None:
        return iter((True,) * count)
    bits = memoryview(validity).cast("B")
    return (bool(bits[index >> 3] >> (index & 7) & 1) for index in range(count))


def summarize(errors: RecordErrors) -> str:
    """The first ones in one line."""
    shown = "; ".join(f"record {index}: {reason}" for index, reason in errors[:_SHOWN])
    left = len(errors) - _SHOWN
    return shown if left <= 0 else f"{shown}; and {left} more records"


def check_replicated(
    records: memoryview,
    next_offset: int,
    topic_partition: TopicPartition,
    newest_epoch: int | None = None,
) -> list[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches; one that is cut short at the end is left out.

    Offsets grow from `next_offset` on. Gaps are what compaction leaves, overlaps are a fault.
    A batch of a later epoch than the leader's own was copied by it after it had stopped to lead,
    over what it was about to send: what lies before it may differ from ours.
    """
    batches = list(walk_headers(records))
    for position, header in batches:
        batch = records[position : position + header.size_bytes]
        if header.magic != CURRENT_MAGIC or not crc_matches(batch, header):
            raise CorruptBatchError(
                f"the leader of {topic_partition} sent a damaged batch "
                f"at offset {header.base_offset}"
            )
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatchError(
                f"the leader of {topic_partition} sent a batch at offset "
                f"{header.base_offset}, {next_offset} is next"
            )
        if newest_epoch is not None and header.leader_epoch > newest_epoch:
            raise CorruptBatchError(
                f"the leader of {topic_partition} in epoch {newest_epoch} sent a batch of epoch "
                f"{header.leader_epoch} at offset {header.base_offset}"
            )
        next_offset = header.next_offset
    return batches
