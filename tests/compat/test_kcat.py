"""kcat, where it is installed: an older librdkafka than the one of confluent-kafka."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from support import confluent_client
from support.rows import Row, numbered_rows, rows_of
from support.topics import Topics

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")


def kcat(bootstrap: str, *arguments: str, given: bytes = b"") -> bytes:
    ended = subprocess.run(
        [KCAT or "kcat", "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout


def test_it_lists_brokers_and_topics(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(3)
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    assert [broker["id"] for broker in listed["brokers"]] == [1]
    (found,) = (one for one in listed["topics"] if one["topic"] == topic)
    assert [part["leader"] for part in found["partitions"]] == [1, 1, 1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_it_produces_and_consumes(bootstrap: str, topic: str, codec: str) -> None:
    lines = [b"key-%d:value-%d" % (number, number) for number in range(300)]
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec, given=b"\n".join(lines))
    got = confluent_client.consume(bootstrap, topic, 300)
    assert [(one.key, one.value) for one in got] == [
        (b"key-%d" % number, b"value-%d" % number) for number in range(300)
    ]
    read = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-K", ":")
    assert read.splitlines() == lines


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_it_reads_what_confluent_kafka_wrote(bootstrap: str, topic: str, codec: str) -> None:
    rows = [*numbered_rows(100), Row(None, None, (), 1_700_000_001_000)]
    confluent_client.produce(bootstrap, topic, rows, codec=codec)
    assert rows_of(confluent_client.consume(bootstrap, topic, 101)) == rows
    read = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J")
    found = [json.loads(line) for line in read.splitlines()]
    assert [one["offset"] for one in found] == list(range(101))
    assert [one["ts"] for one in found] == [row.timestamp_ms for row in rows]
    assert found[7]["key"] == "key-7"
    assert found[7]["headers"] == ["number", "7"]
    assert found[100]["payload"] is None


def test_it_finds_offsets_by_time_and_from_the_end(bootstrap: str, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, numbered_rows(100))
    answer = kcat(bootstrap, "-Q", "-t", f"{topic}:0:{1_700_000_000_042}")
    assert answer.split()[-1] == b"42"
    last = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "-5", "-e", "-q", "-f", "%o\n")
    assert last.split() == [b"95", b"96", b"97", b"98", b"99"]


def test_an_idempotent_producer(bootstrap: str, topic: str) -> None:
    given = b"\n".join(b"%d" % number for number in range(500))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", given=given)
    got = confluent_client.consume(bootstrap, topic, 500)
    assert [one.value for one in got] == given.split(b"\n")
