"""The streaming reader as Spark calls it, against a real broker and without Spark."""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moldau.client.blocking import Admin, Producer
from moldau.errors import ClusterUnreachableError, DataLossError, UnknownTopicError
from moldau.model import TopicId, TopicPartition
from moldau.spark.columns import source_schema
from moldau.spark.fetching import read_closed_segments
from moldau.spark.offset_reader import OffsetReader
from moldau.spark.readers import LimitedStreamReader, find_task
from moldau.spark.rules.offsets import (
    OffsetJson,
    find_topic_ids,
    offsets_from_json,
    offsets_to_json,
)
from moldau.spark.source import MoldauDataSource
from moldau.storage.checkpoint_files import encode_partition_metadata
from moldau.testing.running_broker import RunningBroker
from support import confluent_client
from support.broker_process import broker_process
from support.rows import Row, numbered_rows
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS, eventually

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 is the first to have it")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

ALL = ReadAllAvailable()
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


def make_reader(bootstrap: str, **options: object) -> LimitedStreamReader:
    given = {name: str(value) for name, value in options.items()}
    source = MoldauDataSource({"kafka.bootstrap.servers": bootstrap, **given})
    reader = source.streamReader(source_schema(include_headers=False))
    assert isinstance(reader, LimitedStreamReader)
    return reader


