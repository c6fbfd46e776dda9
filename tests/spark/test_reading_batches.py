"""The reader of batches as Spark calls it, against a real broker and without Spark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from moldau.client.blocking import Admin
from moldau.errors import ConfigurationError, DataLossError
from moldau.model import TopicPartition
from moldau.spark.columns import arrow_schema, source_schema
from moldau.spark.readers import MoldauBatchReader
from moldau.spark.source import MoldauDataSource
from support import confluent_client
from support.rows import VARIED_ROWS, numbered_rows
from support.topics import Topics

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def topic(bootstrap: str, topics: Topics) -> str:
    """Ten records in partition 0, a millisecond apart, and five in partition 1."""
    name = topics.create(partitions=2)
    confluent_client.produce(bootstrap, name, numbered_rows(10))
    confluent_client.produce(bootstrap, name, numbered_rows(5), partition=1)
    return name


def make_reader(
    bootstrap: str, schema: StructType | None = None, **options: object
) -> MoldauBatchReader:
    given = {name: str(value) for name, value in options.items()}
    source = MoldauDataSource({"kafka.bootstrap.servers": bootstrap, **given})
    reader = source.reader(schema or source_schema(include_headers=False))
    assert isinstance(reader, MoldauBatchReader)
    return reader


def read_all(reader: MoldauBatchReader) -> list[pa.RecordBatch]:
    return [batch for task in reader.partitions() for batch in reader.read(task)]


def places(reader: MoldauBatchReader) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["offset"]) for batch in read_all(reader) for row in batch.to_pylist()
    ]


def offsets(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def by_partition(topic: str, zero: int, one: int) -> str:
    return json.dumps({topic: {"0": zero, "1": one}})


def at(timestamp_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)


def test_a_batch_has_everything_by_default(bootstrap: str, topic: str) -> None:
    assert places(make_reader(bootstrap, subscribe=topic)) == offsets(0, 0, 10) + offsets(1, 0, 5)


def test_every_kind_of_record_comes_as_it_was_sent(bootstrap: str, topics: Topics) -> None:
    name = topics.create()
    confluent_client.produce(bootstrap, name, VARIED_ROWS)
    schema = source_schema(include_headers=True)
    reader = make_reader(bootstrap, schema, subscribe=name, includeHeaders=True)
    batches = read_all(reader)
    assert all(batch.schema.equals(arrow_schema(schema)) for batch in batches)
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {
            "key": row.key,
            "value": row.value,
            "topic": name,
            "partition": 0,
            "offset": offset,
            "timestamp": at(row.timestamp_ms or 0),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in row.headers] or None,
        }
        for offset, row in enumerate(VARIED_ROWS)
    ]


def test_a_range_of_offsets_is_read_exactly(bootstrap: str, topic: str) -> None:
    reader = make_reader(
        bootstrap,
        subscribe=topic,
        startingOffsets=by_partition(topic, 3, -2),
        endingOffsets=by_partition(topic, 7, -1),
    )
    assert places(reader) == offsets(0, 3, 7) + offsets(1, 0, 5)


def test_a_range_of_time_is_read_exactly(bootstrap: str, topic: str) -> None:
    reader = make_reader(
        bootstrap, subscribe=topic, startingTimestamp=START_MS + 2, endingTimestamp=START_MS + 4
    )
    assert places(reader) == offsets(0, 2, 4) + offsets(1, 2, 4)


def test_each_partition_can_have_a_time_of_its_own(bootstrap: str, topic: str) -> None:
    reader = make_reader(
        bootstrap,
        subscribe=topic,
        startingOffsetsByTimestamp=by_partition(topic, START_MS + 8, START_MS),
        endingOffsetsByTimestamp=by_partition(topic, START_MS + 99, START_MS + 1),
    )
    assert places(reader) == offsets(0, 8, 10) + offsets(1, 0, 1)


def test_a_time_that_no_record_reaches_is_an_error_or_the_end(bootstrap: str, topic: str) -> None:
    late = {"subscribe": topic, "startingTimestamp": START_MS + 7}
    with pytest.raises(ConfigurationError, match=f"{topic}-1 has no record at or after"):
        make_reader(bootstrap, **late).partitions()
    lenient = make_reader(bootstrap, startingOffsetsByTimestampStrategy="latest", **late)
    assert places(lenient) == offsets(0, 7, 10)


def test_single_partitions_and_patterns_choose_what_is_read(bootstrap: str, topic: str) -> None:
    assigned = make_reader(bootstrap, assign=json.dumps({topic: [1]}))
    assert places(assigned) == offsets(1, 0, 5)
    matched = make_reader(bootstrap, subscribePattern=f"{topic[:-1]}[{topic[-1]}]")
    assert len(places(matched)) == 15
    assert make_reader(bootstrap, subscribePattern="no-such-.*").partitions() == []


def test_tasks_are_cut_as_asked_for(bootstrap: str, topic: str) -> None:
    reader = make_reader(bootstrap, subscribe=topic, maxRecordsPerPartition=4)
    assert len(reader.partitions()) == 5
    assert places(reader) == offsets(0, 0, 10) + offsets(1, 0, 5)
    assert len(make_reader(bootstrap, subscribe=topic, minPartitions=7).partitions()) == 7


def test_short_partitions_are_read_by_one_task_where_that_is_asked_for(
    bootstrap: str, topic: str
) -> None:
    reader = make_reader(bootstrap, subscribe=topic, minRecordsPerPartition=1_000)
    (task,) = reader.partitions()
    (batch,) = reader.read(task)  # one for all
    assert batch.num_rows == 15
    assert places(reader) == offsets(0, 0, 10) + offsets(1, 0, 5)
    found = make_reader(bootstrap, subscribe=topic, minRecordsPerPartition=10)
    assert len(found.partitions()) == 2  # the first has enough


def test_offsets_have_to_be_named_for_every_partition(bootstrap: str, topic: str) -> None:
    reader = make_reader(bootstrap, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 3}}))
    with pytest.raises(ConfigurationError, match=f"names no offset for {topic}-1"):
        reader.partitions()


def test_deleted_and_missing_records_fail_a_batch_unless_it_is_to_go_on(
    bootstrap: str, topics: Topics
) -> None:
    name = topics.create()
    confluent_client.produce(bootstrap, name, numbered_rows(10))
    with Admin(bootstrap) as admin:
        admin.delete_records({TopicPartition(name, 0): 4})
    wanted = {
        "subscribe": name,
        "startingOffsets": json.dumps({name: {"0": 1}}),
        "endingOffsets": json.dumps({name: {"0": 12}}),
    }
    with pytest.raises(DataLossError, match=r"log begins at 4 by now.*log ends at 10"):
        make_reader(bootstrap, **wanted).partitions()
    assert places(make_reader(bootstrap, failOnDataLoss=False, **wanted)) == offsets(0, 4, 10)


def test_a_start_behind_the_end_fails_a_batch_unless_it_is_to_go_on(
    bootstrap: str, topic: str
) -> None:
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 99, "1": 0}})}
    with pytest.raises(DataLossError, match=f"{topic}-0 is to be read from offset 99, but"):
        make_reader(bootstrap, **options).partitions()
    patient = make_reader(bootstrap, **options, failOnDataLoss="false")
    assert places(patient) == [(1, offset) for offset in range(5)]


def test_only_the_columns_of_the_schema_are_read(bootstrap: str, topic: str) -> None:
    whole = source_schema(include_headers=False)
    schema = StructType([whole["offset"], StructField("value", whole["value"].dataType, False)])
    batches = read_all(make_reader(bootstrap, schema, subscribe=topic))
    assert all(batch.schema.equals(arrow_schema(schema)) for batch in batches)
    assert batches[0].column("value")[0].as_py().startswith(b"value-0-")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("text", StringType()), "a topic has no column 'text'; there are key, value"),
        (StructField("value", StringType()), "the column value is binary, not string; read it as"),
    ],
)
def test_a_schema_with_other_columns_is_refused(field: StructField, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        make_reader("127.0.0.1:1", StructType([field]), subscribe="clicks")
