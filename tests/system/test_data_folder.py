"""The data folder is all there is: whoever has it has the topics."""

from __future__ import annotations

import shutil
from pathlib import Path

from support import confluent_client
from support.broker_process import BrokerProcess, broker_process
from support.rows import numbered_rows, rows_of
from support.topics import Topics

ROWS = numbered_rows(300)


def fill(broker: BrokerProcess) -> str:
    topic = Topics(broker.bootstrap).create(3, {"internal.segment.bytes": "5000"})
    for partition, codec in enumerate(("none", "zstd", "gzip")):
        confluent_client.produce(
            broker.bootstrap, topic, ROWS, partition=partition, codec=codec, batch_num_messages=20
        )
    return topic


def assert_served(broker: BrokerProcess, topic: str) -> None:
    for partition in range(3):
        got = confluent_client.consume(broker.bootstrap, topic, len(ROWS), partition=partition)
        assert rows_of(got) == ROWS
        more = confluent_client.produce(broker.bootstrap, topic, ROWS[:1], partition=partition)
        assert more == [len(ROWS)]


def test_a_copied_folder_is_served_by_another_broker(broker: BrokerProcess, folder: Path) -> None:
    broker.start()
    topic = fill(broker)
    described = Topics(broker.bootstrap).describe(topic)
    broker.stop()
    shutil.copytree(broker.data_folder, folder / "copy")
    broker.start()

    with broker_process(folder / "other", data_folder=folder / "copy") as other:
        other.start()
        assert Topics(other.bootstrap).describe(topic) == described
        assert_served(other, topic)
    assert_served(broker, topic)


def test_topics_are_adopted_from_their_folders(broker: BrokerProcess, folder: Path) -> None:
    """Without the coordination store, as a folder that comes from a Kafka broker."""
    broker.start()
    topic = fill(broker)
    described = Topics(broker.bootstrap).describe(topic)
    broker.stop()
    copy = folder / "copy"
    copy.mkdir()
    for partition in broker.data_folder.glob(f"{topic}-*"):
        shutil.copytree(partition, copy / partition.name)

    with broker_process(folder / "other", data_folder=copy) as other:
        other.start()
        assert Topics(other.bootstrap).describe(topic) == described
        assert_served(other, topic)
        other.kill()
        other.start()
        assert Topics(other.bootstrap).describe(topic) == described


def test_indexes_and_snapshots_that_are_lost_are_made_again(broker: BrokerProcess) -> None:
    broker.start()
    topic = fill(broker)
    broker.stop()
    for partition in broker.data_folder.glob(f"{topic}-*"):
        for suffix in ("index", "timeindex", "snapshot"):
            for file in partition.glob(f"*.{suffix}"):
                file.unlink()

    broker.start()

    assert_served(broker, topic)
    with confluent_client.consumer(broker.bootstrap) as client:
        wanted = confluent_client.TopicPartition(topic, 0, ROWS[200].timestamp_ms or 0)
        (found,) = client.offsets_for_times([wanted], 30)
    assert found.offset == 200


def test_a_deleted_topic_stays_deleted_and_its_name_is_free(broker: BrokerProcess) -> None:
    broker.start()
    topics = Topics(broker.bootstrap)
    topic = fill(broker)
    first_id, _ = topics.describe(topic)
    topics.delete(topic)
    broker.kill()
    broker.start()
    topics = Topics(broker.bootstrap)
    assert topic not in topics.names()

    topics.create_named(topic, 3)

    assert topics.describe(topic)[0] != first_id
    assert confluent_client.produce(broker.bootstrap, topic, ROWS[:1]) == [0]
