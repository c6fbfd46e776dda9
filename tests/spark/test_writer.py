"""Writing DataFrames to topics, task by task: the writer with Arrow batches, and a real broker.

What Spark itself does around a task is in `test_pipeline_run.py`.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import moldau
import moldau.testing
from moldau.errors import ConfigurationError, UnknownTopicError
from moldau.spark import worker
from moldau.spark.writer import WrittenRows, make_batch_writer, make_stream_writer

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with moldau.testing.broker({"num.partitions": "3"}) as broker:
        yield broker.bootstrap
        worker.close_producers()


def options(bootstrap: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, **more}


def schema(ddl: str) -> StructType:
    """Without Java, which Spark asks about texts like these."""
    struct = StructType()
    for column in ddl.split(", "):
        name, kind = column.split(" ", 1)
        if kind == "headers":
            headers = StructType().add("key", "string").add("value", "binary")
            struct.add(name, _array_of(headers))
        else:
            struct.add(name, {"int": "integer", "bigint": "long"}.get(kind, kind))
    return struct


def _array_of(struct: StructType) -> object:
    from pyspark.sql.types import ArrayType

    return ArrayType(struct)


def rows_of(bootstrap: str, topic: str) -> list[dict[str, object]]:
    return moldau.read_table(topic, bootstrap=bootstrap).to_pylist()


# What is refused


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("key string", "a column 'value' is needed, there is key"),
        ("value int", "the column 'value' is int, it has to be string or binary"),
        ("value string, key int", "the column 'key' is int, it has to be string or binary"),
        ("value string, topic int", "the column 'topic' is int, it has to be string"),
        ("value string, partition bigint", "the column 'partition' is bigint, it has to be int"),
        ("value string, headers string", "the column 'headers' is string, it has to be array"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused_by_its_name(ddl: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        make_batch_writer(options("nowhere:1", topic="t"), schema(ddl), overwrite=False)


def test_without_a_topic_and_without_a_column_of_topics_there_is_nowhere_to_write() -> None:
    with pytest.raises(ConfigurationError, match="nothing says which topic"):
        make_stream_writer(options("nowhere:1"), schema("value string"), overwrite=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t"}, "nothing says where the brokers are"),
        (options("b:1", topic="t", exactlyonce="true"), "exactlyOnce=true is for streams"),
        (options("b:1", topik="t"), r"topik is not an option of writing .*did you mean topic\?"),
        (options("b:1", path="t"), "save\\(\\) takes no path"),
        (options("b:1", **{"bootstrap.servers": "b:1"}), "is called kafka.bootstrap.servers here"),
        (options("b:1", topic="t", exactlyonce="maybe"), "exactlyOnce is true or false"),
        ({**options("b:1"), "kafka.key.serializer": "x"}, "kafka.key.serializer cannot be set"),
        ({**options("b:1"), "kafka.linger.ms": "soon"}, "linger.ms"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_do(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_batch_writer(given, schema("value string"), overwrite=False)


def test_a_batch_cannot_overwrite_a_topic_and_a_stream_in_complete_mode_appends() -> None:
    given = options("b:1", topic="t")
    with pytest.raises(ConfigurationError, match="cannot be overwritten"):
        make_batch_writer(given, schema("value string"), overwrite=True)
    assert make_stream_writer(given, schema("value string"), overwrite=True) is not None


def test_an_option_that_only_other_producers_have_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {**options("b:1", topic="t"), "kafka.metric.reporters": "x"}
    with caplog.at_level(logging.WARNING):
        make_batch_writer(given, schema("value string"), overwrite=False)
    assert "kafka.metric.reporters is not an option" in caplog.text


# What is written


def test_keys_and_values_arrive_as_bytes_and_a_key_keeps_its_partition(bootstrap: str) -> None:
    writer = make_batch_writer(
        options(bootstrap, topic="keyed"), schema("key string, value binary"), overwrite=False
    )
    batch = pa.record_batch(
        {"key": ["a", "b", None, "a"], "value": pa.array([b"1", b"2", None, b"4"], pa.binary())}
    )
    assert writer.write(iter([batch])) == WrittenRows(4)
    found = rows_of(bootstrap, "keyed")
    assert sorted((row["key"] or b"", row["value"] or b"") for row in found) == [
        (b"", b""),
        (b"a", b"1"),
        (b"a", b"4"),
        (b"b", b"2"),
    ]
    assert len({row["partition"] for row in found if row["key"] == b"a"}) == 1


def test_rows_go_to_the_topic_and_the_partition_that_they_name_in_their_order(
    bootstrap: str,
) -> None:
    writer = make_stream_writer(
        options(bootstrap), schema("topic string, partition int, value string"), overwrite=False
    )
    count = 300
    batch = pa.record_batch(
        {
            "topic": [f"named-{index % 2}" for index in range(count)],
            "partition": pa.array([index % 3 for index in range(count)], pa.int32()),
            "value": [str(index) for index in range(count)],
        }
    )
    writer.write(iter([batch, batch.slice(0, 0)]))
    for topic in range(2):
        for partition in range(3):
            table = moldau.read_table(
                f"named-{topic}", bootstrap=bootstrap, partitions=[partition], columns=["value"]
            )
            expected = [i for i in range(count) if i % 2 == topic and i % 3 == partition]
            assert [int(value) for value in table["value"].to_pylist()] == expected


def test_the_topic_option_goes_before_the_column(bootstrap: str) -> None:
    writer = make_batch_writer(
        options(bootstrap, topic="chosen"), schema("topic string, value string"), overwrite=False
    )
    writer.write(iter([pa.record_batch({"topic": ["other", None], "value": ["x", "y"]})]))
    assert len(rows_of(bootstrap, "chosen")) == 2


def test_a_row_without_a_topic_fails_the_task(bootstrap: str) -> None:
    writer = make_batch_writer(
        options(bootstrap), schema("topic string, value string"), overwrite=False
    )
    with pytest.raises(ConfigurationError, match="null in 1 of the rows"):
        writer.write(iter([pa.record_batch({"topic": ["ok", None], "value": ["x", "y"]})]))


def test_headers_arrive_with_their_rows(bootstrap: str) -> None:
    writer = make_batch_writer(
        options(bootstrap, topic="headed"),
        schema("key string, value string, headers headers"),
        overwrite=False,
    )
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []], HEADERS
    )
    batch = pa.record_batch({"key": ["k"] * 3, "value": ["x", "y", "z"], "headers": headers})
    writer.write(iter([batch.slice(0, 2), batch.slice(2)]))
    found = {row["value"]: row["headers"] for row in rows_of(bootstrap, "headed")}
    assert found == {
        b"x": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        b"y": None,
        b"z": None,
    }


def test_a_partition_that_the_topic_does_not_have_fails_the_task(bootstrap: str) -> None:
    writer = make_batch_writer(
        options(bootstrap, topic="small"), schema("partition int, value string"), overwrite=False
    )
    batch = pa.record_batch({"partition": pa.array([99], pa.int32()), "value": ["x"]})
    with pytest.raises(UnknownTopicError, match="no partition 99"):
        writer.write(iter([batch]))


# Workers


def test_a_worker_keeps_its_producer_from_task_to_task_and_drops_one_that_failed(
    bootstrap: str,
) -> None:
    given = options(bootstrap, topic="kept", **{"kafka.client.id": "the-kept-one"})
    writer = pickle.loads(
        pickle.dumps(make_stream_writer(given, schema("value string"), overwrite=False))
    )
    writer.write(iter([pa.record_batch({"value": ["a"]})]))
    (first,) = _kept("the-kept-one")
    writer.write(iter([pa.record_batch({"value": ["b"]})]))
    assert _kept("the-kept-one") == [first]

    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["c"]})
        raise RuntimeError("the input failed")

    with pytest.raises(RuntimeError, match="the input failed"):
        writer.write(failing())
    assert _kept("the-kept-one") == []
    writer.write(iter([pa.record_batch({"value": ["d"]})]))
    assert {b"a", b"b", b"d"} <= {row["value"] for row in rows_of(bootstrap, "kept")}


def _kept(client_id: str) -> list[moldau.Producer]:
    return [one for key, one in worker._producers.items() if ("client.id", client_id) in key[2]]
