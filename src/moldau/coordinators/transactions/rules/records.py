"""The records of `__transaction_state` in bytes: Kafka's own formats, so that its tools read our
folders and we read its.

    key 0      int16 version, transactional id string

    value, int16 version:
      0, 1     producer id int64, producer epoch int16, time-out int32 (ms), state int8, partitions
               nullable array of (topic string, array of int32), updated int64 (ms), started int64

Version 1 has compact lengths and tagged fields:

      0        previous producer id int64
      1        next producer id int64
      2        transaction version of the client int16
      3        next producer epoch int16 (KIP-939)
      19788    epoch before the current one int16: ours; Kafka passes over it, and after a move of
               the coordinator takes an InitProducerId that comes again for one of a fenced producer

Written is version 1, or 0 while the finalized `transaction.version` is 0. A null value is a
tombstone. A rule: bytes in, values out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from moldau.coordinators.transactions.rules.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from moldau.coordinators.transactions.rules.transactions import TransactionRecord
from moldau.errors import InvalidRecordError, MalformedFrameError
from moldau.model import TopicPartition
from moldau.wire.primitives import (
    COMPACT,
    LEGACY,
    READ_ERRORS,
    encode_compact_count,
    encode_compact_string,
    encode_legacy_count,
    encode_legacy_string,
    encode_varint,
    read_legacy_string,
    read_tagged_fields,
    skip_tagged_fields,
)

_KEY_VERSION: Final = 0
_FIRST_COMPACT: Final = 1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")  # version, producer id, producer epoch, time-out, state
_TIMES = struct.Struct(">qq")  # updated, started
_NONE: Final = -1
_TOPIC_MIN_BYTES: Final = 2

_TAGS: Final[dict[int, tuple[str, struct.Struct, int]]] = {
    0: ("previous_producer_id", _INT64, _NONE),
    1: ("next_producer_id", _INT64, _NONE),
    2: ("client_version", _INT16, 0),
    3: ("next_producer_epoch", _INT16, _NONE),
    19788: ("last_producer_epoch", _INT16, _NONE),
}
"""By tag: the field, how it is written, and the value that is left out."""

_ROOM_BYTES: Final = 256
"""For the header of a batch, and for every field that a decision adds."""


def encode_transaction(record: TransactionRecord, version: int = 1) -> tuple[bytes, bytes | None]:
    """Key and value. Raises `InvalidRecordError` for what the format has no room for."""
    try:
        key = _INT16.pack(_KEY_VERSION) + encode_legacy_string(record.transactional_id)
        return key, None if record.metadata is None else _value(record.metadata, version)
    except struct.error as error:
        raise InvalidRecordError(f"a transaction cannot be written: {error}") from error


def require_room_for_end(
    record: TransactionRecord, encoded: tuple[bytes, bytes | None], max_bytes: int
) -> None:
    """Raise `InvalidRecordError` for an open transaction that only just fits into the log: its end
    is some bytes longer. It could never be logged, and the partitions' readers would wait for ever
    (TXP-6)."""
    metadata = record.metadata
    if metadata is None or metadata.state is not TransactionState.ONGOING:
        return
    key, value = encoded
    if len(key) + len(value or b"") + _ROOM_BYTES > max_bytes:
        raise InvalidRecordError(
            f"transactional id {record.transactional_id!r}: {len(metadata.partitions)} partitions "
            f"are too many for a record of {max_bytes} bytes"
        )


def decode_transaction(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """The record, or None when its key is of a kind that is not known here."""
    if key is None:
        raise InvalidRecordError("a record of transactions has a key")
    try:
        if _INT16.unpack_from(key)[0] != _KEY_VERSION:
            return None
        transactional_id = read_legacy_string(memoryview(key), _INT16.size)[0] or ""
        metadata = None if value is None else _read(transactional_id, value)
    except (*READ_ERRORS, MalformedFrameError, ValueError) as error:
        raise InvalidRecordError(f"no record of transactions: {error}") from error
    return TransactionRecord(transactional_id, metadata)


# Writing


def _value(metadata: TransactionMetadata, version: int) -> bytes:
    is_compact = version >= _FIRST_COMPACT
    head = _HEAD.pack(
        version,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.state,
    )
    times = _TIMES.pack(metadata.updated_ms, metadata.started_ms)
    # As Kafka: no partitions at all while the id is empty.
    if metadata.state is TransactionState.EMPTY:
        partitions = b"\0" if is_compact else _INT32.pack(_NONE)
    else:
        partitions = _partitions(metadata.partitions, is_compact)
    return head + partitions + times + (_tagged(metadata) if is_compact else b"")


def _partitions(partitions: Iterable[TopicPartition], is_compact: bool) -> bytes:
    count = encode_compact_count if is_compact else encode_legacy_count
    string = encode_compact_string if is_compact else encode_legacy_string
    topics = [
        (topic, [one.partition for one in some])
        for topic, some in groupby(sorted(partitions), key=lambda one: one.topic)
    ]
    parts = [count(len(topics))]
    for topic, numbers in topics:
        parts += (string(topic), count(len(numbers)), struct.pack(f">{len(numbers)}i", *numbers))
        if is_compact:
            parts.append(b"\0")
    return b"".join(parts)


def _tagged(metadata: TransactionMetadata) -> bytes:
    present = [
        (tag, layout.pack(getattr(metadata, name)))
        for tag, (name, layout, default) in _TAGS.items()
        if getattr(metadata, name) != default
    ]
    return encode_varint(len(present)) + b"".join(
        encode_varint(tag) + encode_varint(len(data)) + data for tag, data in present
    )


# Reading


def _read(transactional_id: str, value: bytes) -> TransactionMetadata:
    view = memoryview(value)
    version, producer_id, producer_epoch, timeout_ms, state = _HEAD.unpack_from(view)
    if not 0 <= version <= _FIRST_COMPACT:
        raise InvalidRecordError(f"a value of version {version} is not known")
    is_compact = version == _FIRST_COMPACT
    partitions, position = _read_partitions(view, _HEAD.size, is_compact)
    updated_ms, started_ms = _TIMES.unpack_from(view, position)
    tagged = _read_tagged(view, position + _TIMES.size) if is_compact else {}
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState(state),
        updated_ms=updated_ms,
        started_ms=started_ms,
        partitions=partitions,
        **tagged,
    )


def _read_partitions(
    view: memoryview, position: int, is_compact: bool
) -> tuple[frozenset[TopicPartition], int]:
    encoding = COMPACT if is_compact else LEGACY
    if is_compact and view[position] == 0:
        return frozenset(), position + 1
    if not is_compact and _INT32.unpack_from(view, position)[0] == _NONE:
        return frozenset(), position + _INT32.size
    found: set[TopicPartition] = set()
    topics, position = encoding.array_count(view, position, _TOPIC_MIN_BYTES)
    for _ in range(topics):
        topic, position = encoding.string(view, position)
        count, position = encoding.array_count(view, position, _INT32.size)
        numbers = struct.unpack_from(f">{count}i", view, position)
        position += count * _INT32.size
        found.update(TopicPartition(topic or "", number) for number in numbers)
        if is_compact:
            position = skip_tagged_fields(view, position)
    return frozenset(found), position


def _read_tagged(view: memoryview, position: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for tag, start, end in read_tagged_fields(view, position):
        known = _TAGS.get(tag)
        if known is None:
            continue
        name, layout, _ = known
        if end - start != layout.size:
            raise InvalidRecordError(f"the tagged field {tag} has {end - start} bytes")
        found[name] = layout.unpack_from(view, start)[0]
    return found
