"""What the fields of a kio class are: the common ground of guard, shape and writer.

kio says it in dataclass fields: the Python type carries nesting and nullability, the metadata
carries Kafka's type and the tag. Read once for each class. A rule.
"""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, get_args, get_origin

if TYPE_CHECKING:
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
