"""Neutral values into the classes of one version.

Every version of every message has its own classes in kio. Handlers think in the newest version's
words and give plain values: mappings for structures, sequences for arrays, milliseconds for times.
`fit` builds the classes of the version that was asked for. What an older version cannot say is
dropped only where the handler has listed it; anything else that would be lost, or is missing, is a
ShapeError: a bug in the handler. An array may also be given as the encoded bytes of its elements. A
rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from moldau.errors import ShapeError
from moldau.wire.layout import FieldLayout, layout_of

if TYPE_CHECKING:
    from kio.static.protocol import Entity

T = TypeVar("T", bound="Entity")
Values = Mapping[str, object]
Convert = Callable[[Any, frozenset[str]], object]
"""From a neutral value to kio's; the set is what may be dropped inside."""

NOTHING_DROPPABLE: Final[frozenset[str]] = frozenset()

_USUAL: Final = frozenset({list, tuple})
_NO_SEQUENCES: Final = (str, bytes, Mapping)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_TIME: Final = -1
_ZERO_UUID: Final = UUID(int=0)
_ERROR_CODES: Final[dict[int, ErrorCode]] = {code.value: code for code in ErrorCode}


@dataclass(frozen=True, slots=True)
class EncodedArray:
    """An array whose elements, structures or strings, are bytes already: in the version of the
    message around it."""

    elements: Sequence[bytes]


def fit(message_class: type[T], values: Values, droppable: frozenset[str] = NOTHING_DROPPABLE) -> T:
    """An instance of exactly this class. `droppable` names fields, at any depth, that this
    version may not have; their values are left out then."""
    built: T = builder_of(message_class)(values, droppable)
    return built


def millis(time: timedelta | datetime | int | None) -> int:
    """Milliseconds of a time as kio reads it; None is -1, Kafka's word for no time."""
    if time is None:
        return _NO_TIME
    if isinstance(time, timedelta):
        return time // _MILLISECOND
    if isinstance(time, datetime):
        return (time - _EPOCH) // _MILLISECOND
    return time


@cache
def builder_of(entity_class: type[Entity]) -> Callable[[Values, frozenset[str]], Any]:
    """What makes instances of a class, made once from its layout."""
    converters = {field.name: _converter_of(field) for field in layout_of(entity_class)}

    def build(values: Values, droppable: frozenset[str]) -> Any:
        arguments: dict[str, object] = {}
        try:
            for name, value in values.items():
                if name in converters:
                    convert = converters[name]
                    arguments[name] = value if convert is None else convert(value, droppable)
                elif name not in droppable:
                    raise ShapeError(f"{_name_of(entity_class)} cannot say {name}={value!r}")
            return entity_class(**arguments)
        except (TypeError, AttributeError) as error:
            raise ShapeError(f"{_name_of(entity_class)}: {error}") from error

    return build


def _name_of(entity_class: type[Entity]) -> str:
    return f"{entity_class.__name__} v{entity_class.__version__}"


def _converter_of(field: FieldLayout) -> Convert | None:
    """None where the neutral value is kio's already, which spares a call for most fields."""
    convert = _element_converter_of(field)
    if field.is_array:
        convert = _array_converter(field.name, convert)
        return _nullable(convert) if field.is_nullable else convert
    if field.structure is not None and field.is_nullable and convert is not None:
        return _nullable(convert)
    return convert


def _element_converter_of(field: FieldLayout) -> Convert | None:
    if field.structure is not None:
        return builder_of(field.structure)
    if field.kafka_type == "datetime_i64" and field.is_nullable:
        return _to_nullable_datetime
    return _CONVERTERS.get(field.kafka_type)


def _array_converter(name: str, convert: Convert | None) -> Convert:
    def to_tuple(value: Any, droppable: frozenset[str]) -> object:
        # The usual types first: to ask for a Mapping takes longer than the rest.
        if type(value) not in _USUAL:
            if isinstance(value, EncodedArray):
                return value
            if value is None or isinstance(value, _NO_SEQUENCES):
                raise ShapeError(f"{name} has to be a sequence, not {value!r}")
        if convert is None:
            return tuple(value)
        return tuple([convert(element, droppable) for element in value])

    return to_tuple


def _nullable(convert: Convert) -> Convert:
    def convert_unless_none(value: Any, droppable: frozenset[str]) -> object:
        return None if value is None else convert(value, droppable)

    return convert_unless_none


def _to_error_code(value: int, droppable: frozenset[str]) -> object:
    try:
        return _ERROR_CODES[value]
    except KeyError:
        raise ShapeError(f"no error code {value!r}") from None


def _to_timedelta(value: int | timedelta, droppable: frozenset[str]) -> object:
    return value if isinstance(value, timedelta) else timedelta(milliseconds=value)


def _to_datetime(value: int | datetime, droppable: frozenset[str]) -> object:
    return value if isinstance(value, datetime) else _EPOCH + timedelta(milliseconds=value)


def _to_nullable_datetime(value: int | datetime | None, droppable: frozenset[str]) -> object:
    return None if value is None or value == _NO_TIME else _to_datetime(value, droppable)


def _to_uuid(value: UUID | None, droppable: frozenset[str]) -> object:
    return None if value == _ZERO_UUID else value


_CONVERTERS: Final[dict[str, Convert]] = {
    "error_code": _to_error_code,
    "timedelta_i32": _to_timedelta,
    "timedelta_i64": _to_timedelta,
    "datetime_i64": _to_datetime,
    "uuid": _to_uuid,
}
