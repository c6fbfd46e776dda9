"""Which value keeps a message from being written: for whoever has given it.

`shape` and `writer` do not look at types, which would cost each message a while. When they have
failed, this finds what they stumbled over. A rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, SupportsIndex
from uuid import UUID

from kio.static.protocol import Entity

from moldau.wire.layout import FIXED_BYTES, FieldLayout, layout_of

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
