"""Compacted topics with other people's clients: last values stay, and so do committed offsets."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType

from confluent_kafka import TopicPartition

from support import confluent_client
from support.broker_process import BrokerProcess
from support.rows import Row
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS, eventually

BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
    "log.roll.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
}

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.01",
}
"""A segment takes five rounds: what is sent tells the time, and segments are told by it."""
START_MS = 1_700_000_000_000
KEYS = 20
ROUNDS = 100
COMMIT_BYTES = 150
"""Less than one commit takes in the log."""


def rounds_of_values(key_count: int = KEYS, rounds: int = ROUNDS) -> list[Row]:
    return [
        Row(b"key-%02d" % key, b"value %d of key %d" % (number, key), (), START_MS + 1000 * number)
        for number in range(rounds)
        for key in range(key_count)
    ]


def fill(bootstrap: str, topic: str, codec: str = "none", idempotent: bool = False) -> list[int]:
    """Many segments of few keys."""
    return confluent_client.produce(
        bootstrap, topic, rounds_of_values(), codec=codec, idempotent=idempotent, batch_size=2000
    )


def wait_until_cleaned(broker: BrokerProcess, topic: str) -> None:
    """Until the cleaner has been up to the active segment, by its checkpoint."""

    def is_done() -> bool:
        active = active_segment(broker.data_folder, topic)
        return active > 0 and cleaned_offset(broker.data_folder, topic) == active

    eventually(is_done, f"{topic} is cleaned")


def cleaned_offset(data_folder: Path, topic: str) -> int:
    path = data_folder / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    rows = (line.split() for line in lines)
    return next((int(offset) for name, _, offset in rows if name == topic), 0)


def log_bytes(data_folder: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in (data_folder / f"{topic}-0").glob("*.log"))


def read_to_the_end(bootstrap: str, topic: str, start: int = 0) -> list[tuple[int, bytes, bytes]]:
    """Offset, key and value of all that a consumer gets from an offset on."""
    found: list[tuple[int, bytes, bytes]] = []
    with confluent_client.consumer(bootstrap, enable_partition_eof=True) as client:
        client.assign([TopicPartition(topic, 0, start)])
        while True:
            message = client.poll(PATIENCE_SECONDS)
            assert message is not None
            if message.error() is not None:
                return found
            found.append((message.offset(), message.key(), message.value()))


def test_the_last_value_of_each_key_remains_at_its_offset(
    broker: BrokerProcess, bootstrap: str, topics: Topics
):
    for codec in ("none", "zstd"):
        topic = topics.create(config=COMPACTED)
        rows, offsets = rounds_of_values(), fill(bootstrap, topic, codec, idempotent=True)
        wait_until_cleaned(broker, topic)
        found = read_to_the_end(bootstrap, topic)
        assert len(found) < len(rows) / 2
        sent = {(offset, row.key, row.value) for offset, row in zip(offsets, rows, strict=True)}
        assert set(found) <= sent
        last_values = {row.key: row.value for row in rows}
        assert {key: value for _, key, value in found} == last_values
        watermarks = consumer_watermarks(bootstrap, topic)
        assert watermarks == (0, len(rows))


def consumer_watermarks(bootstrap: str, topic: str) -> tuple[int, int]:
    with confluent_client.consumer(bootstrap) as client:
        low, high = client.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_SECONDS)
    return low, high


def test_every_client_reads_across_the_gaps(
    client: ModuleType, broker: BrokerProcess, bootstrap: str, topics: Topics
):
    topic = topics.create(config=COMPACTED)
    fill(bootstrap, topic)
    wait_until_cleaned(broker, topic)
    expected = read_to_the_end(bootstrap, topic)
    got = client.consume(bootstrap, topic, len(expected))
    assert [(row.offset, row.key, row.value) for row in got] == expected
    missing = next(o for o in range(ROUNDS * KEYS) if o not in {offset for offset, *_ in expected})
    behind = [row for row in expected if row[0] > missing]
    got = client.consume(bootstrap, topic, len(behind), start=missing)
    assert [row.offset for row in got] == [offset for offset, *_ in behind]


def test_a_compacted_topic_takes_more_records_and_survives_a_restart(
    broker: BrokerProcess, bootstrap: str, topics: Topics
):
    topic = topics.create(config=COMPACTED)
    fill(bootstrap, topic)
    wait_until_cleaned(broker, topic)
    broker.kill()
    broker.start()
    assert confluent_client.produce(bootstrap, topic, [Row(b"new", b"x", (), None)]) == [
        ROUNDS * KEYS
    ]
    values = {key: value for _, key, value in read_to_the_end(bootstrap, topic)}
    assert values.pop(b"new") == b"x"
    assert values == {row.key: row.value for row in rounds_of_values()}


def test_the_offsets_topic_shrinks_and_committed_offsets_stay(
    broker: BrokerProcess, bootstrap: str, topics: Topics
):
    topic = topics.create()
    last_offsets = {
        group: commit_until_rolled(broker, bootstrap, topic, group)
        for group in ("group-1", "group-2", "group-3")
    }
    wait_until_cleaned(broker, "__consumer_offsets")
    commits = sum(last_offsets.values())
    assert log_bytes(broker.data_folder, "__consumer_offsets") < commits * COMMIT_BYTES / 2
    broker.stop()
    broker.start()
    for group, last_offset in last_offsets.items():
        with confluent_client.consumer(bootstrap, group_id=group) as client:
            (found,) = client.committed([TopicPartition(topic, 0)], PATIENCE_SECONDS)
        assert found.offset == last_offset


def commit_until_rolled(broker: BrokerProcess, bootstrap: str, topic: str, group: str) -> int:
    """Commit one offset after the other until a new segment begins; the last one."""
    before = active_segment(broker.data_folder, "__consumer_offsets")
    with confluent_client.consumer(bootstrap, group_id=group) as client:
        for offset in itertools.count(1):
            client.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            if active_segment(broker.data_folder, "__consumer_offsets") > before and offset > 50:
                return offset
    raise AssertionError("the count never ends")


def active_segment(data_folder: Path, topic: str) -> int:
    """The first offset of the segment that is appended to; 0 when there is none."""
    starts = (int(path.stem) for path in (data_folder / f"{topic}-0").glob("*.log"))
    return max(starts, default=0)
