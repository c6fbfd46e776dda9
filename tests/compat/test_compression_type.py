"""`compression.type` on the topic: the broker stores in its codec what comes in another."""

from __future__ import annotations

import pytest

from compat.conftest import CLIENTS
from moldau.records.batch_header import HEADER_BYTES, read_header
from support import confluent_client
from support.broker_process import BrokerProcess
from support.rows import VARIED_ROWS, Row, numbered_rows, rows_of
from support.topics import Topics

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def stored_codecs(broker: BrokerProcess, topic: str) -> set[int]:
    """The codecs of the batches in the log file, as their headers say."""
    data = b"".join(
        segment.read_bytes()
        for segment in sorted((broker.data_folder / f"{topic}-0").glob("*.log"))
    )
    found, position = set(), 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        found.add(header.attributes & 0x07)
        position += 12 + header.batch_length
    assert position == len(data)
    return found


@pytest.mark.parametrize("wanted", CODECS)
@pytest.mark.parametrize("sent", ["none", "gzip", "zstd"])
def test_the_topics_codec_is_what_is_stored_and_every_client_reads_it(
    broker: BrokerProcess, bootstrap: str, topics: Topics, wanted: str, sent: str
) -> None:
    topic = topics.create(config={"compression.type": wanted})
    rows = [*VARIED_ROWS, *numbered_rows(200)]

    offsets = confluent_client.produce(bootstrap, topic, rows, codec=sent, idempotent=True)

    assert offsets == list(range(len(rows)))
    assert stored_codecs(broker, topic) == {CODECS[wanted]}
    for reader in CLIENTS:
        assert rows_of(reader.consume(bootstrap, topic, len(rows))) == rows, reader.NAME


@pytest.mark.parametrize("sent", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_by_default_the_producers_codec_stays(
    broker: BrokerProcess, bootstrap: str, topic: str, sent: str
) -> None:
    confluent_client.produce(bootstrap, topic, numbered_rows(200), codec=sent)
    expected = CODECS["uncompressed" if sent == "none" else sent]
    stored = stored_codecs(broker, topic)
    assert expected in stored
    # librdkafka leaves a batch as it is when compression would make it larger.
    assert stored <= {expected, CODECS["uncompressed"]}


def test_recompressed_batches_keep_the_order_of_many_in_flight(
    bootstrap: str, topics: Topics
) -> None:
    """Recompression happens in workers; what they finish first must not be written first."""
    topic = topics.create(config={"compression.type": "zstd"})
    rows = [
        Row(b"%d" % number, b"x" * (number * 7919 % 3_000), (), 1_700_000_000_000 + number)
        for number in range(2_000)
    ]
    producer = confluent_client.producer(
        bootstrap, enable_idempotence=True, batch_num_messages=7, linger_ms=0
    )
    assert confluent_client.send(producer, topic, rows) == list(range(2_000))
    assert rows_of(confluent_client.consume(bootstrap, topic, 2_000)) == rows


def test_log_append_time_and_recompression_together(
    broker: BrokerProcess, bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(
        config={"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}
    )
    confluent_client.produce(bootstrap, topic, numbered_rows(100), codec="gzip")
    got = confluent_client.consume(bootstrap, topic, 100)
    assert [one.value for one in got] == [row.value for row in numbered_rows(100)]
    assert {one.timestamp_type for one in got} == {1}
    assert stored_codecs(broker, topic) == {CODECS["lz4"]}
