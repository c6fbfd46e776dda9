"""Long polls, fetch sessions, topic ids: how consumers fetch in practice."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

from moldau.records.record_batch import build_batch
from support import confluent_client
from support.broker_process import BrokerProcess
from support.requests import full_request
from support.rows import Row, numbered_rows
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS
from support.wire_client import WireClient

FETCH = 1
LONG = timedelta(minutes=10)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.port) as client:
        yield client


# Long polls


def test_a_record_that_is_produced_while_a_fetch_waits_ends_the_wait(
    bootstrap: str, topic: str, wire: WireClient
) -> None:
    """The fetch would wait for ten minutes; nobody would."""
    request = fetch({topic: {0: 0}}, max_wait=LONG)
    sent = wire.send_request(request)
    confluent_client.produce(bootstrap, topic, numbered_rows(1))
    answer = wire.receive_response(type(request), sent)
    assert answer.responses[0].partitions[0].records


def test_each_client_gets_records_while_it_waits(
    bootstrap: str, topic: str, client: ModuleType
) -> None:
    """It polls in a thread of its own, and each record is sent when the one before has come."""
    if client is confluent_client:
        waits = {"fetch_wait_max_ms": 60_000}
    else:
        waits = {"fetch_max_wait_ms": 60_000, "request_timeout_ms": 90_000}
    producer = confluent_client.producer(bootstrap)
    with ThreadPoolExecutor(1) as pool:
        for number in range(3):
            waiting = pool.submit(client.consume, bootstrap, topic, 1, start=number, **waits)
            producer.produce(topic, b"%d" % number, partition=0)
            producer.flush(PATIENCE_SECONDS)
            (got,) = waiting.result(PATIENCE_SECONDS)
            assert got.value == b"%d" % number


def test_min_bytes_are_awaited_over_several_produces(
    bootstrap: str, topic: str, wire: WireClient
) -> None:
    rows = [Row(None, b"x" * 1_000)]
    request = fetch({topic: {0: 0}}, max_wait=LONG, min_bytes=3_000)
    sent = wire.send_request(request)
    for _ in range(3):
        confluent_client.produce(bootstrap, topic, rows)
    answer = wire.receive_response(type(request), sent)
    assert len(answer.responses[0].partitions[0].records) > 3_000


def test_a_wait_ends_by_itself(topic: str, wire: WireClient) -> None:
    answer = wire.ask(fetch({topic: {0: 0}}, max_wait=timedelta(milliseconds=50)))
    (partition,) = answer.responses[0].partitions
    assert partition.error_code is ErrorCode.none
    assert partition.records == b""  # not null, which librdkafka refuses


def test_a_waiting_fetch_hears_of_a_deleted_topic(topics: Topics, wire: WireClient) -> None:
    topic = topics.create()
    request = fetch({topic: {0: 0}}, max_wait=LONG)
    sent = wire.send_request(request)
    # Metadata on another connection proves nothing about the first; the fetch is either waiting
    # when the topic goes or comes afterwards, and must end in both cases.
    topics.delete(topic)
    answer = wire.receive_response(type(request), sent)
    assert answer.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition


def test_tailing_many_records_misses_none(bootstrap: str, topic: str) -> None:
    """A consumer at the end of the log, while records come one by one and in crowds.

    Its fetches wait for a minute: each must be woken by what comes.
    """
    producer = confluent_client.producer(bootstrap, linger_ms=0)
    sent: list[bytes] = []
    got: list[bytes | None] = []
    with confluent_client.consumer(bootstrap, fetch_wait_max_ms=60_000) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        for size in (1, 1, 50, 1, 500, 3, 1):
            for _ in range(size):
                sent.append(b"%d" % len(sent))
                producer.produce(topic, sent[-1])
            producer.flush(PATIENCE_SECONDS)
            got += [one.value for one in confluent_client.poll(client, size)]
    assert got == sent


# Sessions


def fetch(
    wanted: dict[str, dict[int, int]],
    *,
    session: int = 0,
    epoch: int = -1,
    forget: dict[str, tuple[int, ...]] | None = None,
    max_wait: timedelta = timedelta(),
    min_bytes: int = 1,
    **limits: int,
) -> FetchRequest:
    """A fetch of offsets by topic and partition."""
    return FetchRequest(
        replica_id=-1,
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=limits.get("max_bytes", 50 << 20),
        session_id=session,
        session_epoch=epoch,
        topics=tuple(
            FetchTopic(
                topic=topic,
                partitions=tuple(
                    FetchPartition(
                        partition=number, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                    for number, offset in partitions.items()
                ),
            )
            for topic, partitions in wanted.items()
        ),
        forgotten_topics_data=tuple(
            ForgottenTopic(topic=topic, partitions=partitions)
            for topic, partitions in (forget or {}).items()
        ),
    )


def answered(response: Any) -> set[int]:
    return {part.partition_index for topic in response.responses for part in topic.partitions}


def test_a_session_answers_only_what_has_news(
    bootstrap: str, topics: Topics, wire: WireClient
) -> None:
    topic = topics.create(20)
    first = wire.ask(fetch({topic: dict.fromkeys(range(20), 0)}, epoch=0))
    assert first.session_id > 0
    assert answered(first) == set(range(20))

    quiet = wire.ask(fetch({}, session=first.session_id, epoch=1))
    assert (quiet.error_code, quiet.session_id) == (ErrorCode.none, first.session_id)
    assert answered(quiet) == set()

    confluent_client.produce(bootstrap, topic, numbered_rows(1), partition=7)
    news = wire.ask(fetch({}, session=first.session_id, epoch=2))
    assert answered(news) == {7}
    # It stays news until the client says that it has gone on.
    assert answered(wire.ask(fetch({}, session=first.session_id, epoch=3))) == {7}
    moved = wire.ask(fetch({topic: {7: 1}}, session=first.session_id, epoch=4))
    assert answered(moved) == set()

    confluent_client.produce(bootstrap, topic, numbered_rows(1), partition=7)
    confluent_client.produce(bootstrap, topic, numbered_rows(1), partition=8)
    forgotten = fetch({}, session=first.session_id, epoch=5, forget={topic: (7,)})
    assert answered(wire.ask(forgotten)) == {8}


def test_a_session_waits_for_news_of_any_of_its_partitions(
    bootstrap: str, topics: Topics, wire: WireClient
) -> None:
    topic = topics.create(20)
    first = wire.ask(fetch({topic: dict.fromkeys(range(20), 0)}, epoch=0))
    request = fetch({}, session=first.session_id, epoch=1, max_wait=LONG)
    sent = wire.send_request(request)
    confluent_client.produce(bootstrap, topic, numbered_rows(1), partition=13)
    assert answered(wire.receive_response(type(request), sent)) == {13}


def test_sessions_that_do_not_fit_are_refused(topic: str, wire: WireClient) -> None:
    unknown = wire.ask(fetch({}, session=12345, epoch=1))
    assert unknown.error_code is ErrorCode.fetch_session_id_not_found
    first = wire.ask(fetch({topic: {0: 0}}, epoch=0))
    skipped = wire.ask(fetch({}, session=first.session_id, epoch=9))
    assert skipped.error_code is ErrorCode.invalid_fetch_session_epoch
    # Epoch -1 ends it.
    assert wire.ask(fetch({topic: {0: 0}}, session=first.session_id, epoch=-1)).session_id == 0
    gone = wire.ask(fetch({}, session=first.session_id, epoch=1))
    assert gone.error_code is ErrorCode.fetch_session_id_not_found


def test_many_partitions_of_which_few_are_active(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(100)
    active = (3, 50, 99)
    producer = confluent_client.producer(bootstrap, linger_ms=0)
    with confluent_client.consumer(bootstrap) as client:
        client.assign([TopicPartition(topic, number, 0) for number in range(100)])
        for number in range(30):
            for partition in active:
                producer.produce(topic, b"%d" % number, partition=partition)
            producer.flush(PATIENCE_SECONDS)
            got = confluent_client.poll(client, len(active))
            assert {one.value for one in got} == {b"%d" % number}


def test_no_partition_starves_when_the_answer_is_full(
    bootstrap: str, topics: Topics, wire: WireClient
) -> None:
    """An answer has room for one batch; every partition gets its turn all the same."""
    topic = topics.create(4)
    offsets = dict.fromkeys(range(4), 0)
    for partition in offsets:
        rows = [Row(None, b"x" * 10_000)] * 5
        confluent_client.produce(bootstrap, topic, rows, partition=partition, batch_num_messages=1)
    first = wire.ask(fetch({topic: offsets}, epoch=0, max_bytes=10_000))
    session, epoch, response = first.session_id, 0, first
    deadline = time.monotonic() + PATIENCE_SECONDS
    while set(offsets.values()) != {5}:
        assert time.monotonic() < deadline, offsets
        moved = {}
        for part in response.responses[0].partitions if response.responses else ():
            if part.records:
                offsets[part.partition_index] += 1
                moved[part.partition_index] = offsets[part.partition_index]
        epoch += 1
        wanted = {topic: moved} if moved else {}
        response = wire.ask(fetch(wanted, session=session, epoch=epoch, max_bytes=10_000))
        assert response.error_code is ErrorCode.none


# Topic ids


def test_fetch_by_topic_id(bootstrap: str, topics: Topics, wire: WireClient, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, numbered_rows(5))
    values = {
        "topic_id": topics.id_of(topic),
        "partition_max_bytes": 1 << 20,
        "max_bytes": 1 << 20,
        "max_wait": timedelta(),
    }
    for version in (13, 15, 16, 17):
        answer = wire.ask(full_request(FETCH, version, values))
        (partition,) = answer.responses[0].partitions
        assert partition.error_code is ErrorCode.none
        assert partition.high_watermark == 5


def test_an_id_is_not_the_topic_that_took_its_name(topics: Topics, wire: WireClient) -> None:
    topic = topics.create()
    old_id = topics.id_of(topic)
    topics.delete(topic)
    topics.create_named(topic)
    values = {"topic_id": old_id, "partition_max_bytes": 1000, "max_wait": timedelta()}
    (partition,) = wire.ask(full_request(FETCH, 13, values)).responses[0].partitions
    assert partition.error_code is ErrorCode.unknown_topic_id


def test_metadata_by_topic_id(topics: Topics, wire: WireClient, topic: str) -> None:
    topic_id = topics.id_of(topic)
    answer = wire.ask(full_request(3, 12, {"topic_id": topic_id, "name": None}))
    assert [(found.name, found.topic_id) for found in answer.topics] == [(topic, topic_id)]


def test_confluent_kafka_uses_the_newest_fetch_that_it_knows(bootstrap: str, topic: str) -> None:
    """With ids since version 13; what it sends is seen in its own debug log."""
    confluent_client.produce(bootstrap, topic, numbered_rows(1))
    lines: list[str] = []

    class Log:
        def log(self, _: int, text: str, *parts: object) -> None:
            lines.append(text % parts)

    with confluent_client.consumer(bootstrap, debug="protocol", log_level=7, logger=Log()) as one:
        one.assign([TopicPartition(topic, 0, 0)])
        confluent_client.poll(one, 1)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any("Sent FetchRequest" in line for line in lines):
            assert time.monotonic() < deadline
            one.poll(0.1)
    versions = {line.split("(v")[1].split(",")[0] for line in lines if "Sent FetchRequest" in line}
    assert versions
    assert min(int(version) for version in versions) >= 13


# Going away


def test_pipelined_fetches_are_answered_one_after_the_other(
    bootstrap: str, topic: str, wire: WireClient
) -> None:
    waiting = fetch({topic: {0: 0}}, max_wait=LONG)
    numbers = [
        wire.send_request(waiting),
        *(wire.send_request(fetch({topic: {0: 0}})) for _ in "ab"),
    ]
    confluent_client.produce(bootstrap, topic, numbered_rows(1))
    for number in numbers:
        answer = wire.receive_response(FetchRequest, number)
        assert answer.responses[0].partitions[0].records


def test_a_partition_that_is_named_twice_does_no_harm(
    bootstrap: str, topic: str, wire: WireClient
) -> None:
    batch = bytes(build_batch([(1_700_000_000_000, b"k", b"v", ())]))
    produce = full_request(0, 9, {"name": topic, "acks": -1, "records": batch})
    twice = dataclasses.replace(produce, topic_data=produce.topic_data * 2)
    for topic_data in wire.ask(twice).responses:
        for partition in topic_data.partition_responses:
            assert partition.error_code in (ErrorCode.none, ErrorCode.invalid_request)
    once = fetch({topic: {0: 0}})
    for epoch in (-1, 0):
        doubled = dataclasses.replace(once, topics=once.topics * 2, session_epoch=epoch)
        assert wire.ask(doubled).error_code in (ErrorCode.none, ErrorCode.invalid_request)
    # Whatever was taken is there, once each, and readable.
    end = wire.ask(once).responses[0].partitions[0].high_watermark
    got = confluent_client.consume(bootstrap, topic, end)
    assert [one.offset for one in got] == list(range(end))
