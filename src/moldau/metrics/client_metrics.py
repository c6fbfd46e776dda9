"""Metrics that clients push (KIP-714): subscriptions, OpenTelemetry's format, Prometheus' names.

Why by hand: `opentelemetry-proto` brings `protobuf` along, for four messages. The fields are those
of opentelemetry/proto/metrics/v1/metrics.proto. Gauges and sums with numbers are read, with their
attributes; histograms and summaries are ignored, since no Kafka client sends them. What is read is
bounded by the bytes of a push.

`org.apache.kafka.producer.request.latency.avg` becomes
`moldau_client_producer_request_latency_avg`, with the client and its attributes as labels.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from moldau.metrics.exposition import Metric, MetricKind

ALL_METRICS: Final = "*"
_ALL_ON_THE_WIRE: Final = ""
DEFAULT_INTERVAL_MS: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSubscription:
    """One subscription as somebody set it up."""

    name: str
    metrics: tuple[str, ...] = ()
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: Mapping[str, str] = field(default_factory=dict)  # patterns by what they look at

    def fits(self, client: Mapping[str, str]) -> bool:
        return all(
            _compile(pattern).fullmatch(client.get(name, "")) is not None
            for name, pattern in self.match.items()
        )


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMetrics:
    """What one client is told."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]  # empty: none; one empty text: all


def request_metrics(
    subscriptions: Iterable[ClientSubscription], client: Mapping[str, str], instance_id: UUID
) -> RequestedMetrics:
    """All that fits the client: the sum of metrics, the shortest interval.

    The id changes when what is asked for does, and only then.
    """
    fitting = [one for one in subscriptions if one.metrics and one.fits(client)]
    metrics = tuple(sorted({metric for one in fitting for metric in one.metrics}))
    if ALL_METRICS in metrics:
        metrics = (_ALL_ON_THE_WIRE,)
    interval_ms = min((one.interval_ms for one in fitting), default=DEFAULT_INTERVAL_MS)
    text = f"{instance_id}|{interval_ms}|{','.join(metrics)}"
    subscription_id = zlib.crc32(text.encode()) - (1 << 31)
    return RequestedMetrics(
        subscription_id=subscription_id, interval_ms=interval_ms, metrics=metrics
    )


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
    for number, _, content in _fields(data):
        if number == 4 and isinstance(content, bytes) and len(content) == 8:
            value = _DOUBLE.unpack(content)[0]
        elif number == 6 and isinstance(content, bytes) and len(content) == 8:
            value = float(_SFIXED64.unpack(content)[0])
        elif number == 7 and isinstance(content, bytes):
            key, text = _read_attribute(content)
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


PREFIX: Final = "moldau_client_"
_THEIR_PREFIX: Final = "org.apache.kafka."
_STRANGE = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED: Final = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
_CLIENT_LABELS: Final = ("client_id", "client_instance_id", "client_software")
_MOST_LABEL_BYTES: Final = 200


class ClientSeries(NamedTuple):
    """One number of one client."""

    name: str
    is_counter: bool
    labels: Mapping[str, str]
    value: float


def name_series(point: PushedPoint, client: Mapping[str, str]) -> ClientSeries:
    """`client` has the labels of `_CLIENT_LABELS`."""
    bare = _STRANGE.sub("_", point.name.removeprefix(_THEIR_PREFIX))
    if point.is_counter:
        bare = bare.removesuffix("_total")
    elif bare.endswith(_RESERVED):
        bare += "_value"
    labels = {_STRANGE.sub("_", key): text for key, text in point.attributes.items()}
    labels = {key: text for key, text in labels.items() if key and not key[0].isdigit()}
    labels.pop("le", None)
    cut = {key: text[:_MOST_LABEL_BYTES] for key, text in {**labels, **client}.items()}
    return ClientSeries(PREFIX + bare, point.is_counter, cut, point.value)


def group_series(
    series: Iterable[ClientSeries],
) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], float]]]]:
    """Families with their samples: the values of the labels, and the number.

    All samples of a family have the same labels; an empty one is as good as none. Where clients do
    not agree whether something is a counter, it is none.
    """
    by_name: dict[str, list[ClientSeries]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    for name, some in sorted(by_name.items()):
        others = sorted({key for one in some for key in one.labels} - set(_CLIENT_LABELS))
        names = (*_CLIENT_LABELS, *others)
        is_counter = all(one.is_counter for one in some)
        kind = MetricKind.COUNTER if is_counter else MetricKind.GAUGE
        unique = {tuple(one.labels.get(key, "") for key in names): one.value for one in some}
        yield (Metric(name, kind, "Pushed by clients (KIP-714).", names), list(unique.items()))
