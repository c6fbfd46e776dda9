"""Valid requests of any API and version, built from kio's classes by the names of their fields.

`minimal_request` fills nothing that need not be filled. `full_request` has one element in every
array, about a topic that exists, so that an answer can be without errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from kio.index import load_request_schema

_BY_TYPE: Mapping[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": None,
    "error_code": 0,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "datetime_i64": datetime(2020, 1, 1, tzinfo=UTC),
}


def minimal_request(api_key: int, version: int) -> Any:
    """Empty arrays, nulls where they are allowed, zeros elsewhere; and one that is answered."""
    return _build(load_request_schema(api_key, version), {"acks": -1}, elements=0)


def full_request(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """One element in every array.

    Fields take their value from `values` by `Class.field`, else by their name alone.
    """
    return _build(load_request_schema(api_key, version), values, elements=1)


def _build(entity_class: Any, values: Mapping[str, Any], elements: int) -> Any:
    return entity_class(
        **{
            field.name: _value_of(field, entity_class.__name__, values, elements)
            for field in fields(entity_class)
        }
    )


def _value_of(field: Any, owner: str, values: Mapping[str, Any], elements: int) -> Any:
    inner, is_nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    kafka_type = field.metadata.get("kafka_type", "")
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    if is_dataclass(inner):
        if not is_array:
            return None if is_nullable else _build(inner, values, elements)
        return tuple(_build(inner, values, elements) for _ in range(elements))
    for name in (f"{owner}.{field.name}", field.name):
        if name in values:
            return (values[name],) * elements if is_array else values[name]
    if is_array:
        return (_BY_TYPE[kafka_type],) * elements
    if field.default is not MISSING:
        return field.default
    return None if is_nullable else _BY_TYPE[kafka_type]


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is not UnionType:
        return annotation, False
    (inner,) = (member for member in get_args(annotation) if member is not NoneType)
    return inner, True


def error_codes_of(entity: Any) -> list[Any]:
    """Every error code anywhere in a message."""
    found: list[Any] = []
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.metadata.get("kafka_type") == "error_code":
            found.append(value)
        for element in value if isinstance(value, tuple) else (value,):
            if is_dataclass(element):
                found += error_codes_of(element)
    return found
