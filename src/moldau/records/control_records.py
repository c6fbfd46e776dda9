"""Control records: what coordinators write between the records of producers.

Answers for the end-transaction markers, their key and value, and the batch around one. What they
mean for readers is decided elsewhere. A rule.

    key:    version int16, type int16
    value:  version int16, coordinator epoch int32

Readers accept later versions and take the fields they know, as Kafka does.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from moldau.errors import InvalidRecordError
from moldau.model import NO_LEADER_EPOCH
from moldau.records.batch_builder import build_batch
from moldau.records.record import NewRecord, Record

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """What a control record says; the others of Kafka are the Raft quorum's."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    control_type: ControlType
    coordinator_epoch: int


def find_control_type(key: bytes | None) -> ControlType | None:
    """The type in the key of a control record; None for the types of others."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError("the key of a control record is cut short")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"the key of a control record has version {version}")
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else None


def find_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a record of a control batch; None for control records of other kinds."""
    control_type = find_control_type(record.key)
    if control_type is None:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise InvalidRecordError("the value of an end-transaction marker is cut short")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidRecordError(f"the value of an end-transaction marker has version {version}")
    return EndTransactionMarker(control_type, coordinator_epoch)


def build_marker_batch(
    marker: EndTransactionMarker,
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The control batch that ends a transaction: one record, no sequence."""
    key = _KEY.pack(_VERSION, marker.control_type)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [NewRecord(timestamp_ms, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
