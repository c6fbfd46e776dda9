"""What is known of a share partition, and what `__share_group_state` says about it: values, and
their bytes in Kafka's own formats, so that its tools read our folders and we read its.

What may become of a record in a share group:

    Available     ──acquire──▶ Acquired ──accept──▶ Acknowledged
        ▲                         │
        └──release, lock is over──┤──reject, gap, delivered too often──▶ Archived

A snapshot is all that is known of a share partition; an update is what has changed since the one
before.

    key, after its int16 number:
      0        group string, topic id uuid, partition int32      a snapshot
      1        the same                                           an update of it

    value, after its int16 version 0; lengths are compact and tagged fields come last:
      0        snapshot epoch, state epoch, leader epoch int32, start offset int64, time of creation
               int64, time of writing int64, batches
      1        snapshot epoch, leader epoch int32, start offset int64, batches
      batch    first offset, last offset int64, delivery state int8, delivery count int16
      tag 0    of both: offsets whose delivery is complete int32, -1 without it (KIP-1226)

A null value is a tombstone. A rule.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from moldau.errors import InvalidRecordError, MalformedFrameError
from moldau.model import format_uuid
from moldau.wire.primitives import (
    READ_ERRORS,
    encode_compact_count,
    encode_legacy_string,
    encode_uuid,
    encode_varint,
    read_compact_count,
    read_legacy_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
)

_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_COMPLETE_COUNT_TAG: Final = 0

_VERSION: Final = struct.pack(">h", 0)
_NO_TAGS: Final = b"\0"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_SNAPSHOT_HEAD = struct.Struct(">iiiqqq")
_UPDATE_HEAD = struct.Struct(">iiq")
_BATCH = struct.Struct(">qqbh")


# Writing


def encode_share_state(record: ShareStateRecord) -> tuple[bytes, bytes | None]:
    """Key and value. Raises `InvalidRecordError` for what the format has no room for."""
    key = record.key
    number = _SNAPSHOT if isinstance(record, SnapshotRecord) else _UPDATE
    try:
        written_key = (
            _INT16.pack(number)
            + encode_legacy_string(key.group_id)
            + encode_uuid(key.topic_id)
            + _INT32.pack(key.partition)
        )
        return written_key, None if record.value is None else _value(record.value)
    except struct.error as error:
        raise InvalidRecordError(f"a share partition cannot be written: {error}") from error


def _value(value: ShareState | ShareUpdate) -> bytes:
    if isinstance(value, ShareState):
        head = _SNAPSHOT_HEAD.pack(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.create_timestamp_ms,
            value.write_timestamp_ms,
        )
    else:
        head = _UPDATE_HEAD.pack(value.snapshot_epoch, value.leader_epoch, value.start_offset)
    parts = [_VERSION, head, encode_compact_count(len(value.batches))]
    for batch in value.batches:
        parts += (_BATCH.pack(*batch), _NO_TAGS)
    return b"".join(parts) + _tags(value.delivery_complete_count)


def _tags(complete_count: int) -> bytes:
    if complete_count == NO_COUNT:
        return _NO_TAGS
    head = b"\1" + encode_varint(_COMPLETE_COUNT_TAG) + encode_varint(_INT32.size)
    return head + _INT32.pack(complete_count)


# Reading


def decode_share_state(key: bytes | None, value: bytes | None) -> ShareStateRecord | None:
    """The record, or None when it is of a kind that is not known here."""
    if key is None:
        raise InvalidRecordError("a record of share partitions has a key")
    try:
        return _decode(memoryview(key), None if value is None else memoryview(value))
    except (*READ_ERRORS, MalformedFrameError, ValueError) as error:
        raise InvalidRecordError(f"no record of share partitions: {error}") from error


def _decode(key: memoryview, value: memoryview | None) -> ShareStateRecord | None:
    number: int = _INT16.unpack_from(key)[0]
    if number not in (_SNAPSHOT, _UPDATE):
        return None
    group_id, position = read_legacy_string(key, _INT16.size)
    topic_id, position = read_uuid(key, position)
    if topic_id is None or group_id is None:
        raise InvalidRecordError("a share partition without a group or a topic")
    partition: int = _INT32.unpack_from(key, position)[0]
    named = SharePartitionKey(group_id, topic_id, partition)
    if value is not None and (version := _INT16.unpack_from(value)[0]) != 0:
        raise InvalidRecordError(f"a value of version {version} is not known")
    if number == _SNAPSHOT:
        return SnapshotRecord(named, None if value is None else _snapshot(value))
    return UpdateRecord(named, None if value is None else _update(value))


def _snapshot(value: memoryview) -> ShareState:
    epoch, state_epoch, leader_epoch, start_offset, create_ms, write_ms = (
        _SNAPSHOT_HEAD.unpack_from(value, _INT16.size)
    )
    batches, complete_count = _batches(value, _INT16.size + _SNAPSHOT_HEAD.size)
    return ShareState(
        snapshot_epoch=epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=complete_count,
        create_timestamp_ms=create_ms,
        write_timestamp_ms=write_ms,
        batches=batches,
    )


def _update(value: memoryview) -> ShareUpdate:
    epoch, leader_epoch, start_offset = _UPDATE_HEAD.unpack_from(value, _INT16.size)
    batches, complete_count = _batches(value, _INT16.size + _UPDATE_HEAD.size)
    return ShareUpdate(epoch, leader_epoch, start_offset, complete_count, batches)


def _batches(value: memoryview, position: int) -> tuple[tuple[StateBatch, ...], int]:
    """And what the tagged fields behind them say."""
    count, position = read_compact_count(value, position, _BATCH.size + 1)
    found = []
    for _ in range(count):
        first_offset, last_offset, state, delivery_count = _BATCH.unpack_from(value, position)
        position = skip_tagged_fields(value, position + _BATCH.size)
        found.append(StateBatch(first_offset, last_offset, DeliveryState(state), delivery_count))
    complete_count = NO_COUNT
    for tag, start, _ in read_tagged_fields(value, position):
        if tag == _COMPLETE_COUNT_TAG:
            complete_count = _INT32.unpack_from(value, start)[0]
    return tuple(found), complete_count


NO_START_OFFSET: Final = -1
"""In the place of a start offset: none was stored yet, or this write does not change it."""

NO_COUNT: Final = -1
"""In the place of the number of offsets that are done: not known."""


class DeliveryState(IntEnum):
    """The state of a record. Acknowledged and Archived are final."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self >= DeliveryState.ACKNOWLEDGED


