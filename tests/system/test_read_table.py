"""Topics as Arrow tables, read from a real broker in the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

import moldau
import moldau.testing
from moldau.client.blocking import Admin
from moldau.client.rules.offsets import Bounds
from moldau.errors import ClusterUnreachableError, ConfigurationError, UnknownTopicError
from moldau.model import TopicPartition
from support import confluent_client
from support.rows import VARIED_ROWS, Row, numbered_rows
from support.topics import Topics

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with moldau.testing.broker({"log.segment.bytes": "1048576"}) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


def at(timestamp_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)


def expected(topic: str, partition: int, rows: Sequence[Row]) -> list[dict[str, object]]:
    return [
        {
            "key": row.key,
            "value": row.value,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": at(row.timestamp_ms or 0),
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in row.headers] or None,
        }
        for offset, row in enumerate(rows)
    ]


def places(table: pa.Table) -> list[tuple[int, int]]:
    columns = table.column("partition").to_pylist(), table.column("offset").to_pylist()
    return list(zip(*columns, strict=True))


@pytest.fixture(scope="module")
def numbered(bootstrap: str, topics: Topics) -> str:
    """Three partitions of 1,000 rows, a millisecond apart; the second is empty."""
    topic = topics.create(3)
    for partition in (0, 2):
        confluent_client.produce(
            bootstrap, topic, numbered_rows(1000), partition=partition, batch_num_messages=90
        )
    return topic


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_table_has_every_record_of_every_partition(
    bootstrap: str, topics: Topics, codec: str
) -> None:
    topic = topics.create(3)
    by_partition = [VARIED_ROWS, numbered_rows(700), confluent_client.ODD_ROWS]
    for partition, rows in enumerate(by_partition):
        confluent_client.produce(bootstrap, topic, rows, partition=partition, codec=codec)

    table = moldau.read_table(topic, bootstrap=bootstrap)

    table.validate(full=True)
    assert table.to_pylist() == [
        row
        for partition, rows in enumerate(by_partition)
        for row in expected(topic, partition, rows)
    ]


def test_the_time_of_appending_is_told_as_such(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    confluent_client.produce(bootstrap, topic, numbered_rows(3))

    table = moldau.read_table(topic, bootstrap=bootstrap)

    assert table.column("timestampType").to_pylist() == [1, 1, 1]
    assert table.column("timestamp")[0].as_py() > at(START_MS + 1000)


OFFSETS = range(1000)


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        pytest.param(0, None, OFFSETS, id="all"),
        pytest.param("earliest", "latest", OFFSETS, id="all by name"),
        pytest.param(700, None, OFFSETS[700:], id="from an offset"),
        pytest.param(None, 95, OFFSETS[:95], id="to an offset"),
        pytest.param(451, 453, OFFSETS[451:453], id="inside of a batch"),
        pytest.param(-5, None, OFFSETS[-5:], id="the last ones"),
        pytest.param(-5, -3, OFFSETS[-5:-3], id="almost the last ones"),
        pytest.param(-5000, 3, OFFSETS[:3], id="from before the beginning"),
        pytest.param(990, 5000, OFFSETS[990:], id="to beyond the end"),
        pytest.param(5000, None, [], id="from beyond the end"),
        pytest.param("latest", None, [], id="nothing new"),
        pytest.param(7, 7, [], id="empty"),
        pytest.param(9, 7, [], id="less than empty"),
        pytest.param(at(START_MS + 300), None, OFFSETS[300:], id="from a time"),
        pytest.param(at(START_MS + 300), at(START_MS + 310), OFFSETS[300:310], id="two times"),
        pytest.param(None, at(START_MS), [], id="to before the first"),
        pytest.param(at(0), None, OFFSETS, id="from long ago"),
        pytest.param(at(START_MS + 5000), None, [], id="from the future"),
        pytest.param(995, at(START_MS + 5000), OFFSETS[995:], id="to the future"),
    ],
)
def test_a_range_is_read_from_each_partition(
    bootstrap: str, numbered: str, start: Bounds, end: Bounds, offsets: Sequence[int]
) -> None:
    table = moldau.read_table(
        numbered, bootstrap=bootstrap, start=start, end=end, columns=["partition", "offset"]
    )

    assert places(table) == [(partition, offset) for partition in (0, 2) for offset in offsets]


def test_partitions_can_have_ranges_of_their_own(bootstrap: str, numbered: str) -> None:
    table = moldau.read_table(
        numbered, bootstrap=bootstrap, start={0: 998, 2: -1}, end={0: 999}, columns=None
    )

    assert places(table) == [(0, 998), (2, 999)]


def test_some_of_the_partitions_can_be_read(bootstrap: str, numbered: str) -> None:
    for wanted, found in (([2, 1, 2], {2}), ([0], {0}), ([1], set()), ([], set())):
        table = moldau.read_table(numbered, bootstrap=bootstrap, partitions=wanted)
        assert set(table.column("partition").to_pylist()) == found


def test_some_of_the_columns_can_be_read(bootstrap: str, numbered: str) -> None:
    table = moldau.read_table(
        numbered, bootstrap=bootstrap, partitions=[0], end=1, columns=["value", "timestamp"]
    )

    value = b"value-0-" + b"x" * 20
    assert table.to_pylist() == [{"value": value, "timestamp": at(START_MS)}]


def test_an_empty_topic_is_an_empty_table(bootstrap: str, topics: Topics) -> None:
    table = moldau.read_table(topics.create(2), bootstrap=bootstrap)

    assert table.num_rows == 0
    assert table.column_names[:2] == ["key", "value"]


def test_what_was_deleted_is_not_in_the_table(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(2)
    for partition in (0, 1):
        confluent_client.produce(
            bootstrap, topic, numbered_rows(50), partition=partition, batch_num_messages=10
        )
    with Admin(bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 37, TopicPartition(topic, 1): -1})

    for start in (0, "earliest", 20):
        table = moldau.read_table(topic, bootstrap=bootstrap, start=start)
        assert places(table) == [(0, offset) for offset in range(37, 50)]
    assert moldau.read_table(topic, bootstrap=bootstrap, end=20).num_rows == 0


def test_limits_end_the_reading(bootstrap: str, numbered: str) -> None:
    rows = moldau.read_table(numbered, bootstrap=bootstrap, max_rows=1234)
    assert rows.num_rows == 1234
    few = moldau.read_table(numbered, bootstrap=bootstrap, partitions=[0], max_rows=3)
    assert places(few) == [(0, 0), (0, 1), (0, 2)]

    whole = moldau.read_table(numbered, bootstrap=bootstrap)
    pieces = list(moldau.read_batches(numbered, bootstrap=bootstrap, max_bytes=whole.nbytes // 3))
    assert 0 < sum(piece.num_rows for piece in pieces) < whole.num_rows
    assert sum(piece.nbytes for piece in pieces[:-1]) < whole.nbytes // 3


def test_pieces_are_the_table_in_parts(bootstrap: str, numbered: str) -> None:
    pieces = list(moldau.read_batches(numbered, bootstrap=bootstrap))

    seen: dict[int, list[int]] = {0: [], 2: []}
    for piece in pieces:
        (partition,) = set(piece.column("partition").to_pylist())
        seen[partition] += piece.column("offset").to_pylist()
    assert seen == {0: list(OFFSETS), 2: list(OFFSETS)}


def test_a_topic_of_many_segments_comes_in_many_pieces(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    rows = numbered_rows(4000, padding=2000)
    confluent_client.produce(bootstrap, topic, rows)

    pieces = list(moldau.read_batches(topic, bootstrap=bootstrap, columns=["offset", "value"]))

    assert len(pieces) > 3
    table = pa.Table.from_batches(pieces)
    assert table.column("offset").to_pylist() == list(range(4000))
    assert table.column("value").to_pylist() == [row.value for row in rows]


def test_a_reader_that_stops_early_leaves_nothing_behind(bootstrap: str, numbered: str) -> None:
    before = set(threading.enumerate())
    pieces = moldau.read_batches(numbered, bootstrap=bootstrap)

    assert len(list(islice(pieces, 1))) == 1
    assert set(threading.enumerate()) - before
    del pieces

    assert set(threading.enumerate()) <= before


def test_records_that_come_later_are_for_the_next_table(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    confluent_client.produce(bootstrap, topic, numbered_rows(5))
    pieces = moldau.read_batches(topic, bootstrap=bootstrap, start=1)
    first = next(pieces)
    confluent_client.produce(bootstrap, topic, numbered_rows(5))

    assert first.column("offset").to_pylist() == [1, 2, 3, 4]
    assert list(pieces) == []


def test_frames_of_pandas_and_polars(bootstrap: str, numbered: str) -> None:
    pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    table = moldau.read_table(numbered, bootstrap=bootstrap)

    pandas_frame = table.to_pandas()
    assert pandas_frame.groupby("partition")["offset"].agg(["min", "max"]).to_dict() == {
        "min": {0: 0, 2: 0},
        "max": {0: 999, 2: 999},
    }
    polars_frame = polars.from_arrow(table)
    assert polars_frame.height == 2000
    assert polars_frame["key"].n_unique() == 1000


# --- mistakes ---------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_told_and_not_made(bootstrap: str, topics: Topics) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic 'clocks'"):
        moldau.read_table("clocks", bootstrap=bootstrap)
    assert "clocks" not in topics.names()


def test_a_partition_that_does_not_exist_is_told(bootstrap: str, numbered: str) -> None:
    with pytest.raises(UnknownTopicError, match="has no partition 3; it has 3, counted from 0"):
        moldau.read_table(numbered, bootstrap=bootstrap, partitions=[0, 3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "yesterday"}, "start is 'yesterday'; it can be"),
        ({"end": {7: 1}}, "end names partition 7, which is not read"),
        ({"end": datetime(2024, 1, 1)}, "in no time zone; say which"),  # noqa: DTZ001
        ({"columns": ["values"]}, "a topic has no column 'values'"),
        ({"max_rows": 0}, "max_rows is 0; it must be at least 1"),
        ({"max_bytes": -1}, "max_bytes is -1; it must be at least 1"),
    ],
)
def test_wrong_arguments_are_told_in_words(
    bootstrap: str, numbered: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        moldau.read_table(numbered, bootstrap=bootstrap, **arguments)


def test_a_broker_that_does_not_answer_is_told() -> None:
    with pytest.raises(ClusterUnreachableError, match=r"127\.0\.0\.1:1"):
        moldau.read_table("clicks", bootstrap="127.0.0.1:1")
