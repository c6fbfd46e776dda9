"""Conditions that Spark leaves to the source, as it hands them over, against a real broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from moldau.spark import readers
from moldau.spark.columns import source_schema
from moldau.spark.readers import FilteringBatchReader
from moldau.spark.source import MoldauDataSource
from support import confluent_client
from support.rows import numbered_rows
from support.spark_versions import pushes_filters
from support.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

START_MS = 1_700_000_000_000

pytestmark = pushes_filters


@pytest.fixture(scope="module")
def topic(bootstrap: str, topics: Topics) -> str:
    """Ten records in partition 0, a millisecond apart, and five in partition 1."""
    name = topics.create(partitions=2)
    confluent_client.produce(bootstrap, name, numbered_rows(10))
    confluent_client.produce(bootstrap, name, numbered_rows(5), partition=1)
    return name


@pytest.fixture(autouse=True)
def _filters_are_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks in a process of its own, which is played here."""
    monkeypatch.setattr(readers, "_may_push_filters", lambda: True)


def push(
    bootstrap: str, topic: str, filters: list[Filter]
) -> tuple[list[tuple[int, int]], list[Filter]]:
    """Where the records are that are read then, and what is left to Spark."""
    source = MoldauDataSource({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    reader = source.reader(source_schema(include_headers=False))
    assert isinstance(reader, FilteringBatchReader)
    left = list(reader.pushFilters(filters))
    found = [
        (row["partition"], row["offset"])
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    return found, left


def offsets(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def test_partition_and_offset_are_decided_here(bootstrap: str, topic: str) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, IsNotNull, LessThan

    filters: list[Filter] = [
        IsNotNull(("partition",)),
        EqualTo(("partition",), 0),
        GreaterThanOrEqual(("offset",), 3),
        LessThan(("offset",), 6),
    ]
    assert push(bootstrap, topic, filters) == (offsets(0, 3, 6), [])


def test_topics_are_decided_here(bootstrap: str, topic: str) -> None:
    from pyspark.sql.datasource import EqualTo, In, Not, StringStartsWith

    names: list[Filter] = [In(("topic",), (topic, "x")), StringStartsWith(("topic",), "topic")]
    found, left = push(bootstrap, topic, [*names, Not(EqualTo(("partition",), 0))])
    assert (found, left) == (offsets(1, 0, 5), [])
    assert push(bootstrap, topic, [Not(EqualTo(("topic",), topic))]) == ([], [])


def test_a_time_spares_the_beginning_and_spark_looks_again(bootstrap: str, topic: str) -> None:
    from pyspark.sql.datasource import GreaterThanOrEqual

    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS + 6)
    since = GreaterThanOrEqual(("timestamp",), time)
    assert push(bootstrap, topic, [since]) == (offsets(0, 6, 10), [since])


def test_other_columns_are_left_to_spark(bootstrap: str, topic: str) -> None:
    from pyspark.sql.datasource import EqualTo

    value = EqualTo(("value",), b"x")
    found, left = push(bootstrap, topic, [value])
    assert (len(found), left) == (15, [value])
