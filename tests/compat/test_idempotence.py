"""Idempotent producers: many requests in flight, and what comes again is not written again."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from compat.conftest import CLIENTS
from moldau.records.record_batch import build_batch
from support import aiokafka_client, confluent_client
from support.broker_process import BrokerProcess
from support.requests import full_request, minimal_request
from support.rows import numbered_rows, rows_of
from support.topics import Topics
from support.wire_client import WireClient

INIT_PRODUCER_ID = 22


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_each_clients_idempotent_producer(
    bootstrap: str, topic: str, client: ModuleType, codec: str
) -> None:
    rows = numbered_rows(1_000)
    assert client.produce(bootstrap, topic, rows, idempotent=True, codec=codec) == list(range(1000))
    for reader in CLIENTS:
        assert rows_of(reader.consume(bootstrap, topic, 1_000)) == rows, reader.NAME


def test_many_requests_in_flight_keep_their_order(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(4)
    rows = numbered_rows(5_000)
    producer = confluent_client.producer(
        bootstrap,
        enable_idempotence=True,
        max_in_flight_requests_per_connection=5,
        batch_num_messages=10,
        linger_ms=0,
    )
    for row in rows:
        for partition in range(4):
            producer.produce(topic, row.value, row.key, partition)
        producer.poll(0)
    assert producer.flush(60) == 0
    for partition in range(4):
        got = confluent_client.consume(bootstrap, topic, 5_000, partition=partition)
        assert [one.value for one in got] == [row.value for row in rows]


def test_several_idempotent_producers_at_once(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async def one(name: int) -> None:
            async with aiokafka_client.producer(bootstrap, enable_idempotence=True) as client:
                for number in range(100):
                    await client.send(topic, b"%d %d" % (name, number), partition=0)
                await client.flush()

        await asyncio.gather(*(one(name) for name in range(5)))

    asyncio.run(run())
    got = [one.value or b"" for one in confluent_client.consume(bootstrap, topic, 500)]
    for name in range(5):
        own = [value for value in got if value.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, number) for number in range(100)]


class Sequenced:
    """A producer of one partition that chooses its sequence numbers itself."""

    def __init__(self, wire: WireClient, topic: str) -> None:
        request = minimal_request(INIT_PRODUCER_ID, 4)
        answer = wire.ask(request)
        assert answer.error_code is ErrorCode.none
        self._wire = wire
        self._topic = topic
        self.producer_id = answer.producer_id
        self.epoch = answer.producer_epoch

    def send(self, sequence: int, count: int = 1, epoch: int | None = None) -> Any:
        batch = build_batch(
            [(1_700_000_000_000, b"%d" % (sequence + n), b"v", ()) for n in range(count)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        values = {"name": self._topic, "acks": -1, "records": bytes(batch)}
        answer = self._wire.ask(full_request(0, 9, values))
        return answer.responses[0].partition_responses[0]


def test_what_comes_again_is_answered_with_its_first_offset(
    broker: BrokerProcess, bootstrap: str, topic: str
) -> None:
    with WireClient(broker.port) as wire:
        producer = Sequenced(wire, topic)
        offsets = [producer.send(10 * number, 10).base_offset for number in range(8)]
        assert offsets == [10 * number for number in range(8)]
        for number in (7, 3, 5):  # among the last five
            again = producer.send(10 * number, 10)
            assert (again.error_code, again.base_offset) == (ErrorCode.none, 10 * number)
        # Older than what is remembered: it is known to be a repetition, not where it went.
        old = producer.send(0, 10)
        assert old.error_code in (
            ErrorCode.duplicate_sequence_number,
            ErrorCode.out_of_order_sequence_number,
        )
    assert len(confluent_client.consume(bootstrap, topic, 80)) == 80
    assert confluent_client.produce(bootstrap, topic, numbered_rows(1)) == [80]


def test_gaps_and_old_epochs_are_refused(broker: BrokerProcess, bootstrap: str, topic: str) -> None:
    with WireClient(broker.port) as wire:
        producer = Sequenced(wire, topic)
        assert producer.send(0, epoch=3).error_code is ErrorCode.none
        gap = producer.send(5, epoch=3)
        assert gap.error_code is ErrorCode.out_of_order_sequence_number
        assert producer.send(1, epoch=2).error_code in (
            ErrorCode.invalid_producer_epoch,
            ErrorCode.producer_fenced,
        )
        assert producer.send(7, epoch=4).error_code is ErrorCode.out_of_order_sequence_number
        assert producer.send(0, epoch=4).error_code is ErrorCode.none
    assert confluent_client.produce(bootstrap, topic, numbered_rows(1)) == [2]


def test_producer_ids_are_never_given_twice(broker: BrokerProcess) -> None:
    with WireClient(broker.port) as wire:
        found = [wire.ask(minimal_request(INIT_PRODUCER_ID, 4)).producer_id for _ in range(50)]
    assert len(set(found)) == 50


def test_the_producers_of_a_partition_are_described(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.port) as wire:
        producer = Sequenced(wire, topic)
        producer.send(0, 4)
        answer = wire.ask(full_request(61, 0, {"name": topic}))
        (found,) = answer.topics[0].partitions[0].active_producers
    assert found.producer_id == producer.producer_id
    assert found.last_sequence == 3
