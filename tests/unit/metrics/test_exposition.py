"""The text is what Prometheus' own client reads, in both formats."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from moldau.metrics.catalogue import CATALOGUE
from moldau.metrics.exposition import Exposition, Metric, MetricKind, wants_openmetrics
from moldau.metrics.figures import Histogram

COUNTER = Metric("m_bytes", MetricKind.COUNTER, 'of "all" \\ things', ("topic",))
GAUGE = Metric("m_level", MetricKind.GAUGE, "a level")
INFO = Metric("m_build", MetricKind.INFO, "which", ("version",))
TIMES = Metric("m_seconds", MetricKind.HISTOGRAM, "times", ("api",))


def write(out: Exposition, *, openmetrics: bool) -> str:
    return "".join(out.pieces(openmetrics=openmetrics))


@given(st.text(), st.integers(min_value=0, max_value=2**63))
def test_any_label_and_number_is_read_as_it_was(topic: str, value: int) -> None:
    out = Exposition()
    out.add(COUNTER, value, topic)
    (family,) = read_text(write(out, openmetrics=False))
    (sample,) = family.samples
    assert (family.type, sample.name, sample.labels) == (
        "counter",
        "m_bytes_total",
        {"topic": topic},
    )
    assert sample.value == value


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_kind_is_read(openmetrics: bool) -> None:
    out, histogram = Exposition(), Histogram()
    for seconds in (0.0001, 0.01, 100.0):
        histogram.note(seconds)
    out.add(INFO, 1, "1.0")
    out.add(COUNTER, 3, "a")
    out.add(COUNTER, 4, "b")
    out.add(GAUGE, -1.5)
    out.add_histogram(TIMES, histogram, "Fetch")
    read = read_openmetrics if openmetrics else read_text
    families = {family.name: family for family in read(write(out, openmetrics=openmetrics))}
    assert families["m_bytes"].type == "counter"
    assert families["m_level"].samples[0].value == -1.5
    times = families["m_seconds"]
    assert times.type == "histogram"
    assert [one.value for one in times.samples if one.name == "m_seconds_count"] == [3.0]
    assert ("m_build" if openmetrics else "m_build_info") in families


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_none_have_words(value: float) -> None:
    out = Exposition()
    out.add(GAUGE, value)
    (family,) = read_text(write(out, openmetrics=False))
    assert repr(family.samples[0].value) == repr(value)


def test_a_long_text_comes_in_pieces() -> None:
    out = Exposition()
    for number in range(2000):
        out.add(COUNTER, number, f"t{number}")
    pieces = list(out.pieces(openmetrics=False))
    assert len(pieces) > 5
    assert len(next(iter(read_text("".join(pieces)))).samples) == 2000


def test_the_accept_header_decides() -> None:
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4"
    assert wants_openmetrics(prometheus)
    assert not wants_openmetrics("text/plain")
    assert not wants_openmetrics("")


def test_no_two_metrics_have_one_name() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names) > 60
