"""What clients push: numbers with their attributes; nonsense is refused, whatever it is."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.metrics.client_metrics import (
    MalformedPushError,
    PushedPoint,
    group_series,
    name_series,
    read_push,
)
from moldau.metrics.exposition import MetricKind

CLIENT = {"client_id": "c", "client_instance_id": "i", "client_software": "s 1"}


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def text_attribute(key: str, value: str) -> bytes:
    return message(1, key.encode()) + message(2, message(1, value.encode()))


def point(value: float | int, **attributes: str) -> bytes:
    number = (
        b"\x21" + struct.pack("<d", value)
        if isinstance(value, float)
        else b"\x31" + struct.pack("<q", value)
    )
    return number + b"".join(message(7, text_attribute(*one)) for one in attributes.items())


def gauge(name: str, *points: bytes) -> bytes:
    return message(1, name.encode()) + message(5, b"".join(message(1, one) for one in points))


def total(name: str, *points: bytes, temporality: int = 2, monotonic: bool = True) -> bytes:
    told = b"".join(message(1, one) for one in points)
    told += b"\x10" + varint(temporality) + b"\x18" + varint(monotonic)
    return message(1, name.encode()) + message(7, told)


def push(*metrics: bytes) -> bytes:
    scope = message(1, message(1, b"scope")) + b"".join(message(2, one) for one in metrics)
    return message(1, message(1, b"") + message(2, scope))


@given(
    st.floats(allow_nan=False),
    st.integers(min_value=-(2**53), max_value=2**53),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text(), max_size=3),
)
def test_numbers_and_attributes_are_read(
    number: float, whole: int, attributes: dict[str, str]
) -> None:
    data = push(gauge("a.b", point(number, **attributes)), total("c.total", point(whole)))
    expected = [
        PushedPoint("a.b", attributes, number, False),
        PushedPoint("c.total", {}, float(whole), True),
    ]
    assert list(read_push(data)) == expected


def test_a_sum_of_deltas_or_one_that_falls_is_no_counter() -> None:
    data = push(
        total("a", point(1), temporality=1),
        total("b", point(1), monotonic=False),
    )
    assert [one.is_counter for one in read_push(data)] == [False, False]


@given(st.binary(max_size=200))
def test_any_bytes_are_numbers_or_refused(data: bytes) -> None:
    try:
        list(read_push(data))
    except MalformedPushError:
        return


@given(st.data())
def test_a_push_that_is_cut_short_is_refused(data: st.DataObject) -> None:
    whole = push(gauge("a.b", point(1.5, topic="t")))
    size = data.draw(st.integers(min_value=1, max_value=len(whole) - 1))
    with pytest.raises(MalformedPushError):
        list(read_push(whole[:size]))


def test_names_are_those_of_prometheus() -> None:
    def named(name: str, *, is_counter: bool) -> str:
        return name_series(PushedPoint(name, {}, 1.0, is_counter), CLIENT).name

    latency = "org.apache.kafka.producer.request.latency.avg"
    assert named(latency, is_counter=False) == "moldau_client_producer_request_latency_avg"
    created = "org.apache.kafka.consumer.connection.creation.total"
    assert named(created, is_counter=True) == "moldau_client_consumer_connection_creation"
    assert named("x.total", is_counter=False) == "moldau_client_x_total_value"


def test_samples_of_a_family_have_the_same_labels() -> None:
    series = [
        name_series(PushedPoint("a", {"topic": "t", "le": "x", "0bad": "y"}, 1.0, True), CLIENT),
        name_series(PushedPoint("a", {"node-id": "n"}, 2.0, True), CLIENT),
    ]
    ((metric, samples),) = group_series(series)
    assert metric.kind is MetricKind.COUNTER
    assert metric.labels == (*CLIENT, "node_id", "topic")
    assert dict(samples) == {
        (*CLIENT.values(), "", "t"): 1.0,
        (*CLIENT.values(), "n", ""): 2.0,
    }
