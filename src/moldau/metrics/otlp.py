"""Reads what clients push: OpenTelemetry's MetricsData, as far as clients use it. A rule.

Gauges and sums with numbers, and their attributes; histograms and summaries are passed over, since
no Kafka client sends them. Bounded by the bytes that it is given: nothing in it makes more of them.

Why by hand: `opentelemetry-proto` brings `protobuf` along, for four messages. The fields are those
of opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_DOUBLE = struct.Struct("<d")
_SFIXED64 = struct.Struct("<q")
_GAUGE = 5
_SUM = 7
_CUMULATIVE = 2
_MOST_VARINT_BYTES = 10


class MalformedPushError(ValueError):
    """Bytes that are no MetricsData."""


class PushedPoint(NamedTuple):
    """One number of one metric."""

    name: str
    attributes: Mapping[str, str]
    value: float
    is_counter: bool  # cumulative, and only grows


def read_push(data: bytes) -> Iterator[PushedPoint]:
    """The numbers in the order in which they stand there. Raises `MalformedPushError`."""
    for number, resource in _messages(data):
        if number != 1:
            continue
        for place, scope in _messages(resource):
            if place != 2:
                continue
            for part, metric in _messages(scope):
                if part == 2:
                    yield from _read_metric(metric)


def _read_metric(data: bytes) -> Iterator[PushedPoint]:
    name, kind, body = "", 0, b""
    for number, value in _messages(data):
        if number == 1:
            name = _text(value)
        elif number in (_GAUGE, _SUM):
            kind, body = number, value
    if not kind:
        return
    is_counter = kind == _SUM and _is_growing(body)
    for number, point in _messages(body):
        if number == 1:
            measured, attributes = _read_point(point)
            if measured is not None:
                yield PushedPoint(name, attributes, measured, is_counter)


def _is_growing(data: bytes) -> bool:
    """Of a sum: whether it is cumulative and only grows."""
    told = {number: value for number, wire, value in _fields(data) if wire == 0}
    return told.get(2) == _CUMULATIVE and bool(told.get(3))


def _read_point(data: bytes) -> tuple[float | None, dict[str, str]]:
    value: float | None = None
    attributes: dict[str, str] = {}
    for number, _, field in _fields(data):
        if number == 4 and isinstance(field, bytes) and len(field) == 8:
            value = _DOUBLE.unpack(field)[0]
        elif number == 6 and isinstance(field, bytes) and len(field) == 8:
            value = float(_SFIXED64.unpack(field)[0])
        elif number == 7 and isinstance(field, bytes):
            key, text = _read_attribute(field)
            attributes[key] = text
    return value, attributes


def _read_attribute(data: bytes) -> tuple[str, str]:
    key, text = "", ""
    for number, value in _messages(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            text = _read_any(value)
    return key, text


def _read_any(data: bytes) -> str:
    for number, wire, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            return _text(value)
        if number == 2 and wire == 0:
            return "true" if value else "false"
        if number == 3 and isinstance(value, int):
            return str(value - (1 << 64) if value >= 1 << 63 else value)
        if number == 4 and isinstance(value, bytes) and len(value) == 8:
            return repr(_DOUBLE.unpack(value)[0])
    return ""


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Fields that have a length: messages and texts."""
    for number, wire, value in _fields(data):
        if wire == 2 and isinstance(value, bytes):
            yield number, value


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of each field."""
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == 2:
            size, position = _varint(data, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise MalformedPushError(f"a field has the wire type {wire}")
        if position + size > end:
            raise MalformedPushError("a field ends behind its message")
        yield number, wire, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _MOST_VARINT_BYTES, 7):
        if position >= len(data):
            raise MalformedPushError("a number is cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedPushError("a number has more than ten bytes")
