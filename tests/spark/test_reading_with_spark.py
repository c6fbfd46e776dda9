"""Topics as DataFrames: real Spark, a real broker.

Each query costs seconds here, so a test asks several things of one. What does not need Spark is
tested beside this, on the readers themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import fastavro
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import moldau
from moldau.client.blocking import Admin
from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.spark import decode_avro, decode_json
from support import confluent_client
from support.rows import Row, numbered_rows
from support.spark_versions import QUERY_SECONDS, limits_batches, pushes_filters
from support.topics import Topics, fresh_name
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

START_MS = 1_700_000_000_000
AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "count", "type": ["null", "long"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


def load(spark: SparkSession, bootstrap: str, **options: object) -> DataFrame:
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def at(timestamp_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)


@pushes_filters
def test_a_topic_is_a_frame_and_filters_spare_reading(
    spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    rows = numbered_rows(50)
    confluent_client.produce(bootstrap, topic, rows)
    confluent_client.produce(bootstrap, topic, rows, partition=1)
    frame = load(spark, bootstrap, subscribe=topic, includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    some = frame.where("partition = 1 AND offset >= 40").where(
        frame.timestamp < at(START_MS + 45).replace(tzinfo=None)
    )
    table = some.toArrow()
    assert table.to_pylist() == [
        {
            "key": rows[offset].key,
            "value": rows[offset].value,
            "topic": topic,
            "partition": 1,
            "offset": offset,
            "timestamp": at(START_MS + offset),
            "timestampType": 0,
            "headers": [{"key": "number", "value": b"%d" % offset}],
        }
        for offset in range(40, 45)
    ]
    plan = some._jdf.queryExecution().executedPlan().toString()
    assert "offset" not in plan.partition("Filter")[2].partition("\n")[0]


def test_without_pushed_filters_the_answer_is_the_same(
    spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    confluent_client.produce(bootstrap, topic, numbered_rows(20))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = load(spark, bootstrap, subscribe=topic, maxRecordsPerPartition=7)
        found = frame.where("offset BETWEEN 5 AND 8").select("offset").toArrow()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert sorted(found.column("offset").to_pylist()) == [5, 6, 7, 8]


def test_gaps_that_compaction_leaves_are_passed_over(
    spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "5000",  # by the times of the records: five make a segment
            "min.cleanable.dirty.ratio": "0.01",
        }
    )
    rows = [
        Row(b"key-%d" % (number % 7), b"%d" % number, (), START_MS + 1000 * number)
        for number in range(100)
    ]
    confluent_client.produce(bootstrap, topic, rows, batch_size=500)
    eventually(lambda: len(offsets_of(topic, bootstrap)) < 50, "the topic is compacted")
    found = load(spark, bootstrap, subscribe=topic).select("offset").toArrow()
    assert found.column("offset").to_pylist() == offsets_of(topic, bootstrap)


def offsets_of(topic: str, bootstrap: str) -> list[int]:
    table = moldau.read_table(topic, bootstrap=bootstrap, columns=["offset"])
    offsets: list[int] = table.column("offset").to_pylist()
    return offsets


def test_a_wrong_option_is_told_at_load(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(AnalysisException, match=r"did you mean startingOffsets\?"):
        load(spark, bootstrap, subscribe="clicks", startingOffset="earliest")


def test_json_and_avro_become_columns_and_what_does_not_parse_is_null(
    spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    texts = [b'{"user": "ada", "count": 3, "more": 1}', b"{oh", b'{"count": "x"}', b"{}", None]
    confluent_client.produce(bootstrap, topic, [Row(None, text) for text in texts])
    whole = avro_bytes({"user": "ada", "count": 3, "at": at(START_MS)})
    confluent_client.produce(
        bootstrap,
        topic,
        [Row(None, data) for data in (whole, b"\x00\x01", whole + b"x", None)],
        partition=1,
    )
    frame = load(spark, bootstrap, subscribe=topic)
    by_json = decode_json(frame.where("partition = 0"), "user STRING, count INT")
    assert [row["data"] for row in by_json.select("data").toArrow().to_pylist()] == [
        {"user": "ada", "count": 3},
        None,
        None,
        {"user": None, "count": None},
        None,
    ]
    by_avro = decode_avro(frame.where("partition = 1"), AVRO)
    assert [row["data"] for row in by_avro.select("data").toArrow().to_pylist()] == [
        {"user": "ada", "count": 3, "at": at(START_MS)},
        None,
        None,
        None,
    ]


def test_an_avro_schema_that_is_no_json_is_told() -> None:
    with pytest.raises(ConfigurationError, match="an Avro schema is JSON, and this is none"):
        decode_avro(cast("DataFrame", None), "{nope")


def avro_bytes(value: dict[str, object]) -> bytes:
    import io

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


class Sink:
    """A streaming query that keeps what it read in files, with a checkpoint."""

    def __init__(
        self, spark: SparkSession, folder: Path, bootstrap: str, **options: object
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {"kafka.bootstrap.servers": bootstrap} | {
            name: str(value) for name, value in options.items()
        }

    def start(self, **trigger: object) -> StreamingQuery:
        stream = self._spark.readStream.format("moldau").options(**self._options).load()
        writer = stream.select("topic", "partition", "offset").writeStream.format("json")
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._folder / "data"))  # type: ignore[arg-type]

    def run_available(self) -> StreamingQuery:
        query = self.start(availableNow=True)
        assert query.awaitTermination(QUERY_SECONDS)
        return query

    def rows(self) -> list[tuple[str, int, int]]:
        return sorted(
            (row["topic"], row["partition"], row["offset"])
            for path in (self._folder / "data").glob("*.json")
            for row in map(json.loads, path.read_text().splitlines())
        )


@limits_batches
def test_a_query_goes_on_from_its_checkpoint_within_limits_and_tells_its_group(
    spark: SparkSession, bootstrap: str, topics: Topics, admin: Admin, tmp_path: Path
) -> None:
    topic, group = topics.create(partitions=2), fresh_name("group")
    confluent_client.produce(bootstrap, topic, numbered_rows(30))
    sink = Sink(
        spark,
        tmp_path,
        bootstrap,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=20,
        groupId=group,
    )
    first = sink.run_available()
    assert [
        progress.numInputRows for progress in first.recentProgress if progress.numInputRows
    ] == [
        20,
        10,
    ]
    assert sink.rows() == [(topic, 0, offset) for offset in range(30)]
    assert committed(admin, group)[TopicPartition(topic, 0)] == 30

    confluent_client.produce(bootstrap, topic, numbered_rows(5), partition=1)
    sink.run_available()
    assert sink.rows() == [
        *((topic, 0, offset) for offset in range(30)),
        *((topic, 1, offset) for offset in range(5)),
    ]
    assert committed(admin, group) == {TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 5}


@limits_batches
def test_a_group_is_not_told_of_a_batch_that_failed(
    spark: SparkSession, bootstrap: str, topics: Topics, admin: Admin, tmp_path: Path
) -> None:
    topic, group = topics.create(), fresh_name("group")
    confluent_client.produce(bootstrap, topic, numbered_rows(20))
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
        "groupId": group,
    }
    seen: list[tuple[int, list[int]]] = []

    def run(failing_batch: int | None) -> None:
        def work(batch: DataFrame, batch_id: int) -> None:
            if batch_id == failing_batch:
                raise ValueError("this batch fails")
            found = batch.select("offset").toArrow().column("offset").to_pylist()
            seen.append((batch_id, sorted(found)))

        stream = spark.readStream.format("moldau").options(**options).load().writeStream
        writer = stream.foreachBatch(work).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_SECONDS)

    for _ in range(2):  # the second run begins with the batch that failed
        with pytest.raises(StreamingQueryException, match="this batch fails"):
            run(failing_batch=1)
        assert committed(admin, group) == {TopicPartition(topic, 0): 10}
    run(failing_batch=None)
    assert committed(admin, group) == {TopicPartition(topic, 0): 20}
    assert seen == [(0, list(range(10))), (1, list(range(10, 20)))]


def committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    found = admin.list_group_offsets(group)
    return {partition: row.offset for partition, row in found.items()}  # type: ignore[union-attr]


def test_a_running_query_finds_new_partitions_and_topics(
    spark: SparkSession, bootstrap: str, topics: Topics, admin: Admin, tmp_path: Path
) -> None:
    prefix = fresh_name("grow")
    one, two = f"{prefix}-one", f"{prefix}-two"
    topics.create_named(one)
    confluent_client.produce(bootstrap, one, numbered_rows(3))
    sink = Sink(
        spark, tmp_path, bootstrap, subscribePattern=f"{prefix}-.*", startingOffsets="earliest"
    )
    query = sink.start(processingTime="0 seconds")
    try:
        wait_for_rows(query, sink, [(one, 0, 0), (one, 0, 1), (one, 0, 2)])
        assert admin.create_partitions({one: 2}) == {one: None}
        topics.create_named(two)
        confluent_client.produce(bootstrap, one, numbered_rows(1), partition=1)
        confluent_client.produce(bootstrap, two, numbered_rows(1))
        wait_for_rows(
            query, sink, [(one, 0, 0), (one, 0, 1), (one, 0, 2), (one, 1, 0), (two, 0, 0)]
        )
    finally:
        query.stop()


def wait_for_rows(query: StreamingQuery, sink: Sink, wanted: list[tuple[str, int, int]]) -> None:
    def have_come() -> bool:
        assert query.isActive, query.exception()
        return sink.rows() == wanted

    eventually(have_come, lambda: f"{sink.rows()} becomes {wanted}")


def test_deleted_records_fail_a_restarted_query_unless_it_is_to_go_on(
    spark: SparkSession, bootstrap: str, topics: Topics, admin: Admin, tmp_path: Path
) -> None:
    topic = topics.create()
    confluent_client.produce(bootstrap, topic, numbered_rows(5))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    Sink(spark, tmp_path, bootstrap, **options).run_available()
    confluent_client.produce(bootstrap, topic, numbered_rows(5))
    admin.delete_records({TopicPartition(topic, 0): 8})
    with pytest.raises(StreamingQueryException, match="its log begins at 8"):
        Sink(spark, tmp_path, bootstrap, **options).run_available()
    lenient = Sink(spark, tmp_path, bootstrap, failOnDataLoss=False, **options)
    lenient.run_available()
    assert lenient.rows() == [(topic, 0, offset) for offset in (0, 1, 2, 3, 4, 8, 9)]


def test_a_recreated_topic_fails_a_restarted_query_unless_it_is_to_go_on(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    confluent_client.produce(bootstrap, topic, numbered_rows(5))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    Sink(spark, tmp_path, bootstrap, **options).run_available()
    topics.delete(topic)
    topics.create_named(topic)
    confluent_client.produce(bootstrap, topic, numbered_rows(15))
    with pytest.raises(StreamingQueryException, match=f"{topic} was deleted and recreated"):
        Sink(spark, tmp_path, bootstrap, **options).run_available()
    lenient = Sink(spark, tmp_path, bootstrap, failOnDataLoss=False, **options)
    lenient.run_available()
    old = [(topic, 0, offset) for offset in range(5)]
    assert lenient.rows() == sorted([*old, *((topic, 0, offset) for offset in range(15))])


def test_a_topic_is_a_view_of_sql(spark: SparkSession, bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    confluent_client.produce(bootstrap, topic, numbered_rows(3))
    given = f"\"kafka.bootstrap.servers\" '{bootstrap}', subscribe '{topic}'"
    spark.sql(f"CREATE TEMPORARY VIEW clicks_view USING moldau OPTIONS ({given})")
    assert spark.sql("SELECT count(*) FROM clicks_view").first()[0] == 3


def test_a_table_of_sql_is_read_with_options_in_the_query(
    spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    """Spark passes the table's properties on when it makes one, and nothing when it reads it."""
    topic = topics.create()
    confluent_client.produce(bootstrap, topic, numbered_rows(3))
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    in_sql = ", ".join(f"\"{name}\" '{value}'" for name, value in given.items())
    with_options = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    spark.sql(f"CREATE TABLE clicks_table USING moldau OPTIONS ({in_sql})")
    try:
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM clicks_table").first()
        found = spark.sql(f"SELECT count(*) FROM clicks_table WITH ({with_options})")
        assert found.first()[0] == 3
    finally:
        spark.sql("DROP TABLE clicks_table")
