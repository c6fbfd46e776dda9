"""Looks over a message before kio's native reader does: a hostile frame must not hurt the broker.

kio's reader trusts the length of an array and reserves memory for that many elements; a frame of
eight bytes that announces two billion of them would end the process. It also refuses tagged
fields it does not know, where KIP-482 wants them ignored, and accepts null for arrays that may not
be null, but not for tagged strings that may; and it takes no time before 1970, though Kafka sends
-1 for none. A list of millions of tiny elements is a thousand
times as large in memory. So each message is first walked with the layout of
its class: counts are held against the bytes left and a limit of all elements together, null
against the schema, and unknown tagged fields and tagged nulls are noted, to be cut out.

The walk has to agree with kio on every position, or a length could be hidden from it. Does not
check what kio does: UTF-8, booleans, null strings. A rule: bytes in, verdict out.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.errors import MalformedFrameError
from moldau.wire.layout import FIXED_BYTES, FieldLayout, layout_of
from moldau.wire.primitives import encode_varint, read_varint

if TYPE_CHECKING:
    from kio.static.protocol import Entity

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1
_NULL_MARKER: Final = 0xFF
_TIME_BYTES: Final = 8
_SIGN: Final = 0x80


class Edit(NamedTuple):
    """Bytes to be replaced before kio reads the message."""

    start: int
    end: int
    replacement: bytes


class Edits(list[Edit]):
    """The edits of one message, and how many elements of arrays it may still have.

    kio makes an object of each element, and so do those who handle the message: it is their number
    that costs memory and time, not the bytes of the message, which have arrived already.
    """

    __slots__ = ("elements_left",)

    def __init__(self, most_elements: int = sys.maxsize) -> None:
        super().__init__()
        self.elements_left = most_elements

    def allow(self, elements: int) -> None:
        self.elements_left -= elements
        if self.elements_left < 0:
            raise MalformedFrameError("the message has too many elements")


Walk = Callable[[memoryview, int, Edits], int]
"""From the position of a value to the position after it; may add edits. Positions never go back;
they may run past the end, where the next read raises IndexError or struct.error."""


class Walker(NamedTuple):
    """How to walk over values of one type."""

    walk: Walk
    min_bytes: int  # at least one, so a count of elements is bounded by the bytes left
    is_fixed: bool  # every value has min_bytes


class TaggedField(NamedTuple):
    """How to walk over the value of a known tagged field."""

    walk: Walk
    is_nullable_string: bool


@cache
def walker_of(entity_class: type[Entity]) -> Walker:
    """The walker of a message or structure, made once from its layout."""
    is_flexible: bool = entity_class.__flexible__
    tagged: dict[int, TaggedField] = {}
    steps: list[tuple[int, Walk]] = []
    min_bytes = 0
    lead = 0  # fixed bytes since the last step
    for field in layout_of(entity_class):
        walker = _field_walker(field, is_flexible)
        if field.tag is not None:
            is_nullable_string = field.is_nullable and walker.walk is _walk_compact_bytes
            tagged[field.tag] = TaggedField(walker.walk, is_nullable_string)
            continue
        min_bytes += walker.min_bytes
        if walker.is_fixed:
            lead += walker.min_bytes
        else:
            steps.append((lead, walker.walk))
            lead = 0
    if is_flexible:
        steps.append((lead, _tagged_walk(tagged)))
        return Walker(_structure_walk(tuple(steps), 0), min_bytes + 1, is_fixed=False)
    return Walker(_structure_walk(tuple(steps), lead), max(min_bytes, 1), is_fixed=not steps)


def apply_edits(frame: memoryview, position: int, edits: Edits) -> memoryview:
    """A copy of the message that starts at the position, with the edits made."""
    parts: list[memoryview | bytes] = []
    for start, end, replacement in sorted(edits):
        parts += (frame[position:start], replacement)
        position = end
    parts.append(frame[position:])
    return memoryview(b"".join(parts))


def _structure_walk(steps: tuple[tuple[int, Walk], ...], tail: int) -> Walk:
    def walk_structure(frame: memoryview, position: int, edits: Edits) -> int:
        for lead, walk in steps:
            position = walk(frame, position + lead, edits)
        return position + tail

    return walk_structure


def _field_walker(field: FieldLayout, is_flexible: bool) -> Walker:
    if field.is_array:
        element = _element_walker(field, is_flexible)
        if is_flexible:
            return Walker(_compact_array_walk(field, element), 1, is_fixed=False)
        return Walker(_legacy_array_walk(field, element), 4, is_fixed=False)
    if field.structure is not None and field.is_nullable:
        return Walker(_nullable_walk(walker_of(field.structure).walk), 1, is_fixed=False)
    return _element_walker(field, is_flexible)


def _element_walker(field: FieldLayout, is_flexible: bool) -> Walker:
    if field.structure is not None:
        return walker_of(field.structure)
    if field.kafka_type == "datetime_i64" and not field.is_nullable:
        return Walker(_walk_time, _TIME_BYTES, is_fixed=False)
    fixed_bytes = FIXED_BYTES.get(field.kafka_type)
    if fixed_bytes is not None:
        return Walker(_structure_walk((), fixed_bytes), fixed_bytes, is_fixed=True)
    if is_flexible:
        return Walker(_walk_compact_bytes, 1, is_fixed=False)
    if field.kafka_type == "string":
        return Walker(_walk_legacy_string, 2, is_fixed=False)
    return Walker(_walk_legacy_bytes, 4, is_fixed=False)


def _walk_time(frame: memoryview, position: int, edits: Edits) -> int:
    """Kafka's -1 for "no time", where its schema knows no null, becomes 0."""
    end = position + _TIME_BYTES
    if frame[position] & _SIGN:
        edits.append(Edit(position, end, bytes(_TIME_BYTES)))
    return end


