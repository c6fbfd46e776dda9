"""Topics that are made when somebody asks for them."""

from __future__ import annotations

from types import ModuleType

import pytest
from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from support import confluent_client
from support.broker_process import BrokerProcess
from support.requests import full_request
from support.rows import numbered_rows, rows_of
from support.topics import Topics, fresh_name
from support.wire_client import WireClient

BROKER_SETTINGS = {"num.partitions": "3", "auto.create.topics.enable": "true"}
METADATA = 3


def test_producing_makes_the_topic_and_loses_no_record(
    bootstrap: str, topics: Topics, client: ModuleType
) -> None:
    topic = fresh_name("on-demand")
    rows = numbered_rows(50)
    client.produce(bootstrap, topic, rows)
    assert rows_of(client.consume(bootstrap, topic, 50)) == rows
    _, partitions = topics.describe(topic)
    assert len(partitions) == 3


@pytest.mark.parametrize("version", [1, 4, 9, 12])
def test_metadata_makes_a_topic_and_knows_its_leaders(broker: BrokerProcess, version: int) -> None:
    topic = fresh_name("on-demand")
    with WireClient(broker.port) as wire:
        values = {"name": topic, "topic_id": None, "allow_auto_topic_creation": True}
        request = full_request(METADATA, version, values)
        found = wire.ask(request).topics[0]
        if found.error_code is ErrorCode.leader_not_available:  # as Kafka may say at first
            found = wire.ask(request).topics[0]
    assert found.error_code is ErrorCode.none
    assert {part.leader_id for part in found.partitions} == {1}


def test_a_client_may_ask_without_making(broker: BrokerProcess, topics: Topics) -> None:
    topic = fresh_name("not-made")
    with WireClient(broker.port) as wire:
        values = {"name": topic, "topic_id": None, "allow_auto_topic_creation": False}
        (found,) = wire.ask(full_request(METADATA, 9, values)).topics
    assert found.error_code is ErrorCode.unknown_topic_or_partition
    assert topic not in topics.names()


def test_bad_names_are_not_made(bootstrap: str, topics: Topics) -> None:
    found = confluent_client.admin_client(bootstrap).list_topics("bad name", 30)
    assert found.topics["bad name"].error.code() == KafkaError.TOPIC_EXCEPTION
    assert "bad name" not in topics.names()


def test_many_clients_that_ask_at_once_get_one_topic(
    broker: BrokerProcess, bootstrap: str, topics: Topics
) -> None:
    topic = fresh_name("on-demand")
    values = {"name": topic, "topic_id": None, "allow_auto_topic_creation": True}
    request = full_request(METADATA, 12, values)
    clients = [WireClient(broker.port) for _ in range(20)]
    try:
        sent = [client.send_request(request) for client in clients]
        answers = [
            client.receive_response(type(request), number)
            for client, number in zip(clients, sent, strict=True)
        ]
    finally:
        for client in clients:
            client.close()
    assert {answer.topics[0].error_code for answer in answers} == {ErrorCode.none}
    assert {answer.topics[0].topic_id for answer in answers} == {topics.id_of(topic)}


def test_listing_all_topics_makes_none(bootstrap: str, topics: Topics) -> None:
    before = topics.names()
    confluent_client.admin_client(bootstrap).list_topics(timeout=30)
    assert topics.names() <= before  # one that a test before this has deleted may go meanwhile
