"""Errors of producing and consuming, as each client sees them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import kafka
import kafka.errors
import pytest
from aiokafka.errors import (
    InvalidTopicError,
    KafkaTimeoutError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from confluent_kafka import KafkaError, KafkaException
from kio.schema.errors import ErrorCode

from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from support import aiokafka_client, confluent_client, kafka_python_client
from support.broker_process import BrokerProcess
from support.requests import full_request
from support.rows import Row, numbered_rows, rows_of
from support.topics import Topics, fresh_name
from support.wire_client import WireClient

BROKER_SETTINGS = {"auto.create.topics.enable": "false"}
UNKNOWN = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)
COMPACTED = {"cleanup.policy": "compact"}

# An unknown topic


def test_confluent_kafka_learns_of_an_unknown_topic(bootstrap: str) -> None:
    name = fresh_name("missing")
    with pytest.raises(KafkaException) as refused:
        confluent_client.produce(
            bootstrap, name, numbered_rows(1), topic_metadata_propagation_max_ms=10
        )
    assert refused.value.args[0].code() in (
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    )
    found = confluent_client.admin_client(bootstrap).list_topics(name, 30).topics[name]
    assert found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_kafka_python_learns_of_an_unknown_topic(bootstrap: str) -> None:
    with (
        kafka_python_client.producer(bootstrap, max_block_ms=500) as producer,
        pytest.raises(kafka.errors.KafkaTimeoutError),
    ):
        producer.send(fresh_name("missing"), b"v").get(30)
    with kafka_python_client.consumer(bootstrap) as client:
        assert not client.partitions_for_topic(fresh_name("missing"))


def test_aiokafka_learns_of_an_unknown_topic(bootstrap: str) -> None:
    async def run() -> None:
        async with aiokafka_client.producer(bootstrap, request_timeout_ms=3_000) as client:
            with pytest.raises((UnknownTopicOrPartitionError, KafkaTimeoutError)):
                await client.send_and_wait(fresh_name("missing"), b"v")

    asyncio.run(run())


def test_an_unknown_partition_of_a_known_topic(bootstrap: str, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        confluent_client.produce(bootstrap, topic, numbered_rows(1), partition=9)
    assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


# A name that cannot be


@pytest.mark.parametrize("name", ["bad name", "slash/es", ".", "..", "ümlaut", "x" * 250])
def test_bad_names_are_told_apart_from_unknown_ones(bootstrap: str, name: str) -> None:
    found = confluent_client.admin_client(bootstrap).list_topics(name, 30).topics[name]
    assert found.error.code() == KafkaError.TOPIC_EXCEPTION
    with pytest.raises(KafkaException) as refused:
        confluent_client.produce(bootstrap, name, numbered_rows(1))
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_kafka_python_and_aiokafka_learn_of_a_bad_name(bootstrap: str) -> None:
    with (
        kafka_python_client.producer(bootstrap) as producer,
        pytest.raises((kafka.errors.InvalidTopicError, ValueError)),
    ):
        producer.send("bad name", b"v").get(30)

    async def run() -> None:
        async with aiokafka_client.producer(bootstrap) as client:
            with pytest.raises((InvalidTopicError, UnknownTopicOrPartitionError)):
                await client.send_and_wait("bad name", b"v")

    asyncio.run(run())


# Compacted topics need keys


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_without_a_key_is_refused_on_a_compacted_topic(
    bootstrap: str, topics: Topics, codec: str
) -> None:
    topic = topics.create(config=COMPACTED)
    good = [Row(b"a", b"1", (), 1_700_000_000_000), Row(b"b", None, (), 1_700_000_000_000)]
    confluent_client.produce(bootstrap, topic, good, codec=codec)
    with pytest.raises(KafkaException) as refused:
        confluent_client.produce(bootstrap, topic, [Row(None, b"keyless")], codec=codec)
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD
    confluent_client.produce(bootstrap, topic, good, codec=codec)
    assert rows_of(confluent_client.consume(bootstrap, topic, 4)) == good * 2


def test_kafka_python_and_aiokafka_learn_of_a_missing_key(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config=COMPACTED)
    with (
        kafka_python_client.producer(bootstrap) as producer,
        pytest.raises(kafka.errors.InvalidRecordError),
    ):
        producer.send(topic, b"keyless").get(30)

    async def run() -> None:
        async with aiokafka_client.producer(bootstrap) as client:
            # aiokafka does not know error 87 by its name.
            with pytest.raises(UnknownError):
                await client.send_and_wait(topic, b"keyless")

    asyncio.run(run())


def test_the_answer_names_the_records_that_are_wrong(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(config=COMPACTED)
    rows = [(0, None, b"v", ()), (0, b"k", b"v", ()), (0, None, b"v", ())]
    with WireClient(broker.port) as wire:
        for codec in Codec:
            batch = bytes(build_batch(rows, codec=codec))
            request = full_request(0, 9, {"name": topic, "acks": -1, "records": batch})
            (answer,) = wire.ask(request).responses[0].partition_responses
            assert answer.error_code is ErrorCode.invalid_record
            assert answer.base_offset == -1
            assert [error.batch_index for error in answer.record_errors] == [0, 2]
            assert all(error.batch_index_error_message for error in answer.record_errors)
            assert answer.error_message


# What a producer may ask for


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist(broker: BrokerProcess, topic: str, acks: int) -> None:
    batch = bytes(build_batch([(0, b"k", b"v", ())]))
    with WireClient(broker.port) as wire:
        request = full_request(0, 9, {"name": topic, "acks": acks, "records": batch})
        (answer,) = wire.ask(request).responses[0].partition_responses
    assert answer.error_code is ErrorCode.invalid_required_acks


def test_no_more_replicas_are_asked_for_than_there_are(bootstrap: str, topics: Topics) -> None:
    """As in Kafka 4; too few in sync of several is in the tests of clusters."""
    topic = topics.create(config={"min.insync.replicas": "2"})
    assert confluent_client.produce(bootstrap, topic, numbered_rows(1), acks="all") == [0]


def test_a_deleted_topic_is_unknown_to_those_who_still_use_it(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.create()
    topic_id = topics.id_of(topic)
    batch = bytes(build_batch([(0, b"k", b"v", ())]))
    values = {"acks": -1, "records": batch, "max_wait": timedelta(), "partition_max_bytes": 1000}
    by_name = {**values, "name": topic, "topic": topic}
    by_id = {**values, "topic_id": topic_id}
    with WireClient(broker.port) as wire:
        (answer,) = wire.ask(full_request(0, 9, by_name)).responses[0].partition_responses
        assert answer.error_code is ErrorCode.none
        topics.delete(topic)
        for request in (full_request(0, 9, by_name), full_request(0, 13, by_id)):
            (answer,) = wire.ask(request).responses[0].partition_responses
            assert answer.error_code in UNKNOWN
        for request in (full_request(1, 12, by_name), full_request(1, 13, by_id)):
            (answer,) = wire.ask(request).responses[0].partitions
            assert answer.error_code in UNKNOWN
