"""Writes messages from the plain values that handlers give, without making kio's classes of them.

`shape.fit` and `writer.writer_of` do the same in two steps. Most of what that takes is making
objects that are thrown away once their bytes are there, and an answer about thousands of partitions
has as many of them. What would be lost, or is missing, is a ShapeError here too. The tests compare
every byte. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from moldau.errors import ShapeError
from moldau.wire.layout import FieldLayout, layout_of
from moldau.wire.primitives import encode_compact_count, encode_legacy_count, encode_varint
from moldau.wire.shape import NOTHING_DROPPABLE, EncodedArray, Values, millis
from moldau.wire.writer import FORMATS, encoder_of, is_packed_field, packed_array_write

if TYPE_CHECKING:
    from kio.static.protocol import Entity

WriteValues = Callable[[Any, frozenset[str], list[bytes]], None]
"""Adds the bytes of a value to a list; the set is what may be dropped inside of it."""

_NULL_STRUCTURE: Final = b"\xff"
_STRUCTURE: Final = b"\x01"
_NO_TAGS: Final = "x"  # a zero byte, as struct calls it
_USUAL: Final = frozenset({list, tuple})
_NO_SEQUENCES: Final = (str, bytes, Mapping)


def encode_values(
    message_class: type[Entity], values: Values, droppable: frozenset[str] = NOTHING_DROPPABLE
) -> bytes:
    """The bytes of a message, or of a structure of one, without length and header."""
    parts: list[bytes] = []
    try:
        values_writer_of(message_class)(values, droppable, parts)
    except (TypeError, AttributeError) as error:
        raise ShapeError(f"{_name_of(message_class)}: {error}") from error
    return b"".join(parts)


@cache
def values_writer_of(entity_class: type[Entity]) -> WriteValues:
    """What writes values of a class, compiled once from its layout."""
    is_flexible: bool = entity_class.__flexible__
    layout = layout_of(entity_class)
    complete = _completion_of(entity_class)
    count = len(layout)
    tagged = [field for field in layout if field.tag is not None]
    steps: list[WriteValues] = []
    runs = [
        (is_packed, tuple(run))
        for is_packed, run in groupby(
            (field for field in layout if field.tag is None), key=is_packed_field
        )
    ]
    for place, (is_packed, run) in enumerate(runs):
        if is_packed:
            is_end = is_flexible and not tagged and place == len(runs) - 1
            steps.append(_packed_write(run, _NO_TAGS if is_end else ""))
        else:
            steps += (_field_write(field, is_flexible) for field in run)
    if tagged:
        steps.append(_tagged_write(tagged))
    elif is_flexible and not (runs and runs[-1][0]):
        steps.append(_write_no_tags)
    if len(steps) == 1:
        return _only(steps[0], count, complete)
    return _all_of(tuple(steps), count, complete)


def _all_of(
    steps: tuple[WriteValues, ...], count: int, complete: Callable[[Values, frozenset[str]], Values]
) -> WriteValues:
    def write_all(values: Values, droppable: frozenset[str], parts: list[bytes]) -> None:
        length = len(parts)
        try:
            if len(values) == count:  # so that, if each is found, there are no others
                for write in steps:
                    write(values, droppable, parts)
                return
        except KeyError:
            del parts[length:]
            _refuse_iterators(values)
        completed = complete(values, droppable)
        for write in steps:
            write(completed, droppable, parts)

    return write_all


def _refuse_iterators(values: Values) -> None:
    """They may have been read, and there is nothing in them a second time."""
    for name, value in values.items():
        if isinstance(value, Iterator):
            raise ShapeError(f"{name} has to be a sequence, not {value!r}")


def _only(
    write: WriteValues, count: int, complete: Callable[[Values, frozenset[str]], Values]
) -> WriteValues:
    """As `_all_of`, of structures that are written in one go: there may be thousands of them."""

    def write_one(values: Values, droppable: frozenset[str], parts: list[bytes]) -> None:
        try:
            if len(values) == count:
                write(values, droppable, parts)
                return
        except KeyError:
            pass
        write(complete(values, droppable), droppable, parts)

    return write_one


def _completion_of(entity_class: type[Entity]) -> Callable[[Values, frozenset[str]], Values]:
    """Adds what has a default, and takes away what may be dropped."""
    defaults = {field.name: _neutral(field.default) for field in layout_of(entity_class)}

    def complete(values: Values, droppable: frozenset[str]) -> Values:
        for name, value in values.items():
            if name not in defaults and name not in droppable:
                raise ShapeError(f"{_name_of(entity_class)} cannot say {name}={value!r}")
        completed = {name: values.get(name, default) for name, default in defaults.items()}
        for name, value in completed.items():
            if value is MISSING:
                raise ShapeError(f"{_name_of(entity_class)} says nothing about {name}")
        return completed

    return complete


def _neutral(value: object) -> object:
    """A default of kio as a handler would give it."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {field.name: _neutral(getattr(value, field.name)) for field in fields(value)}


def _name_of(entity_class: type[Entity]) -> str:
    return f"{entity_class.__name__} v{entity_class.__version__}"


