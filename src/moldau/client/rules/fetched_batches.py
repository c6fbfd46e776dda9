"""From the bytes of a fetch answer to the batches that a consumer is to see. A rule.

A broker answers with whole batches from the one that holds the offset asked for; the last one may
be cut short and comes whole with the next fetch. Control batches are not for users. A reader of
committed records gets the aborted transactions with the answer, and leaves their batches out. The
bytes stay as they came until somebody asks for records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.errors import BatchTooLargeError, CorruptBatchError, UnsupportedForMessageFormatError
from moldau.model import TopicPartition
from moldau.records.batch_header import (
    CONTROL_FLAG,
    CURRENT_MAGIC,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    BatchHeader,
    Buffer,
    crc_matches,
    read_size,
    walk_headers,
)
from moldau.records.codec import decode_consumer_records, decode_records
from moldau.records.record_batch import ControlType, find_control_type, payload_of

AbortedTransactions = Sequence[tuple[int, int]]
"""Producer id and first offset of each."""


class FetchedBatch(NamedTuple):
    """One whole batch with its header. The CRC has not been checked yet."""

    data: memoryview
    header: BatchHeader


class FetchedBatches(NamedTuple):
    """The batches to be given, and the offset and leader epoch behind all that was there."""

    batches: list[FetchedBatch]
    next_offset: int
    leader_epoch: int


def split_batches(
    data: memoryview, from_offset: int, aborted: AbortedTransactions | None = None
) -> FetchedBatches:
    """The batches at or after an offset; `aborted` is given by readers of committed records."""
    batches: list[FetchedBatch] = []
    next_offset, leader_epoch = from_offset, -1
    is_aborted = _AbortedFilter(aborted).is_aborted if aborted else None
    found_any = False
    for position, header in walk_headers(data):
        if header.magic != CURRENT_MAGIC:
            require_current_format(header)
        found_any = True
        batch = data[position : position + header.batch_length + LOG_OVERHEAD_BYTES]
        left_out = is_aborted is not None and is_aborted(batch, header)
        end_offset = header.base_offset + header.last_offset_delta + 1
        if end_offset <= from_offset:
            continue
        next_offset, leader_epoch = end_offset, header.leader_epoch
        if not (left_out or header.attributes & CONTROL_FLAG):
            batches.append(FetchedBatch(batch, header))
    if not found_any and len(data) > LOG_OVERHEAD_BYTES:
        explain_no_batch(data)
    return FetchedBatches(batches, next_offset, leader_epoch)


def decode_batch(
    batch: FetchedBatch, partition: TopicPartition, from_offset: int, *, check_crc: bool = True
) -> list[ConsumerRecord]:
    """The records of a batch at or after an offset; raises CorruptBatchError and its kin."""
    header = batch.header
    if check_crc:
        require_crc(batch, partition)
    return decode_consumer_records(
        payload_of(batch.data, header),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        from_offset,
        ConsumerRecord,
        partition.topic,
        partition.partition,
        header.leader_epoch,
    )


def require_crc(batch: FetchedBatch, partition: TopicPartition) -> None:
    if not crc_matches(batch.data, batch.header):
        raise CorruptBatchError(
            f"{partition}: the batch at offset {batch.header.base_offset} fails its CRC"
        )


class _AbortedFilter:
    """Knows, batch by batch in order, which transactions are open that will be aborted."""

    def __init__(self, aborted: AbortedTransactions) -> None:
        self._coming = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._open: set[int] = set()  # producer ids

    def is_aborted(self, batch: Buffer, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._open.add(self._coming.pop()[0])
        if header.is_control:
            if _is_abort_marker(batch, header):
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open


def _is_abort_marker(batch: Buffer, header: BatchHeader) -> bool:
    records = decode_records(
        payload_of(batch, header), header.record_count, header.base_offset, header.base_timestamp
    )
    # Compaction can leave a batch without its record, to remember the producer.
    return bool(records) and find_control_type(records[0].key) is ControlType.ABORT


def require_current_format(header: BatchHeader) -> None:
    if header.magic != CURRENT_MAGIC:
        raise UnsupportedForMessageFormatError(
            f"the batch at offset {header.base_offset} has format {header.magic}; only 2 is read"
        )


def explain_no_batch(data: memoryview) -> None:
    """Bytes came, but no whole batch: older formats are shorter than a header, or it was cut."""
    if len(data) > MAGIC_AT and data[MAGIC_AT] < CURRENT_MAGIC:
        raise UnsupportedForMessageFormatError(
            f"the records have format {data[MAGIC_AT]}; only 2 is read"
        )
    raise BatchTooLargeError(
        f"a batch of {read_size(data)} bytes was cut to {len(data)}; fetch with a higher limit"
    )
