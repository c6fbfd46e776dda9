"""The streaming reader as Spark 4.0 and 4.1 call it, against a real broker and without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.client.blocking import Admin
from moldau.errors import ConfigurationError, DataLossError
from moldau.model import TopicPartition
from moldau.spark import readers
from moldau.spark.columns import source_schema
from moldau.spark.readers import UnlimitedStreamReader
from moldau.spark.rules.offsets import OffsetJson, offsets_from_json, offsets_to_json
from moldau.spark.source import MoldauDataSource
from support import confluent_client
from support.rows import numbered_rows
from support.topics import Topics, fresh_name


@pytest.fixture(autouse=True)
def _without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_TAKES_LIMITS", False)


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


@pytest.fixture
def topic(bootstrap: str, topics: Topics) -> str:
    name = topics.create()
    confluent_client.produce(bootstrap, name, numbered_rows(10))
    return name


def make_reader(bootstrap: str, **options: object) -> UnlimitedStreamReader:
    given = {name: str(value) for name, value in options.items()}
    source = MoldauDataSource({"kafka.bootstrap.servers": bootstrap, **given})
    reader = source.streamReader(source_schema(include_headers=False))
    assert isinstance(reader, UnlimitedStreamReader)
    return reader


def run_batch(reader: UnlimitedStreamReader, start: OffsetJson) -> tuple[list[int], OffsetJson]:
    """The offsets of all that is there now, and where it ends."""
    end = reader.latestOffset()
    found = [
        row["offset"]
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    return found, end


def committed(admin: Admin, group: str, topic: str) -> int | None:
    found = admin.list_group_offsets(group).get(TopicPartition(topic, 0))
    return None if found is None else found.offset  # type: ignore[union-attr]


def test_each_batch_takes_what_has_come_since_the_last(bootstrap: str, topic: str) -> None:
    reader = make_reader(bootstrap, subscribe=topic, startingOffsets="earliest")
    first, end = run_batch(reader, reader.initialOffset())
    assert first == list(range(10))
    confluent_client.produce(bootstrap, topic, numbered_rows(3))
    reader._driver.latest.current(max_age_seconds=0)
    assert run_batch(reader, end)[0] == [10, 11, 12]
    reader.stop()


def test_a_query_that_is_started_again_goes_on_where_spark_says(bootstrap: str, topic: str) -> None:
    reader = make_reader(bootstrap, subscribe=topic, startingOffsets="latest")
    seen = {topic: {"0": 4}}
    assert not list(reader.partitions(seen, seen))  # how Spark says it
    assert run_batch(reader, seen)[0] == [4, 5, 6, 7, 8, 9]
    reader.stop()


def test_an_end_that_is_asked_for_before_the_start_lies_not_before_it(
    bootstrap: str, topic: str
) -> None:
    """As with Trigger.AvailableNow, while producers go on."""
    reader = make_reader(bootstrap, subscribe=topic, startingOffsets="latest")
    end = reader.latestOffset()
    confluent_client.produce(bootstrap, topic, numbered_rows(3))
    assert reader.initialOffset() == end
    assert offsets_to_json(offsets_from_json(end)) == {topic: {"0": 10}}
    reader.stop()


def test_the_group_is_told_of_completed_batches_only(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    group = fresh_name("group")
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": group}
    reader = make_reader(bootstrap, **options)
    _, end = run_batch(reader, reader.initialOffset())
    assert committed(admin, group, topic) is None
    reader.stop()

    again = make_reader(bootstrap, **options)  # the batch may have failed: it is planned again
    again.partitions(end, end)
    again.latestOffset()
    again.partitions({topic: {"0": 0}}, end)
    assert committed(admin, group, topic) in (None, 0)
    confluent_client.produce(bootstrap, topic, numbered_rows(3))
    again._driver.latest.current(max_age_seconds=0)
    run_batch(again, end)
    assert committed(admin, group, topic) == 10
    again.stop()


def test_a_recreated_topic_is_lost_data_also_where_it_has_grown_past_the_old_offset(
    bootstrap: str, topics: Topics, topic: str, admin: Admin
) -> None:
    group = fresh_name("group")
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": group}
    first = make_reader(bootstrap, **options)
    _, end = run_batch(first, first.initialOffset())
    first.stop()
    topics.delete(topic)
    topics.create_named(topic)
    confluent_client.produce(bootstrap, topic, numbered_rows(15))

    strict = make_reader(bootstrap, **options)
    strict.partitions(end, end)  # how Spark says where a query goes on
    with pytest.raises(DataLossError, match=f"{topic} was deleted and recreated"):
        strict.latestOffset()
    strict.stop()
    lenient = make_reader(bootstrap, **options, failOnDataLoss="false")
    lenient.partitions(end, end)
    found, later = run_batch(lenient, end)
    assert found == list(range(15))
    assert committed(admin, group, topic) is None  # what was read of the old topic
    confluent_client.produce(bootstrap, topic, numbered_rows(1))
    lenient._driver.latest.current(max_age_seconds=0)
    assert run_batch(lenient, later)[0] == [15]
    assert committed(admin, group, topic) == 15
    lenient.stop()


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"]
)
def test_limits_are_refused_rather_than_without_effect(bootstrap: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name} needs Spark 4\.2"):
        make_reader(bootstrap, subscribe="clicks", **{name: 10})
