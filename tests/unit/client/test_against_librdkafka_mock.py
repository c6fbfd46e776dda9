"""The client against a broker that is not ours: librdkafka's mock cluster of two brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from moldau.client.admin.values import GroupOffset
from moldau.client.blocking import Admin
from moldau.client.cluster import ClusterClient
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.producer.produce_result import RecordRange
from moldau.client.producer.producer import AsyncProducer
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.config.client_options import ACKS_ALL, ACKS_LEADER
from moldau.errors import UnsupportedByBrokerError
from moldau.model import TopicPartition
from moldau.records.compression import Codec
from moldau.records.record import NewRecord


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    owner = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 2, "log_level": 0})
    brokers = owner.list_topics(timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("acks", [ACKS_LEADER, ACKS_ALL])
def test_what_is_sent_can_be_read(bootstrap: str, codec: Codec, acks: int) -> None:
    topic = f"records-{codec.label}-{acks + 1}"
    rows = [NewRecord(1000 + n, b"k%d" % n, b"v%d" % n, (("h", b"x"),)) for n in range(10)]

    async def story() -> None:
        async with AsyncProducer(bootstrap, acks=acks, compression_type=codec.label) as producer:
            count = await producer.partition_count(topic)
            for index in range(count):
                first = await producer.send_many(topic, rows[:4], partition=index)
                assert await first == (RecordRange(topic, index, 0, 4),)
                rest = await producer.send_many(topic, rows[4:], partition=index)
                assert await rest == (RecordRange(topic, index, 4, 6),)
        partitions = [TopicPartition(topic, index) for index in range(count)]
        async with AsyncConsumer(bootstrap) as consumer:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 2)
            found: dict[int, list[int]] = {index: [] for index in range(count)}
            while any(len(offsets) < 8 for offsets in found.values()):
                for row in await consumer.poll(10.0):
                    found[row.partition].append(row.offset)
                    assert row.value == rows[row.offset].value
                    assert row.headers == rows[row.offset].headers
        assert all(offsets == list(range(2, 10)) for offsets in found.values())

    asyncio.run(story())


def test_the_blocking_admin_describes_the_cluster(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        assert len(admin.describe_cluster().brokers) == 2


def test_offsets_are_listed(bootstrap: str) -> None:
    async def story() -> None:
        async with AsyncProducer(bootstrap) as producer:
            await (await producer.send_many("listed", [b"x"] * 5, partition=1))

    asyncio.run(story())
    with Admin(bootstrap) as admin:
        described = admin.describe_topics(["listed"])["listed"]
        assert isinstance(described, TopicMetadata)
        partition = TopicPartition("listed", 1)
        (latest,) = admin.list_offsets({partition: -1}).values()
        (earliest,) = admin.list_offsets({partition: -2}).values()
        assert (earliest.offset, latest.offset) == (0, 5)  # type: ignore[union-attr]


def test_offsets_of_a_group_are_set_and_listed(bootstrap: str) -> None:
    async def make_topic() -> None:
        client = ClusterClient(bootstrap)
        await client.wait_until_topic_is_ready("grouped", may_create=True)
        await client.close()

    asyncio.run(make_topic())
    first, second = TopicPartition("grouped", 0), TopicPartition("grouped", 1)
    with Admin(bootstrap) as admin:
        assert admin.find_coordinator("readers").id in {1, 2}
        wanted = GroupOffset(offset=0, leader_epoch=0, metadata="by hand")
        assert admin.alter_group_offsets("readers", {first: wanted}) == {first: None}
        assert admin.list_group_offsets("readers", [first, second]) == {first: wanted}


def test_what_the_broker_does_not_serve_is_said(bootstrap: str) -> None:
    with Admin(bootstrap) as admin, pytest.raises(UnsupportedByBrokerError, match="CreatePart"):
        admin.create_partitions({"listed": 9})
