"""Old segments go while others read them: readers get whole records or an honest error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import TopicPartition
from kio.schema.errors import ErrorCode

from moldau.records.batch_header import crc_matches, walk_headers
from moldau.records.record_batch import records_of
from support import confluent_client
from support.broker_process import BrokerProcess, running_broker
from support.requests import full_request, minimal_request
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS
from support.wire_client import WireClient, read_response

FETCH = 1
LIST_OFFSETS = 2
EARLIEST = -2
RECORDS = 30_000


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    settings = {"log.retention.check.interval.ms": "20", "log.segment.delete.delay.ms": "0"}
    with running_broker(settings) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Small segments, of which the last few are kept, and no grace for those who read them."""
    return Topics(broker.bootstrap).create(
        config={
            "internal.segment.bytes": "50000",
            "retention.bytes": "300000",
            "file.delete.delay.ms": "0",
        }
    )


class Writer:
    """Writes records whose value is their offset, in the background."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = confluent_client.producer(
            bootstrap, enable_idempotence=True, batch_num_messages=100, linger_ms=1
        )
        self._topic = topic
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for number in range(RECORDS):
            self._producer.produce(self._topic, b"%d " % number + b"." * 80)
            if number % 500 == 0:
                self._producer.flush(PATIENCE_SECONDS)
        assert self._producer.flush(PATIENCE_SECONDS) == 0


def test_a_consumer_gets_records_at_their_offsets_or_starts_anew(
    broker: BrokerProcess, topic: str
) -> None:
    writer = Writer(broker.bootstrap, topic)
    writer.thread.start()
    position, count = 0, 0
    with confluent_client.consumer(broker.bootstrap, auto_offset_reset="earliest") as client:
        client.assign([TopicPartition(topic, 0, 0)])
        while position < RECORDS:
            (got,) = confluent_client.poll(client, 1)
            assert got.offset >= position
            assert (got.value or b"").startswith(b"%d " % got.offset)
            position = got.offset + 1
            count += 1
    writer.thread.join()
    assert 0 < count <= RECORDS


def test_slow_readers_get_whole_batches(broker: BrokerProcess, topic: str) -> None:
    """They ask for the oldest records and read the answer when these are long deleted."""
    writer = Writer(broker.bootstrap, topic)
    writer.thread.start()
    answers = 0
    readers: list[tuple[WireClient, int]] = []
    try:
        while writer.thread.is_alive():
            client = WireClient(broker.port, receive_buffer_bytes=4096)
            readers.append((client, start := earliest(client, topic)))
            client.send_request(fetch_from(topic, start))
            if len(readers) > 30:
                answers += check_answer(*readers.pop(0))
        for reader in readers:
            answers += check_answer(*reader)
    finally:
        for client, _ in readers:
            client.close()
        writer.thread.join()
    assert answers
    with WireClient(broker.port) as client:
        client.ask(minimal_request(3, 9))


def earliest(client: WireClient, topic: str) -> int:
    request = full_request(LIST_OFFSETS, 5, {"name": topic, "timestamp": EARLIEST})
    (found,) = client.ask(request).topics[0].partitions
    return int(found.offset)


def fetch_from(topic: str, offset: int) -> object:
    values = {
        "topic": topic,
        "fetch_offset": offset,
        "max_wait": timedelta(),
        "max_bytes": 1 << 20,
        "partition_max_bytes": 1 << 20,
    }
    return full_request(FETCH, 11, values)


def check_answer(client: WireClient, start: int) -> bool:
    """Whether there were records; if so, they are whole and at their offsets."""
    with client:
        _, answer = read_response(FETCH, 11, client.receive_frame())
    (partition,) = answer.responses[0].partitions
    if partition.error_code is ErrorCode.offset_out_of_range:
        return False
    assert partition.error_code is ErrorCode.none
    data = partition.records or b""
    end = 0
    for position, header in walk_headers(data):
        batch = data[position : position + header.size_bytes]
        assert crc_matches(batch, header)
        for record in records_of(batch):
            assert (record.value or b"").startswith(b"%d " % record.offset)
        assert header.next_offset > start
        end = position + header.size_bytes
    assert end == len(data), "an answer ends with a whole batch"
    return bool(data)