class StateBatch(NamedTuple):
    """Offsets that are alike, as they are stored: never Acquired, which is a lock in memory."""

    first_offset: int
    last_offset: int  # inclusive
    delivery_state: DeliveryState
    delivery_count: int


class SharePartitionKey(NamedTuple):
    """One partition in one share group. Its coordinator is that of `group:topic id:partition`."""

    group_id: str
    topic_id: UUID
    partition: int


class StoredShareState(NamedTuple):
    """What the coordinator knows of a share partition.

    Invariant: the batches are in order and do not overlap; gaps between them are Available
    records that were delivered never, or only to those who did not say what became of them.
    """

    state_epoch: int
    start_offset: int  # NO_START_OFFSET before the first write
    state_batches: tuple[StateBatch, ...] = ()


class ShareStateWrite(NamedTuple):
    """What has changed since the last write. Later batches replace earlier ones where they
    overlap; what is before the start offset is forgotten."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # offsets from the start offset on whose delivery is complete
    state_batches: tuple[StateBatch, ...]


NO_OFFSET: Final = -1
"""Of a record that is not in the log yet."""


def coordinator_key(key: SharePartitionKey) -> str:
    """What decides which partition of `__share_group_state` it belongs to; Kafka's text."""
    return f"{key.group_id}:{format_uuid(key.topic_id)}:{key.partition}"


class ShareState(NamedTuple):
    """All that is known of a share partition.

    Invariant (SHS-1): the batches are in order, do not overlap and begin at or after the start
    offset.
    """

    snapshot_epoch: int = 0  # grows with every snapshot
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COUNT
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    batches: tuple[StateBatch, ...] = ()


class ShareUpdate(NamedTuple):
    """What has changed since the snapshot and the updates before it."""

    snapshot_epoch: int
    leader_epoch: int  # -1: as before
    start_offset: int  # NO_START_OFFSET: as before
    delivery_complete_count: int  # NO_COUNT: as before
    batches: tuple[StateBatch, ...]


class SnapshotRecord(NamedTuple):
    """All of a share partition, or its end (None)."""

    key: SharePartitionKey
    value: ShareState | None
    offset: int = NO_OFFSET


class UpdateRecord(NamedTuple):
    """A change. None is a tombstone that Kafka's tools may have left."""

    key: SharePartitionKey
    value: ShareUpdate | None
    offset: int = NO_OFFSET


ShareStateRecord: TypeAlias = SnapshotRecord | UpdateRecord
