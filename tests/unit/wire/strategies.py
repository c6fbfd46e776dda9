"""Hypothesis strategies for kio's classes, from the same layouts that the guard walks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.protocol import Entity

from moldau.wire.layout import FieldLayout, layout_of
from moldau.wire.shape import millis

# The APIs of a broker without groups, transactions and security.
SERVED_APIS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "FindCoordinator": 10,
    "ApiVersions": 18,
    "CreateTopics": 19,
    "DeleteTopics": 20,
    "DeleteRecords": 21,
    "InitProducerId": 22,
    "OffsetForLeaderEpoch": 23,
    "DescribeConfigs": 32,
    "AlterConfigs": 33,
    "DescribeLogDirs": 35,
    "CreatePartitions": 37,
    "IncrementalAlterConfigs": 44,
    "DescribeCluster": 60,
    "DescribeProducers": 61,
    "DescribeTopicPartitions": 75,
}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written_by_kio(message: Entity) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def versions_of(api_key: int) -> list[int]:
    return sorted(schema_name_map[api_key_map[api_key]])


def integers_of(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


texts = st.text(max_size=6)
uuids = st.none() | st.uuids()
# kio holds times of 64 bits in Python's timedelta and datetime, which reach less far.
long_millis = st.integers(-(10**12), 10**12)
timestamps = st.integers(0, 10**12)

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": integers_of(8),
    "int16": integers_of(16),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": integers_of(32),
    "int64": integers_of(64),
    "float64": st.floats(allow_nan=False),
    "string": texts,
    "bytes": st.binary(max_size=6),
    "records": st.binary(max_size=200),
    "uuid": uuids,
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": integers_of(32).map(lambda millis: timedelta(milliseconds=millis)),
    "timedelta_i64": long_millis.map(lambda millis: timedelta(milliseconds=millis)),
    "datetime_i64": timestamps.map(lambda millis: EPOCH + timedelta(milliseconds=millis)),
}


@cache
def messages(entity_class: type[Entity]) -> st.SearchStrategy[Any]:
    """Instances of a class with all fields drawn, tagged ones included."""
    fields = {field.name: _values(field) for field in layout_of(entity_class)}
    return st.builds(entity_class, **fields)


def _values(field: FieldLayout) -> st.SearchStrategy[Any]:
    values = messages(field.structure) if field.structure else _PRIMITIVES[field.kafka_type]
    if field.is_array:
        values = st.lists(values, max_size=2).map(tuple)
    if field.is_nullable:
        values = st.none() | values
    return values


def neutral(entity: Entity) -> dict[str, object]:
    """What a handler would have given for this entity."""
    return {field.name: _plain(getattr(entity, field.name)) for field in layout_of(type(entity))}


def _plain(value: Any) -> object:
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if hasattr(value, "__version__"):
        return neutral(value)
    if isinstance(value, ErrorCode):
        return int(value)
    return millis(value) if isinstance(value, timedelta | datetime) else value


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with a few of them overwritten, by preference with hostile lengths, or cut."""
    damage = bytearray(raw)
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(damage)))
        patch = draw(st.sampled_from(HOSTILE) | st.binary(min_size=1, max_size=4))
        damage[position : position + len(patch)] = patch
    if draw(st.integers(0, 3)) == 0:
        del damage[draw(st.integers(0, len(damage))) :]
    return bytes(damage)


HOSTILE = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\xff",
    b"\x00",
    b"\x80",
    b"\x80\x00",  # zero in two bytes
    b"\x81\x80\x80\x80\x70",  # one in 32 bits, thirty billion in 35
)
