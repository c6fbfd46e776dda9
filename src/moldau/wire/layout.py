"""What the fields of a kio class are: the common ground of guard, shape and writer.

kio says it in dataclass fields: the Python type carries nesting and nullability, the metadata
carries Kafka's type and the tag. Read once for each class. A rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, SupportsIndex, cast, get_args, get_origin
from uuid import UUID

from kio.static.protocol import Entity

# Bytes on the wire of the types that have a fixed number of them.
FIXED_BYTES: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}


class FieldLayout(NamedTuple):
    """One field of a message or of a structure inside it."""

    name: str
    kafka_type: str  # empty for structures
    structure: type[Entity] | None  # of the field, or of the elements of an array
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object  # MISSING where there is none


@cache
def layout_of(entity_class: type[Entity]) -> tuple[FieldLayout, ...]:
    """The fields in the order of the wire; tagged ones are among them."""
    return tuple(_layout_of_field(field) for field in fields(entity_class))


@cache
def element_class_of(entity_class: type[Entity], array: str) -> type[Entity]:
    """The class of the structures in an array of a message or structure."""
    (found,) = (field.structure for field in layout_of(entity_class) if field.name == array)
    return cast("type[Entity]", found)


@cache
def arrays_with_errors(entity_class: type[Entity]) -> tuple[tuple[str, type[Entity]], ...]:
    """The arrays of structures that have error codes, or such arrays in their turn."""
    return tuple(
        (field.name, field.structure)
        for field in layout_of(entity_class)
        if field.is_array and field.structure is not None and _has_errors(field.structure)
    )


def _has_errors(structure: type[Entity]) -> bool:
    names = (field.name for field in layout_of(structure))
    return "error_code" in names or bool(arrays_with_errors(structure))


def _layout_of_field(field: Field[Any]) -> FieldLayout:
    inner, is_nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    return FieldLayout(
        name=field.name,
        kafka_type=field.metadata.get("kafka_type", ""),
        structure=cast("type[Entity]", inner) if is_dataclass(inner) else None,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=field.metadata.get("tag"),
        default=field.default,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The type without `| None`, and whether it had it."""
    if get_origin(annotation) is not UnionType:
        return annotation, False
    (inner,) = (member for member in get_args(annotation) if member is not NoneType)
    return inner, True


# Which value keeps a message from being written: for whoever has given it.
#
# `shape` and `writer` do not look at types, which would cost each message a while. When they have
# failed, this finds what they stumbled over. A rule.


_WANTED: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "string": (str, "text"),
    "bytes": ((bytes, bytearray, memoryview), "bytes"),
    "bool": (bool, "True or False"),
    "float64": ((int, float), "a number"),
    "uuid": (UUID, "a UUID"),
    "timedelta_i32": ((int, timedelta), "a number of milliseconds"),
    "timedelta_i64": ((int, timedelta), "a number of milliseconds"),
    "datetime_i64": ((int, datetime), "milliseconds since 1970"),
}


def find_misfit(message_class: type[Entity], values: Mapping[str, object]) -> str | None:
    """`topics[0].num_partitions is '3', not a whole number`; None where nothing is wrong."""
    for field in layout_of(message_class):
        found = _find_in(field, values[field.name]) if field.name in values else None
        if found is not None:
            return f"{field.name}{found}"
    return None


def _find_in(field: FieldLayout, value: object) -> str | None:
    if value is None and field.is_nullable:
        return None
    if not field.is_array:
        return _find_in_element(field, value)
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return f" is {value!r:.80}, not a list"
    for index, element in enumerate(value):
        found = _find_in_element(field, element)
        if found is not None:
            return f"[{index}]{found}"
    return None


def _find_in_element(field: FieldLayout, value: object) -> str | None:
    if field.structure is not None:
        found = find_misfit(field.structure, value) if isinstance(value, Mapping) else None
        return None if found is None else f".{found}"
    wanted = _WANTED.get(field.kafka_type)
    if wanted is None:
        return _find_in_number(field.kafka_type, value)
    return None if isinstance(value, wanted[0]) else f" is {value!r:.80}, not {wanted[1]}"


def _find_in_number(kafka_type: str, value: object) -> str | None:
    if "int" not in kafka_type:
        return None
    if not isinstance(value, SupportsIndex):  # numpy's numbers can be written as well
        return f" is {value!r:.80}, not a whole number"
    number = value.__index__()
    bits = 8 * FIXED_BYTES[kafka_type]
    least, most = (0, (1 << bits) - 1) if kafka_type.startswith("u") else _range_of(bits)
    return None if least <= number <= most else f" is {number}, which is not from {least} to {most}"


def _range_of(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1