def _packed_write(run: Sequence[FieldLayout], end: str) -> WriteValues:
    """Neighbouring numbers in one go."""
    pack = struct.Struct(">" + "".join(FORMATS[field.kafka_type] for field in run) + end).pack
    values_of = itemgetter(*(field.name for field in run))
    if len(run) == 1:

        def write_number(values: Values, droppable: frozenset[str], parts: list[bytes]) -> None:
            parts.append(pack(values_of(values)))

        return write_number

    def write_numbers(values: Values, droppable: frozenset[str], parts: list[bytes]) -> None:
        parts.append(pack(*values_of(values)))

    return write_numbers


def _field_write(field: FieldLayout, is_flexible: bool) -> WriteValues:
    name, write = field.name, _value_write(field, is_flexible)

    def write_field(values: Values, droppable: frozenset[str], parts: list[bytes]) -> None:
        write(values[name], droppable, parts)

    return write_field


def _value_write(field: FieldLayout, is_flexible: bool) -> WriteValues:
    if field.is_array:
        return _array_write(field, is_flexible)
    if field.structure is None:
        return _primitive_write(field.kafka_type, is_flexible)
    write = values_writer_of(field.structure)
    return _nullable_write(write) if field.is_nullable else write


def _nullable_write(write: WriteValues) -> WriteValues:
    def write_nullable(value: Any, droppable: frozenset[str], parts: list[bytes]) -> None:
        if value is None:
            parts.append(_NULL_STRUCTURE)
        else:
            parts.append(_STRUCTURE)
            write(value, droppable, parts)

    return write_nullable


def _primitive_write(kafka_type: str, is_flexible: bool) -> WriteValues:
    encode = _TIMES.get(kafka_type) or encoder_of(kafka_type, is_flexible)

    def write_primitive(value: Any, droppable: frozenset[str], parts: list[bytes]) -> None:
        parts.append(encode(value))

    return write_primitive


def _time_encoder(pack: Callable[[int], bytes]) -> Callable[[Any], bytes]:
    """Of milliseconds, as handlers give them; of what kio makes of a time; of parts of them."""

    def encode_time(value: Any) -> bytes:
        return pack(value if type(value) is int else _whole_millis(value))

    return encode_time


def _whole_millis(value: timedelta | datetime | float | None) -> int:
    if value is None or isinstance(value, timedelta | datetime):
        return millis(value)
    return millis(timedelta(milliseconds=value))


_TIMES: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "timedelta_i32": _time_encoder(struct.Struct(">i").pack),
    "timedelta_i64": _time_encoder(struct.Struct(">q").pack),
    "datetime_i64": _time_encoder(struct.Struct(">q").pack),
}


def _array_write(field: FieldLayout, is_flexible: bool) -> WriteValues:
    encode_count = encode_compact_count if is_flexible else encode_legacy_count
    name, is_nullable = field.name, field.is_nullable
    write: WriteValues | None = None
    if field.structure is not None:
        write = values_writer_of(field.structure)
    elif field.kafka_type in FORMATS:
        write_numbers = packed_array_write(FORMATS[field.kafka_type], encode_count)
    else:
        write = _primitive_write(field.kafka_type, is_flexible)

    def write_array(values: Any, droppable: frozenset[str], parts: list[bytes]) -> None:
        # The usual types first: to ask for a Mapping takes longer than the rest.
        if type(values) not in _USUAL:
            if isinstance(values, EncodedArray):
                parts.append(encode_count(len(values.elements)))
                parts += values.elements
                return
            if values is None and is_nullable:
                parts.append(encode_count(-1))
                return
            if values is None or isinstance(values, _NO_SEQUENCES):
                raise ShapeError(f"{name} has to be a sequence, not {values!r}")
            values = tuple(values)
        if write is None:
            write_numbers(values, parts)
            return
        parts.append(encode_count(len(values)))
        for value in values:
            write(value, droppable, parts)

    return write_array


def _tagged_write(run: Sequence[FieldLayout]) -> WriteValues:
    """Tagged fields are written, in the order of their tags, where they differ from the default."""
    tagged = []
    for field in sorted(run, key=lambda field: field.tag or 0):
        write, default = _value_write(field, is_flexible=True), _neutral(field.default)
        omitted = None if default is MISSING else _encode_alone(write, default, NOTHING_DROPPABLE)
        tagged.append((field.name, encode_varint(field.tag or 0), write, default, omitted))

    def write_tagged(values: Values, droppable: frozenset[str], parts: list[bytes]) -> None:
        present: list[bytes] = []
        count = 0
        for name, tag, write, default, omitted in tagged:
            value = values[name]
            if value is not default:
                encoded = _encode_alone(write, value, droppable)
                if encoded != omitted:
                    count += 1
                    present += (tag, encode_varint(len(encoded)), encoded)
        parts.append(encode_varint(count))
        parts += present

    return write_tagged


def _encode_alone(write: WriteValues, value: object, droppable: frozenset[str]) -> bytes:
    parts: list[bytes] = []
    write(value, droppable, parts)
    return b"".join(parts)


def _write_no_tags(values: Values, droppable: frozenset[str], parts: list[bytes]) -> None:
    parts.append(b"\0")
