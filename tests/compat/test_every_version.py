"""Every version of every API that ApiVersions promises answers, and kio can read the answer.

The table comes from the broker itself, so a new API is tested as soon as it is served. The requests
are kio's own, not Moldau's.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from moldau.records.record_batch import build_batch
from support.broker_process import BrokerProcess
from support.requests import error_codes_of, full_request, minimal_request
from support.topics import Topics, fresh_name
from support.wire_client import API_VERSIONS, ClosedByBroker, WireClient, frame_of, request_frame

PRODUCE = 0
FETCH = 1
METADATA = 3
CREATE_TOPICS = 19
DELETE_TOPICS = 20
INIT_PRODUCER_ID = 22
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
INCREMENTAL_ALTER_CONFIGS = 44

FIRST_PRODUCE_VERSION = 3  # 0 is advertised for the sake of librdkafka, and refused

ERROR_FREE = {0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 48, 49, 60, 61, 75}
"""The APIs whose full request, as `values_for` fills it, asks for nothing that is refused."""

BY_TOPIC = {0, 1, 2, 20, 21, 23, 61, 75}
"""The APIs that answer for each topic or partition that they were asked about."""

COMMON_VALUES: dict[str, Any] = {
    "acks": -1,
    "records": bytes(build_batch([(1_700_000_000_000, b"key", b"value", ())])),
    "timeout": timedelta(seconds=30),
    "max_wait": timedelta(milliseconds=5),
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "timestamp": -1,
    "leader_epoch": 0,
    "client_software_name": "wire-test",
    "client_software_version": "1.0",
    "response_partition_limit": 10,
    "transactional_id": None,
    "producer_id": -1,
    "producer_epoch": -1,
    "transaction_timeout": timedelta(seconds=60),
    "num_partitions": -1,
    "replication_factor": -1,
    "broker_ids": 1,
    "count": 2,
    "configuration_keys": "retention.ms",
    "CreatableTopicConfig.name": "retention.ms",
    "AlterableConfig.name": "retention.ms",
    "value": "100000",
    "entity_type": "client-id",
    "entity_name": "nobody",
    "match": "nobody",
    "OpData.key": "producer_byte_rate",
    "OpData.value": 100000.0,
}


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.port) as client:
        yield client


def served_table(wire: WireClient) -> Iterator[tuple[int, int]]:
    for api_key, (first, last) in wire.served_versions().items():
        for version in range(
            max(first, FIRST_PRODUCE_VERSION if api_key == PRODUCE else 0), last + 1
        ):
            yield api_key, version


def test_every_version_answers_a_minimal_request(wire: WireClient) -> None:
    answered = 0
    for api_key, version in served_table(wire):
        wire.ask(minimal_request(api_key, version))
        answered += 1
    assert answered > 80


def test_every_version_answers_a_full_request(wire: WireClient, topics: Topics) -> None:
    for api_key, version in served_table(wire):
        request = full_request(api_key, version, values_for(api_key, version, topics))
        response = wire.ask(request)
        if api_key in ERROR_FREE:
            codes = set(error_codes_of(response))
            assert codes <= {ErrorCode.none}, f"API {api_key} v{version}: {response}"


def test_every_version_of_produce_appends_and_every_version_of_fetch_reads(
    wire: WireClient, topics: Topics
) -> None:
    topic = topics.create()
    values = values_for(PRODUCE, 0, topics) | names_of(topics, topic)
    versions = wire.served_versions()
    for offset, version in enumerate(range(FIRST_PRODUCE_VERSION, versions[PRODUCE][1] + 1)):
        answer = wire.ask(full_request(PRODUCE, version, values))
        (partition,) = answer.responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (ErrorCode.none, offset)
    written = offset + 1
    for version in range(versions[FETCH][0], versions[FETCH][1] + 1):
        answer = wire.ask(full_request(FETCH, version, values))
        (partition,) = answer.responses[0].partitions
        assert partition.error_code is ErrorCode.none, f"v{version}"
        assert partition.high_watermark == written
        assert len(partition.records) == written * len(values["records"])


def test_an_unknown_topic_is_an_error_in_every_version(wire: WireClient, topics: Topics) -> None:
    for api_key, version in served_table(wire):
        if api_key not in BY_TOPIC:
            continue
        values = values_for(api_key, version, topics, exists=False)
        codes = error_codes_of(wire.ask(full_request(api_key, version, values)))
        assert codes, f"API {api_key} v{version}"
        assert {
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_id,
        } & set(codes), f"API {api_key} v{version}: {codes}"


def test_requests_in_a_row_are_answered_in_their_order(wire: WireClient, topics: Topics) -> None:
    """Pipelined, with a long poll and a produce among them."""
    requests = [
        full_request(api_key, version, values_for(api_key, version, topics))
        for api_key, version in served_table(wire)
        if api_key in (0, 1, 2, 3, 18, 32, 60)
    ]
    wire.send(b"".join(request_frame(request, number) for number, request in enumerate(requests)))
    for number, request in enumerate(requests):
        wire.receive_response(type(request), number)


def test_a_newer_api_versions_is_answered_in_version_0(wire: WireClient) -> None:
    body = bytes.fromhex("0012 007f 00000007 ffff") + b"\x00 from the future"
    wire.send(frame_of(body))

    answer = wire.receive_response(load_request_schema(API_VERSIONS, 0), 7)

    assert answer.error_code is ErrorCode.unsupported_version
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [
        (18, 0, 4)
    ]


def test_acks_0_gets_no_answer_and_the_next_request_does(
    wire: WireClient, topics: Topics, topic: str
) -> None:
    values = values_for(PRODUCE, 9, topics) | names_of(topics, topic) | {"acks": 0}
    wire.send(request_frame(full_request(PRODUCE, 9, values), 1))
    wire.send(request_frame(minimal_request(API_VERSIONS, 0), 2))

    wire.receive_response(load_request_schema(API_VERSIONS, 0), 2)


def test_a_refused_produce_with_acks_0_ends_the_connection(
    wire: WireClient, topics: Topics
) -> None:
    values = values_for(PRODUCE, 9, topics) | names_of(topics, None) | {"acks": 0}
    wire.send(request_frame(full_request(PRODUCE, 9, values), 1))

    assert wire.is_closed_by_broker()


def test_produce_0_to_2_is_advertised_and_refused(wire: WireClient) -> None:
    assert wire.served_versions()[PRODUCE][0] == 0
    wire.send(frame_of(bytes.fromhex("0000 0002 00000001 ffff ffff 00000000 00000000")))

    assert wire.is_closed_by_broker()


def test_a_client_that_half_closes_still_gets_its_answers(wire: WireClient, topics: Topics) -> None:
    """As `nc` does: send, shut down the sending side, read to the end."""
    wire.send(b"".join(request_frame(minimal_request(3, 12), number) for number in range(50)))
    wire.socket.shutdown(socket.SHUT_WR)

    answers = 0
    try:
        while True:
            wire.receive_frame()
            answers += 1
    except ClosedByBroker:
        pass
    assert answers == 50


def names_of(topics: Topics, topic: str | None) -> dict[str, Any]:
    """The fields by which requests name a topic; None is one that does not exist."""
    if topic is None:
        name, topic_id = fresh_name("missing"), uuid.uuid4()
    else:
        name, topic_id = topic, topics.id_of(topic)
    return {"name": name, "topic": name, "topic_names": name, "topic_id": topic_id}


def values_for(
    api_key: int, version: int, topics: Topics, *, exists: bool = True
) -> dict[str, Any]:
    """What a full request of the API says, about a topic made for it."""
    values = COMMON_VALUES | names_of(topics, topics.create() if exists else None)
    if api_key not in (PRODUCE, INIT_PRODUCER_ID):
        values["transactional_id"] = fresh_name("transactional")
    if api_key in (CREATE_TOPICS, METADATA):
        values["name"] = fresh_name("created")
    if api_key == METADATA or (api_key == DELETE_TOPICS and version >= 6):
        # By name where both could be given, by id where that came last.
        values["topic_id" if api_key == METADATA else "name"] = None
    if api_key in (DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS):
        values |= {"resource_type": 2, "resource_name": values["name"]}
    return values
