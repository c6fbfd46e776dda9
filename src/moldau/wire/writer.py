"""Writes messages of kio's classes, with the layouts that kio declares.

kio reads natively but writes in Python, field by field through its checked number types, at about
a microsecond each: an answer about a thousand partitions would hold up the loop for ten
milliseconds. Here each class is compiled once into a few steps, neighbouring numbers being packed
together, which takes a fifth of that. The tests compare every byte with kio's. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.wire.layout import FieldLayout, layout_of
from moldau.wire.primitives import (
    encode_compact_count,
    encode_compact_string,
    encode_legacy_count,
    encode_legacy_string,
    encode_uuid,
    encode_varint,
)
from moldau.wire.shape import EncodedArray, millis

if TYPE_CHECKING:
    from kio.static.protocol import Entity

Write = Callable[[Any, list[bytes]], None]
"""Adds the bytes of a value to a list."""

# The types that struct packs as they are.
FORMATS: Final[dict[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "error_code": "h",
}

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_NULL_STRUCTURE: Final = b"\xff"
_STRUCTURE: Final = b"\x01"


@cache
def writer_of(entity_class: type[Entity]) -> Write:
    """The writer of a message or structure, compiled once from its layout."""
    is_flexible: bool = entity_class.__flexible__
    fields = layout_of(entity_class)
    steps: list[Write] = []
    untagged = (field for field in fields if field.tag is None)
    for is_packed, run in groupby(untagged, key=is_packed_field):
        if is_packed:
            steps.append(_packed_write(tuple(run)))
        else:
            steps += (_field_write(field, is_flexible) for field in run)
    if is_flexible:
        steps.append(_tagged_write([field for field in fields if field.tag is not None]))
    return _all_of(tuple(steps))


def _all_of(steps: tuple[Write, ...]) -> Write:
    def write_all(entity: Any, parts: list[bytes]) -> None:
        for write in steps:
            write(entity, parts)

    return write_all


def is_packed_field(field: FieldLayout) -> bool:
    return field.kafka_type in FORMATS and not field.is_array


def _packed_write(fields: tuple[FieldLayout, ...]) -> Write:
    """Neighbouring numbers in one go."""
    pack = struct.Struct(">" + "".join(FORMATS[field.kafka_type] for field in fields)).pack
    values_of = attrgetter(*(field.name for field in fields))
    if len(fields) == 1:
        return lambda entity, parts: parts.append(pack(values_of(entity)))
    return lambda entity, parts: parts.append(pack(*values_of(entity)))


def _field_write(field: FieldLayout, is_flexible: bool) -> Write:
    value_of = attrgetter(field.name)
    write = _value_write(field, is_flexible)
    return lambda entity, parts: write(value_of(entity), parts)


def _value_write(field: FieldLayout, is_flexible: bool) -> Write:
    if field.is_array:
        return _array_write(field, is_flexible)
    if field.structure is None:
        return _primitive_write(field.kafka_type, is_flexible)
    write = writer_of(field.structure)
    return _nullable_write(write) if field.is_nullable else write


def _nullable_write(write: Write) -> Write:
    def write_nullable(entity: Any, parts: list[bytes]) -> None:
        if entity is None:
            parts.append(_NULL_STRUCTURE)
        else:
            parts.append(_STRUCTURE)
            write(entity, parts)

    return write_nullable


def _array_write(field: FieldLayout, is_flexible: bool) -> Write:
    encode_count = encode_compact_count if is_flexible else encode_legacy_count
    if field.kafka_type in FORMATS:
        return packed_array_write(FORMATS[field.kafka_type], encode_count)
    write = writer_of(field.structure) if field.structure else None
    write = write or _primitive_write(field.kafka_type, is_flexible)

    def write_array(values: tuple[Any, ...] | EncodedArray | None, parts: list[bytes]) -> None:
        if values is None:
            parts.append(encode_count(-1))
            return
        if isinstance(values, EncodedArray):
            parts.append(encode_count(len(values.elements)))
            parts += values.elements
            return
        parts.append(encode_count(len(values)))
        for value in values:
            write(value, parts)

    return write_array


def packed_array_write(number: str, encode_count: Callable[[int], bytes]) -> Write:
    def write_packed_array(values: tuple[int, ...] | None, parts: list[bytes]) -> None:
        if values is None:
            parts.append(encode_count(-1))
        else:
            count = len(values)
            parts += (encode_count(count), struct.pack(f">{count}{number}", *values))

    return write_packed_array


def _primitive_write(kafka_type: str, is_flexible: bool) -> Write:
    encode = encoder_of(kafka_type, is_flexible)
    return lambda value, parts: parts.append(encode(value))


def encoder_of(kafka_type: str, is_flexible: bool) -> Callable[[Any], bytes]:
    if kafka_type in FORMATS:
        return struct.Struct(">" + FORMATS[kafka_type]).pack
    if kafka_type == "string":
        return encode_compact_string if is_flexible else encode_legacy_string
    if kafka_type in {"bytes", "records"}:
        return _encode_compact_bytes if is_flexible else _encode_legacy_bytes
    return _ENCODERS[kafka_type]


def _encode_compact_bytes(value: bytes | None) -> bytes:
    return b"\0" if value is None else encode_varint(len(value) + 1) + value


def _encode_legacy_bytes(value: bytes | None) -> bytes:
    return _INT32.pack(-1) if value is None else _INT32.pack(len(value)) + value


_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "uuid": encode_uuid,
    "timedelta_i32": lambda value: _INT32.pack(millis(value)),
    "timedelta_i64": lambda value: _INT64.pack(millis(value)),
    "datetime_i64": lambda value: _INT64.pack(millis(value)),
}


class _TaggedField(NamedTuple):
    tag: bytes
    value_of: Callable[[Any], Any]
    default: object
    write: Write


def _tagged_write(fields: list[FieldLayout]) -> Write:
    """Tagged fields are written, in the order of their tags, where they differ from the default."""
    tagged = tuple(
        _TaggedField(
            encode_varint(field.tag or 0),
            attrgetter(field.name),
            field.default,
            _value_write(field, is_flexible=True),
        )
        for field in sorted(fields, key=lambda field: field.tag or 0)
    )

    def write_tagged(entity: Any, parts: list[bytes]) -> None:
        present: list[bytes] = []
        count = 0
        for tag, value_of, default, write in tagged:
            value = value_of(entity)
            if value != default:
                count += 1
                value_parts: list[bytes] = []
                write(value, value_parts)
                encoded = b"".join(value_parts)
                present += (tag, encode_varint(len(encoded)), encoded)
        parts.append(encode_varint(count))
        parts += present

    return write_tagged if tagged else _write_no_tags


def _write_no_tags(entity: Any, parts: list[bytes]) -> None:
    parts.append(b"\0")