def fill(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    confluent_client.produce(bootstrap, topic, numbered_rows(count), partition=partition)


def plain(offset: OffsetJson) -> OffsetJson:
    """Without the ids of topics."""
    return offsets_to_json(offsets_from_json(offset))


def read_batch(
    reader: LimitedStreamReader, start: OffsetJson, end: OffsetJson
) -> list[tuple[int, int]]:
    """Partition and offset of every record of a batch, read as tasks would."""
    found = []
    for task in reader.partitions(start, end):
        for batch in pickle.loads(pickle.dumps(make_copy(reader))).read(task):
            columns = batch.column("partition").to_pylist(), batch.column("offset").to_pylist()
            found += list(zip(*columns, strict=True))
    return found


def make_copy(reader: LimitedStreamReader) -> LimitedStreamReader:
    """A reader as tasks get it: pickled before the driver's part was made."""
    return LimitedStreamReader(reader._options, reader._schema)


def test_a_new_query_begins_at_the_end_unless_told_otherwise(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    fill(bootstrap, topic, 10)
    assert plain(make_reader(bootstrap, subscribe=topic).initialOffset()) == {
        topic: {"0": 10, "1": 0}
    }
    early = make_reader(bootstrap, subscribe=topic, startingOffsets="earliest")
    assert plain(early.initialOffset()) == {topic: {"0": 0, "1": 0}}


def test_a_batch_has_what_came_since_the_last_one(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    fill(bootstrap, topic, 10)
    reader = make_reader(bootstrap, subscribe=topic)
    start = reader.initialOffset()
    fill(bootstrap, topic, 5, partition=1)
    fill(bootstrap, topic, 3)
    end = wait_for_end(reader, start, {topic: {"0": 13, "1": 5}})
    assert read_batch(reader, start, end) == [
        *((0, offset) for offset in range(10, 13)),
        *((1, offset) for offset in range(5)),
    ]
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == end


def wait_for_end(reader: LimitedStreamReader, start: OffsetJson, wanted: OffsetJson) -> OffsetJson:
    eventually(
        lambda: plain(reader.latestOffset(start, ALL)) == wanted,
        lambda: f"{reader.latestOffset(start, ALL)} becomes {wanted}",
    )
    return reader.latestOffset(start, ALL)


def test_limits_are_kept_unless_spark_wants_all(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    fill(bootstrap, topic, 90)
    fill(bootstrap, topic, 10, partition=1)
    reader = make_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    start = reader.initialOffset()
    assert plain(reader.latestOffset(start, limit)) == {topic: {"0": 17, "1": 3}}
    assert plain(reader.latestOffset(start, ALL)) == {topic: {"0": 90, "1": 10}}


def test_a_batch_waits_for_its_minimum_after_the_first(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    fill(bootstrap, topic, 1)
    reader = make_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=5
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert plain(first) == {topic: {"0": 1}}
    fill(bootstrap, topic, 4)
    eventually(lambda: plain(reader.reportLatestOffset()) == {topic: {"0": 5}}, "the end is seen")
    assert reader.latestOffset(first, limit) == first
    fill(bootstrap, topic, 1)
    eventually(
        lambda: plain(reader.latestOffset(first, limit)) == {topic: {"0": 6}}, "a batch of five"
    )


def test_a_first_batch_that_is_empty_counts_as_the_first(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    reader = make_reader(bootstrap, subscribe=topic, minOffsetsPerTrigger=5)
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == start
    fill(bootstrap, topic, 4)
    eventually(lambda: plain(reader.reportLatestOffset()) == {topic: {"0": 4}}, "the end is seen")
    assert reader.latestOffset(start, limit) == start


def test_bytes_limit_a_batch_by_the_mean_size_of_records(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    rows = [Row(None, b"x" * 1000)] * 100
    confluent_client.produce(bootstrap, topic, rows)
    reader = make_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=10_500
    )
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert plain(end) == {topic: {"0": 10}}


def test_available_now_ends_at_what_was_there_and_goes_by_limits(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create()
    fill(bootstrap, topic, 10)
    reader = make_reader(
        bootstrap,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=6,
        minOffsetsPerTrigger=6,
    )
    reader.prepareForTriggerAvailableNow()
    position, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    fill(bootstrap, topic, 10)
    seen = []
    while (end := reader.latestOffset(position, limit)) != position:
        seen.append(end[topic]["0"])
        position = end
    assert seen == [6, 10]


def test_new_partitions_and_topics_are_read_from_their_beginning(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    prefix = fresh_name("grow")
    topics.create_named(f"{prefix}-a")
    reader = make_reader(bootstrap, subscribePattern=f"{prefix}-.*")
    start = reader.initialOffset()
    assert plain(start) == {f"{prefix}-a": {"0": 0}}
    assert admin.create_partitions({f"{prefix}-a": 2}) == {f"{prefix}-a": None}
    topics.create_named(f"{prefix}-b")
    fill(bootstrap, f"{prefix}-a", 4, partition=1)
    fill(bootstrap, f"{prefix}-b", 3)
    end = wait_for_end(reader, start, {f"{prefix}-a": {"0": 0, "1": 4}, f"{prefix}-b": {"0": 3}})
    assert read_batch(reader, start, end) == [
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
        (0, 0),
        (0, 1),
        (0, 2),
    ]


def test_deleted_records_fail_a_query_unless_it_is_to_go_on(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    topic = topics.create()
    fill(bootstrap, topic, 20)
    admin.delete_records({TopicPartition(topic, 0): 8})
    start, end = {topic: {"0": 5}}, {topic: {"0": 20}}
    strict = make_reader(bootstrap, subscribe=topic)
    with pytest.raises(DataLossError, match=r"from offset 5, but its log begins at 8 .* false"):
        strict.partitions(start, end)
    lenient = make_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    assert read_batch(lenient, start, end) == [(0, offset) for offset in range(8, 20)]


def test_records_deleted_between_plan_and_task_fail_it_unless_it_is_to_go_on(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    topic = topics.create()
    fill(bootstrap, topic, 20)
    strict = make_reader(bootstrap, subscribe=topic)
    lenient = make_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    (task,) = strict.partitions({topic: {"0": 5}}, {topic: {"0": 20}})
    admin.delete_records({TopicPartition(topic, 0): 8})
    with pytest.raises(DataLossError, match="cannot be read to its end"):
        list(strict.read(task))
    assert sum(batch.num_rows for batch in lenient.read(task)) == 12


def test_a_topic_that_is_deleted_fails_a_query_before_spark_writes_it_down(
    bootstrap: str, topics: Topics
) -> None:
    kept, gone = topics.create(), topics.create()
    fill(bootstrap, kept, 2)
    start = {kept: {"0": 0}, gone: {"0": 0}}
    topics.delete(gone)
    strict = make_reader(bootstrap, subscribe=f"{kept},{gone}")
    with pytest.raises(DataLossError, match=f"{gone}-0 is not there any more"):
        strict.latestOffset(start, ALL)
    lenient = make_reader(bootstrap, subscribe=f"{kept},{gone}", failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert plain(end) == {kept: {"0": 2}}
    assert read_batch(lenient, start, end) == [(0, 0), (0, 1)]


def test_a_topic_made_again_is_read_from_its_beginning_by_a_query_that_is_to_go_on(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create()
    fill(bootstrap, topic, 3)
    start = {topic: {"0": 50}}
    lenient = make_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert plain(end) == {topic: {"0": 3}}
    assert read_batch(lenient, start, end) == [(0, 0), (0, 1), (0, 2)]
    with pytest.raises(DataLossError, match="deleted and made again"):
        make_reader(bootstrap, subscribe=topic).latestOffset(start, ALL)


def recreate(bootstrap: str, topics: Topics, topic: str, count: int) -> None:
    topics.delete(topic)
    topics.create_named(topic)
    fill(bootstrap, topic, count)


def test_a_recreated_topic_that_has_grown_past_the_old_offset_is_lost_data(
    bootstrap: str, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    fill(bootstrap, topic, 5)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    start = make_reader(bootstrap, **options).initialOffset()
    read_to = make_reader(bootstrap, **options).latestOffset(start, ALL)
    assert plain(read_to) == {topic: {"0": 5}}
    recreate(bootstrap, topics, topic, 15)
    with pytest.raises(DataLossError, match=f"{topic} was deleted and recreated: .* to false"):
        make_reader(bootstrap, **options).latestOffset(read_to, ALL)
    lenient = make_reader(bootstrap, **options, failOnDataLoss="false", maxOffsetsPerTrigger=10)
    first = lenient.latestOffset(read_to, lenient.getDefaultReadLimit())
    assert read_batch(lenient, read_to, first) == [(0, offset) for offset in range(10)]
    assert f"{topic} was deleted and recreated" in caplog.text
    second = lenient.latestOffset(first, lenient.getDefaultReadLimit())
    assert read_batch(lenient, first, second) == [(0, offset) for offset in range(10, 15)]


def test_a_running_query_notices_a_recreated_topic(bootstrap: str, topics: Topics) -> None:
    topic, group = topics.create(), fresh_name("group")
    fill(bootstrap, topic, 5)
    options = {"subscribe": topic, "failOnDataLoss": "false", "groupId": group}
    reader = make_reader(bootstrap, **options)
    start = reader.initialOffset()
    recreate(bootstrap, topics, topic, 5)  # it ends where the old one did
    end = eventually(lambda: _later(reader, start), "the topic has another id")
    assert find_topic_ids(end) == {topic: topics.id_of(topic)}
    assert read_batch(reader, start, end) == [(0, offset) for offset in range(5)]


def test_a_batch_of_a_topic_that_was_recreated_is_not_read_from_the_new_one(
    bootstrap: str, topics: Topics
) -> None:
    """Spark repeats the batch of a run that was killed. A task may come late as well."""
    topic = topics.create()
    fill(bootstrap, topic, 5)
    strict = make_reader(bootstrap, subscribe=topic, startingOffsets="earliest")
    lenient = make_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    (task,) = strict.partitions(start, end)
    recreate(bootstrap, topics, topic, 15)
    with pytest.raises(DataLossError, match=r"cannot be read to its end: .* was deleted"):
        list(make_copy(strict).read(task))
    assert list(make_copy(lenient).read(task)) == []
    with pytest.raises(DataLossError, match=f"{topic} was deleted and recreated"):
        make_reader(bootstrap, subscribe=topic).partitions(start, end)
    assert lenient.partitions(start, end) == []
    after = lenient.latestOffset(end, ALL)
    assert read_batch(lenient, end, after) == [(0, offset) for offset in range(15)]


def test_a_checkpoint_without_ids_is_read_and_gets_them(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    fill(bootstrap, topic, 5)
    reader = make_reader(bootstrap, subscribe=topic)
    old = {topic: {"0": 5}}
    new = reader.latestOffset(old, ALL)
    assert plain(new) == old
    assert find_topic_ids(new) == {topic: topics.id_of(topic)}
    assert reader.partitions(old, new) == []
    assert reader.latestOffset(new, ALL) == new


def test_gaps_of_compaction_are_no_loss(
    broker: RunningBroker, bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(config=COMPACTED)
    rows = [
        Row(b"key-%d" % (number % 7), b"%d" % number, (), 1_700_000_000_000 + 1000 * number)
        for number in range(200)
    ]
    confluent_client.produce(bootstrap, topic, rows, batch_size=500)
    reader = make_reader(bootstrap, subscribe=topic)
    start, end = {topic: {"0": 0}}, {topic: {"0": 200}}
    whole = [(0, offset) for offset in range(200)]
    eventually(lambda: len(read_batch(reader, start, end)) < 100, "the topic is compacted")
    found = read_batch(reader, start, end)
    assert set(found) < set(whole)
    assert found == sorted(found)
    assert found[-1] == (0, 199)


def test_a_group_learns_what_was_completed_without_any_commit_of_sparks(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    topic, group = topics.create(partitions=2), fresh_name("group")
    fill(bootstrap, topic, 10)
    reader = make_reader(bootstrap, subscribe=topic, startingOffsets="earliest", groupId=group)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert admin.list_group_offsets(group) == {}
    reader.latestOffset(end, ALL)  # Spark asks again when the batch is completed
    assert committed(admin, group) == {TopicPartition(topic, 0): 10}


def test_a_group_learns_of_commits_too(bootstrap: str, topics: Topics, admin: Admin) -> None:
    topic, group = topics.create(), fresh_name("group")
    fill(bootstrap, topic, 10)
    reader = make_reader(bootstrap, subscribe=topic, groupId=group)
    reader.commit({topic: {"0": 7}})
    assert committed(admin, group) == {TopicPartition(topic, 0): 7}


def test_a_query_goes_on_where_its_group_was(bootstrap: str, topics: Topics, admin: Admin) -> None:
    topic, group = topics.create(partitions=2), fresh_name("group")
    fill(bootstrap, topic, 10)
    assert not any(admin.alter_group_offsets(group, {TopicPartition(topic, 0): 4}).values())
    reader = make_reader(bootstrap, subscribe=topic, startingOffsets="group", groupId=group)
    assert plain(reader.initialOffset()) == {topic: {"0": 4, "1": 0}}


def committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    found = admin.list_group_offsets(group)
    return {partition: row.offset for partition, row in found.items()}  # type: ignore[union-attr]


def test_a_topic_that_is_not_there_is_named(bootstrap: str) -> None:
    reader = make_reader(bootstrap, subscribe="no-such-topic")
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        reader.initialOffset()


def test_a_cluster_that_does_not_answer_is_told_at_once() -> None:
    reader = make_reader("127.0.0.1:1", subscribePattern=".*")
    with pytest.raises(ClusterUnreachableError, match=r"127\.0\.0\.1:1"):
        reader.initialOffset()


def test_a_query_waits_for_a_broker_that_is_away_while_it_asks_for_offsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_process(tmp_path) as process:
        process.start()
        topic = Topics(process.bootstrap).create()
        reader = make_reader(process.bootstrap, subscribe=topic)
        reader.initialOffset()
        fill(process.bootstrap, topic, 5)
        process.kill()
        with ThreadPoolExecutor(1) as thread:
            partition = TopicPartition(topic, 0)
            asked = thread.submit(OffsetReader(reader._options).find_latest, [partition])
            eventually(lambda: process.bootstrap in caplog.text, "the query found no broker")
            assert not asked.done()
            process.start()
            assert asked.result(PATIENCE_SECONDS) == {partition: 5}
        reader.stop()


def test_a_query_that_has_waited_for_its_brokers_long_enough_says_what_to_do() -> None:
    reader = make_reader("127.0.0.1:1", subscribe="clicks", **{"kafka.default.api.timeout.ms": 100})
    with pytest.raises(
        ClusterUnreachableError,
        match=r"asked for offsets, and no broker answered for 0\.1 s: .*127\.0\.0\.1:1.* "
        r"start the query again: it continues where it was",
    ):
        OffsetReader(reader._options).find_latest([TopicPartition("clicks", 0)])
    with pytest.raises(ClusterUnreachableError, match="asked for the sizes of logs, and"):
        OffsetReader(reader._options).bytes_per_offset({}, {TopicPartition("clicks", 0): 1})
    with pytest.raises(ClusterUnreachableError, match="which partitions exist"):
        reader.latestOffset({"clicks": {"0": 0}}, ALL)
    reader.stop()


def test_an_idle_query_notices_what_comes(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    reader = make_reader(bootstrap, subscribe=topic)
    start = reader.initialOffset()
    assert [reader.latestOffset(start, ALL) for _ in range(20)] == [start] * 20
    fill(bootstrap, topic, 2)
    wait_for_end(reader, start, {topic: {"0": 2}})


def test_many_rows_come_in_batches_of_two_thousand_and_more(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    rows = numbered_rows(9_000, padding=1000)
    confluent_client.produce(bootstrap, topic, rows, batch_size=16_000)
    reader = make_reader(bootstrap, subscribe=topic, **{"kafka.max.partition.fetch.bytes": 300_000})
    (task,) = reader.partitions({topic: {"0": 1}}, {topic: {"0": 9_000}})
    sizes = [batch.num_rows for batch in reader.read(task)]
    assert sum(sizes) == 8_999
    assert all(size >= 2_000 for size in sizes[:-1])
    assert len(sizes) > 1


def test_closed_segments_are_read_from_their_files(
    broker: RunningBroker, bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(config={"internal.segment.bytes": "20000"})
    rows = numbered_rows(1_000, padding=50)
    confluent_client.produce(bootstrap, topic, rows, batch_size=2_000)
    segments = sorted((broker.data_folder / f"{topic}-0").glob("*.log"))
    assert len(segments) > 3
    beside = make_reader(bootstrap, subscribe=topic, dataFolder=broker.data_folder)
    through = make_reader(bootstrap, subscribe=topic)
    start, end = {topic: {"0": 123}}, {topic: {"0": 987}}
    (task,) = beside.partitions(start, end)
    direct = [row for batch in beside.read(task) for row in batch.to_pylist()]
    assert direct == [row for batch in through.read(task) for row in batch.to_pylist()]
    assert [row["offset"] for row in direct] == list(range(123, 987))
    *_, last = read_closed_segments(beside._options, *find_task(task))
    assert last[-1].next_offset == int(segments[-1].stem)


def test_a_folder_of_another_topic_of_this_name_is_not_read(
    broker: RunningBroker, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(config={"internal.segment.bytes": "20000"})
    rows = numbered_rows(500, padding=50)
    confluent_client.produce(bootstrap, topic, rows, batch_size=2_000)
    shutil.copytree(broker.data_folder / f"{topic}-0", tmp_path / f"{topic}-0")
    (tmp_path / f"{topic}-0" / "partition.metadata").write_bytes(
        encode_partition_metadata(TopicId(uuid.uuid4()))
    )
    reader = make_reader(bootstrap, subscribe=topic, dataFolder=tmp_path)
    (task,) = reader.partitions({topic: {"0": 0}}, {topic: {"0": 500}})
    assert list(read_closed_segments(reader._options, *find_task(task))) == []
    assert sum(batch.num_rows for batch in reader.read(task)) == 500


def test_readers_of_committed_records_stop_before_what_is_open_and_pass_over_what_was_aborted(
    bootstrap: str, topics: Topics
) -> None:
    """Offsets have gaps: markers, and aborted records. Batches are planned by offsets, and no row
    is lost or there twice."""
    topic = topics.create()
    with Producer(bootstrap, transactional_id=fresh_name()) as producer:
        for number in range(6):
            producer.begin_transaction()
            producer.send_many(topic, [b"%d" % number] * 2)
            if number % 3:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.begin_transaction()  # and another batch ends before it
        producer.send(topic, b"open").result()
        reader = make_reader(
            bootstrap,
            subscribe=topic,
            startingOffsets="earliest",
            **{"kafka.isolation.level": "read_committed"},
        )
        seen: list[tuple[int, int]] = []
        start = reader.initialOffset()
        while True:
            end = reader.latestOffset(start, ReadMaxRows(4))
            if end == start:
                break
            seen += read_batch(reader, start, end)
            start = end
        assert seen == [(0, 0), (0, 1), (0, 9), (0, 10)]
        assert plain(start) == {topic: {"0": 18}}
        producer.commit_transaction()
    end = eventually(lambda: _later(reader, start), "the transaction is decided")
    assert read_batch(reader, start, end) == [(0, 18)]


def _later(reader: LimitedStreamReader, start: OffsetJson) -> OffsetJson | None:
    end = reader.latestOffset(start, ALL)
    return None if end == start else end
