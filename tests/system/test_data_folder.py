"""The data folder is all there is: whoever has it has the topics."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

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


def test_copies_of_folders_are_no_topics(broker: BrokerProcess, folder: Path) -> None:
    """`clicks-0-20240101` would be a partition of `clicks-0`, beside twenty million empty ones."""
    broker.start()
    topic = fill(broker)
    described = Topics(broker.bootstrap).describe(topic)
    broker.stop()
    copy = folder / "copy"
    copy.mkdir()
    for partition in broker.data_folder.glob(f"{topic}-*"):
        shutil.copytree(partition, copy / partition.name)
    # One sorts before the topic that it was made of.
    copies = {f"{topic}-0-1", f"backup-{topic}-0", "before-20240101", "backup-20240101235959"}
    for name in copies:
        shutil.copytree(copy / f"{topic}-0", copy / name)
    (copy / "before-20240101" / "partition.metadata").unlink()

    with broker_process(folder / "other", data_folder=copy) as other:
        other.start()
        topics = Topics(other.bootstrap)
        assert topics.names() == {topic}
        assert topics.describe(topic) == described
        assert_served(other, topic)
    assert copies <= {path.name for path in copy.iterdir()}


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


def test_a_segment_that_is_gone_after_a_clean_stop_is_noticed(broker: BrokerProcess) -> None:
    """What is left is served: there is no other replica."""
    broker.start()
    topic = fill(broker)
    broker.stop()
    segments = sorted((broker.data_folder / f"{topic}-0").glob("*.log"))
    first, second, third = (int(path.stem) for path in segments[:3])
    segments[1].unlink()

    broker.start()

    left = ROWS[first:second] + ROWS[third:]
    got = confluent_client.consume(broker.bootstrap, topic, len(left), partition=0)
    assert rows_of(got) == left
    assert f"{topic}-0 has lost segments, and is served without them" in broker.output


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


def test_a_disk_that_is_not_mounted_is_no_new_one(folder: Path) -> None:
    """Its folder is there and empty: what was on it would begin again at offset 0 (DEL-3)."""
    disks = [folder / "one", folder / "two"]
    settings = {"log.dirs": ",".join(map(str, disks))}
    with broker_process(folder / "broker", settings=settings) as broker:
        broker.start()
        topic = fill(broker)
        broker.stop()
        disks[1].rename(folder / "away")
        disks[1].mkdir()
        with pytest.raises(AssertionError, match=r"two \(id \S+\) is missing, .* mount it"):
            broker.start()
        shutil.rmtree(disks[1])
        (folder / "away").rename(disks[1])
        broker.start()
        assert_served(broker, topic)
        broker.stop()

        (lost,) = re.findall(
            "^directory.id=(.+)$", (disks[1] / "meta.properties").read_text(), re.M
        )
        shutil.rmtree(disks[1])
        broker.settings["unclean.leader.election.enable"] = "true"
        with pytest.raises(AssertionError, match=f"--set log.dirs.lost={lost}:"):
            broker.start()
        broker.settings["log.dirs.lost"] = lost
        broker.start()
        assert topic in Topics(broker.bootstrap).names()


def test_a_first_disk_that_is_not_mounted_is_no_new_one_either(folder: Path) -> None:
    """The store was on it: the topics would be guessed from the logs on the other disk."""
    disks = [folder / "one", folder / "two"]
    settings = {"log.dirs": ",".join(map(str, disks))}
    with broker_process(folder / "broker", settings=settings) as broker:
        broker.start()
        topic = fill(broker)
        broker.stop()
        disks[0].rename(folder / "away")
        disks[0].mkdir()
        for _ in range(2):  # the first time does not make it a known one
            with pytest.raises(AssertionError, match=r"one \(id \S+\) is missing, .* mount it"):
                broker.start()
        shutil.rmtree(disks[0])
        (folder / "away").rename(disks[0])
        broker.start()
        assert_served(broker, topic)
        broker.stop()

        broker.settings["log.dirs"] = str(disks[1])
        with pytest.raises(AssertionError, match=r"one \(id \S+\) is missing, .* name it first"):
            broker.start()
        (lost,) = re.findall(
            "^directory.id=(.+)$", (disks[0] / "meta.properties").read_text(), re.M
        )
        broker.settings["log.dirs.lost"] = lost
        broker.start()
        assert topic in Topics(broker.bootstrap).names()