def _walk_compact_bytes(frame: memoryview, position: int, edits: Edits) -> int:
    length = frame[position]
    if length < 0x80:
        return position + length if length else position + 1
    length, position = read_varint(frame, position)
    # Zero may be written in more bytes than it needs; positions must not go back even then.
    return position + length - 1 if length else position


def _walk_legacy_string(frame: memoryview, position: int, edits: Edits) -> int:
    length: int = _INT16.unpack_from(frame, position)[0]
    return position + 2 + _checked_length(length)


def _walk_legacy_bytes(frame: memoryview, position: int, edits: Edits) -> int:
    length: int = _INT32.unpack_from(frame, position)[0]
    return position + 4 + _checked_length(length)


def _checked_length(length: int) -> int:
    if length >= 0:
        return length
    if length == _NULL:
        return 0
    raise MalformedFrameError(f"length of {length} bytes")


def _nullable_walk(walk: Walk) -> Walk:
    def walk_nullable(frame: memoryview, position: int, edits: Edits) -> int:
        if frame[position] == _NULL_MARKER:
            return position + 1
        return walk(frame, position + 1, edits)

    return walk_nullable


def _compact_array_walk(field: FieldLayout, element: Walker) -> Walk:
    walk_elements = _elements_walk(field, element)

    def walk_array(frame: memoryview, position: int, edits: Edits) -> int:
        count, position = read_varint(frame, position)
        return walk_elements(frame, position, edits, count - 1)

    return walk_array


def _legacy_array_walk(field: FieldLayout, element: Walker) -> Walk:
    walk_elements = _elements_walk(field, element)

    def walk_array(frame: memoryview, position: int, edits: Edits) -> int:
        count: int = _INT32.unpack_from(frame, position)[0]
        return walk_elements(frame, position + 4, edits, count)

    return walk_array


def _elements_walk(
    field: FieldLayout, element: Walker
) -> Callable[[memoryview, int, Edits, int], int]:
    walk, min_bytes, is_fixed = element
    lowest_count = _NULL if field.is_nullable else 0
    name = field.name

    def walk_elements(frame: memoryview, position: int, edits: Edits, count: int) -> int:
        if count < lowest_count or count * min_bytes > len(frame) - position:
            left = len(frame) - position
            raise MalformedFrameError(f"{name} has {count} elements in {left} bytes")
        if count == _NULL:
            return position
        edits.allow(count)
        if is_fixed:
            return position + count * min_bytes
        for _ in range(count):
            position = walk(frame, position, edits)
        return position

    return walk_elements


def _tagged_walk(known: dict[int, TaggedField]) -> Walk:
    def walk_tagged(frame: memoryview, position: int, edits: Edits) -> int:
        if not frame[position]:
            return position + 1
        start = position
        count, position = read_varint(frame, position)
        after_count = position
        cut_count = 0
        edits.allow(count)
        for _ in range(count):
            field_start = position
            tag, size_position = read_varint(frame, position)
            size, value_position = read_varint(frame, size_position)
            position = value_position + size
            field = known.get(tag)
            if field is not None:
                _walk_value(field.walk, frame, (size_position, value_position, position), edits)
            if field is None or (
                field.is_nullable_string and not read_varint(frame, value_position)[0]
            ):
                cut_count += 1
                edits.append(Edit(field_start, position, b""))
        if cut_count:
            edits.append(Edit(start, after_count, encode_varint(count - cut_count)))
        return position

    return walk_tagged


def _walk_value(walk: Walk, frame: memoryview, span: tuple[int, int, int], edits: Edits) -> None:
    """Walk over a known tagged field; if something is cut from it, its size shrinks as well."""
    size_position, start, end = span
    edits_before = len(edits)
    if walk(frame, start, edits) != end:
        raise MalformedFrameError(f"tagged field at {start} has not the size it announces")
    if len(edits) > edits_before:
        cut = sum(edit.end - edit.start - len(edit.replacement) for edit in edits[edits_before:])
        edits.append(Edit(size_position, start, encode_varint(end - start - cut)))
