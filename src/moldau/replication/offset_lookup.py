"""Answers ListOffsets for one replica: the first offset at or after a time, or a special one.

A shell without state. Looking for a timestamp unpacks batches, in a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from moldau.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    LeaderEpoch,
    Offset,
)
from moldau.records.record_batch import DEFAULT_LIMIT_BYTES
from moldau.replication.incoming_batches import SMALL_BYTES, Unpacker
from moldau.storage.local_log import TimestampedOffset
from moldau.storage.log import Log

EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class FoundOffset(NamedTuple):
    """An answer to ListOffsets; offset -1 where nothing fits."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


_NOTHING = FoundOffset(-1, -1, -1)


def find_log_end(log: Log) -> FoundOffset:
    """How far a log goes, whoever leads: what a recovery compares (ELR-4).

    The epoch is that of the last record, and of a log without records the one that begins at its
    end.
    """
    start, end = log.log_start_offset, log.log_end_offset
    epoch = log.epochs.find_epoch_at(max(start, end - 1))
    return FoundOffset(end, -1, -1 if epoch is None else epoch)


async def find_offset(
    timestamp_ms: int,
    log: Log,
    unpacker: Unpacker,
    *,
    leader_epoch: LeaderEpoch,
    end_offset: Offset,
    require_settled: Callable[[], None] | None,
) -> FoundOffset:
    """What is before `end_offset` is for the eyes of who asks. Where the answer says that there is
    no more, `require_settled` may raise that nobody knows yet."""
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        epoch = log.epochs.find_epoch_at(log.log_start_offset)
        return FoundOffset(log.log_start_offset, -1, -1 if epoch is None else epoch)
    if timestamp_ms == LATEST_TIMESTAMP:
        if require_settled is not None:
            require_settled()
        return FoundOffset(end_offset, -1, leader_epoch)
    if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOTHING  # nothing is tiered
    find: Callable[[int], TimestampedOffset | None] = log.max_timestamp_offset
    if timestamp_ms != MAX_TIMESTAMP:
        find = partial(log.find_offset_by_timestamp, timestamp_ms)
    # Timestamps are inside of batches, which have to be unpacked one at a time.
    found = await unpacker.unpack(find, expected_bytes=SMALL_BYTES, limit_bytes=DEFAULT_LIMIT_BYTES)
    if found is None:
        return _NOTHING
    if found.offset < end_offset:
        return FoundOffset(*found)
    if require_settled is not None:
        require_settled()
    return _NOTHING
