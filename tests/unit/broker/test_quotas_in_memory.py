"""Quotas of a whole broker on virtual time: who exceeds one waits, to the millisecond, and nobody
else does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema

from broker.cluster_stage import Cluster, Machine, play
from broker.handlers.handler_bench import CONNECTION
from moldau.broker.throttling import make_throttle
from moldau.errors import ErrorCode
from moldau.net.port import Channel
from moldau.quotas import QuotaKind
from moldau.records.record_batch import build_batch
from moldau.simulation.manual_clock import wait_until_idle
from moldau.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    FETCH,
    METADATA,
    PRODUCE,
    Api,
)
from moldau.wire.headers import RequestHeader
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit, millis

TOPIC = "clicks"


class Client:
    """One connection, on which requests are answered in order."""

    def __init__(self, cluster: Cluster, channel: Channel, client_id: str) -> None:
        self._cluster = cluster
        self.channel = channel
        self._client_id = client_id

    async def send(self, api: Api, version: int, **values: object) -> int:
        """How many bytes the broker gets."""
        request = fit(load_request_schema(api.key, version), values)
        frame = encode_request(request, 1, self._client_id)
        await self.channel.send([frame])
        return len(frame) - 4

    async def receive(self, api: Api, version: int) -> Any:
        answer = await self._cluster.during(self.channel.receive())
        return parse_response(api.key, version, memoryview(answer))[1]

    async def ask(self, api: Api, version: int, **values: object) -> Any:
        await self.send(api, version, **values)
        return await self.receive(api, version)


async def connect(cluster: Cluster, client_id: str, host: str = "client") -> Client:
    channel = await cluster.during(cluster.network.host(host).connect("b1", 9092, timeout=5))
    return Client(cluster, channel, client_id)


async def limit(
    cluster: Cluster, machine: Machine, entity: Mapping[str, str | None], **limits: float | None
) -> None:
    """None removes a limit."""
    answer = await cluster.ask(
        machine,
        ALTER_CLIENT_QUOTAS.key,
        1,
        entries=[
            {
                "entity": [
                    {"entity_type": kind.replace("_", "-"), "entity_name": name}
                    for kind, name in entity.items()
                ],
                "ops": [
                    {"key": key, "value": float(value or 0), "remove": value is None}
                    for key, value in limits.items()
                ],
            }
        ],
        validate_only=False,
    )
    assert answer.entries[0].error_code == ErrorCode.none, answer.entries[0].error_message


def produced(size_bytes: int, acks: int = 1) -> dict[str, object]:
    batch = build_batch([(1_000, None, bytes(size_bytes), ())])
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 1_000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": bytes(batch)}]}],
    }


def fetched(offset: int, max_bytes: int = 1 << 20) -> dict[str, object]:
    return {
        "cluster_id": None,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": TOPIC,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": max_bytes,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


METADATA_OF_NOTHING = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}


def new_topic(name: str, partitions: int) -> dict[str, object]:
    row = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return {"topics": [row], "timeout": 1_000, "validate_only": False}


def test_a_producer_waits_as_long_as_it_is_told_and_others_do_not() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        await limit(cluster, machine, {"client_id": "slow"}, producer_byte_rate=1000)
        slow, other = await connect(cluster, "slow"), await connect(cluster, "quick")
        size_bytes = await slow.send(PRODUCE, 9, **produced(2000))
        answer = await slow.receive(PRODUCE, 9)
        assert millis(answer.throttle_time) == size_bytes  # a millisecond for each byte
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.none

        began = cluster.clock.monotonic()
        await slow.send(
            METADATA, 9, **METADATA_OF_NOTHING, include_cluster_authorized_operations=False
        )
        await wait_until_idle()
        assert millis((await other.ask(PRODUCE, 9, **produced(2000))).throttle_time) == 0
        assert cluster.clock.monotonic() == began
        await slow.receive(METADATA, 9)
        waited = cluster.clock.monotonic() - began
        assert abs(waited - size_bytes / 1000) < 0.002
        (figures,) = (
            one for one in machine.services.quotas.figures() if one.kind is QuotaKind.PRODUCE
        )
        assert figures == (QuotaKind.PRODUCE, 1, size_bytes, 1)

    play(story)


def test_a_producer_gets_its_rate_over_ten_seconds_however_it_sends() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        await limit(cluster, machine, {"user": "ANONYMOUS"}, producer_byte_rate=100_000)
        clients = [await connect(cluster, f"c{number}") for number in range(3)]
        for acks in (0, 1, -1):
            begin, sent = cluster.clock.monotonic(), 0
            while cluster.clock.monotonic() - begin < 10.0:
                for client in clients:
                    sent += await client.send(PRODUCE, 9, **produced(7_000, acks))
                for client in clients:
                    if acks:
                        await client.receive(PRODUCE, 9)
                    else:  # the next request is not looked at before the time is over
                        answer = await client.ask(
                            METADATA,
                            9,
                            **METADATA_OF_NOTHING,
                            include_cluster_authorized_operations=False,
                        )
                        assert answer.brokers
            elapsed = cluster.clock.monotonic() - begin
            assert 0.95 <= sent / elapsed / 100_000 <= 1.05, acks

    play(story)


def test_a_consumer_gets_its_rate_over_ten_seconds() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        writer = await connect(cluster, "writer")
        for _ in range(300):
            await writer.ask(PRODUCE, 9, **produced(5_000))
        await limit(cluster, machine, {"client_id": None}, consumer_byte_rate=100_000)
        reader = await connect(cluster, "reader")
        begin, read, offset = cluster.clock.monotonic(), 0, 0
        while cluster.clock.monotonic() - begin < 10.0:
            answer = await reader.ask(FETCH, 12, **fetched(offset, max_bytes=30_000))
            for topic in answer.responses:  # none while a fraction of a millisecond is owed
                records = topic.partitions[0].records
                read += len(records)
                offset += len(records) // 5_000
        elapsed = cluster.clock.monotonic() - begin
        assert 0.95 <= read / elapsed / 100_000 <= 1.05

    play(story)


def test_an_answer_carries_ten_seconds_worth_and_the_client_waits_for_it() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        writer = await connect(cluster, "writer")
        for _ in range(30):
            await writer.ask(PRODUCE, 9, **produced(900))
        await limit(cluster, machine, {"client_id": None}, consumer_byte_rate=1_000)
        reader = await connect(cluster, "reader")
        answer = await reader.ask(FETCH, 12, **fetched(0))
        size_bytes = len(answer.responses[0].partitions[0].records)
        assert 9_000 < size_bytes <= 10_000
        assert millis(answer.throttle_time) == size_bytes  # a millisecond for each byte
        began = cluster.clock.monotonic()
        assert (await reader.ask(FETCH, 12, **fetched(10))).responses
        assert abs(cluster.clock.monotonic() - began - size_bytes / 1000) < 0.002

    play(story)


def test_who_owes_reads_nothing_on_another_connection_either() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        writer = await connect(cluster, "writer")
        await writer.ask(PRODUCE, 9, **produced(5_000))
        await limit(cluster, machine, {"client_id": "reader"}, consumer_byte_rate=1_000)
        first, second = await connect(cluster, "reader"), await connect(cluster, "reader")
        answer = await first.ask(FETCH, 12, **fetched(0))
        owed_ms = millis(answer.throttle_time)
        assert owed_ms == len(answer.responses[0].partitions[0].records)
        answer = await second.ask(FETCH, 12, **fetched(0))
        assert not answer.responses
        assert millis(answer.throttle_time) == owed_ms
        began = cluster.clock.monotonic()
        answer = await second.ask(FETCH, 12, **fetched(0))
        assert answer.responses[0].partitions[0].records
        assert abs(cluster.clock.monotonic() - began - owed_ms / 1000) < 0.002

    play(story)


def test_a_session_goes_on_after_an_empty_answer() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        writer = await connect(cluster, "writer")
        await writer.ask(PRODUCE, 9, **produced(100))
        await limit(cluster, machine, {"client_id": "reader"}, consumer_byte_rate=1_000)
        first, second = await connect(cluster, "reader"), await connect(cluster, "reader")
        opened = await first.ask(FETCH, 12, **{**fetched(0), "session_epoch": 0})
        assert opened.session_id
        await writer.ask(PRODUCE, 9, **produced(3_000))
        await cluster.clock.advance(2)
        await second.ask(FETCH, 12, **fetched(1))  # now the two of them owe
        again = {**fetched(1), "session_id": opened.session_id, "session_epoch": 1}
        empty = await first.ask(FETCH, 12, **again)
        assert (empty.session_id, empty.responses) == (opened.session_id, ())
        assert empty.error_code == ErrorCode.none
        last = await first.ask(FETCH, 12, **{**again, "session_epoch": 2, "topics": []})
        assert last.responses[0].partitions[0].records

        third = await connect(cluster, "reader")
        refused = await third.ask(FETCH, 12, **{**fetched(1), "session_epoch": 0})
        assert (refused.session_id, refused.responses) == (0, ())

    play(story)


def test_a_client_that_uses_too_much_of_the_brokers_time_waits() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await limit(cluster, machine, {"client_id": "busy"}, request_percentage=1)
        busy = await connect(cluster, "busy")
        clock = cluster.clock
        read = machine.services.clock.monotonic
        steps = iter(range(1_000_000))
        machine.services.quotas.clock = _Working(clock, lambda: read() + next(steps) * 0.001)
        answer = await busy.ask(
            METADATA, 9, **METADATA_OF_NOTHING, include_cluster_authorized_operations=False
        )
        assert 0 < millis(answer.throttle_time) <= 1000

    play(story)


class _Working:
    """A clock by which every look at it took a millisecond of work."""

    def __init__(self, clock: Any, monotonic: Any) -> None:
        self._clock = clock
        self.monotonic = monotonic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def test_changes_of_topics_are_refused_or_slowed_down() -> None:
    """KIP-599: a burst of 11 windows, then new clients are refused and old ones wait."""

    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await limit(cluster, machine, {"client_id": "admin"}, controller_mutation_rate=2)
        admin = await connect(cluster, "admin")
        answer = await admin.ask(CREATE_TOPICS, 7, **new_topic("a", 26))
        assert answer.topics[0].error_code == ErrorCode.none  # 22 at once, and 4 are owed
        assert millis(answer.throttle_time) == 0
        answer = await admin.ask(CREATE_TOPICS, 7, **new_topic("b", 1))
        assert answer.topics[0].error_code == ErrorCode.throttling_quota_exceeded
        assert millis(answer.throttle_time) == 2000
        assert "b" not in machine.image.topics
        began = cluster.clock.monotonic()
        rows = {"topics": [{"name": "a", "count": 27, "assignments": None}]}
        asked = {"timeout": 1_000, "validate_only": False}
        answer = await admin.ask(CREATE_PARTITIONS, 3, **rows, **asked)
        assert cluster.clock.monotonic() - began >= 1.999
        assert answer.results[0].error_code == ErrorCode.none
        answer = await admin.ask(CREATE_TOPICS, 5, **new_topic("c", 3))
        assert answer.topics[0].error_code == ErrorCode.none  # v5 knows no such error
        assert millis(answer.throttle_time) == 2000
        deleted = {"topics": [{"name": "a", "topic_id": None}], "timeout": 1_000}
        await admin.ask(DELETE_TOPICS, 6, **deleted)
        answer = await admin.ask(
            DELETE_TOPICS, 6, topics=[{"name": "c", "topic_id": None}], timeout=1
        )
        assert answer.responses[0].error_code == ErrorCode.throttling_quota_exceeded
        assert millis(answer.throttle_time) == 13_500
        other = await connect(cluster, "other")
        answer = await other.ask(CREATE_TOPICS, 7, **new_topic("d", 50))
        assert answer.topics[0].error_code == ErrorCode.none

    play(story)


def test_a_rate_of_next_to_nothing_is_told_as_the_longest_time_there_is() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await limit(cluster, machine, {"client_id": "admin"}, controller_mutation_rate=1e-300)
        admin = await connect(cluster, "admin")
        answer = await admin.ask(CREATE_TOPICS, 7, **new_topic("a", 1))
        assert answer.topics[0].error_code == ErrorCode.none
        answer = await admin.ask(CREATE_TOPICS, 7, **new_topic("b", 1))
        assert answer.topics[0].error_code == ErrorCode.throttling_quota_exceeded
        assert millis(answer.throttle_time) == 2**31 - 1

    play(story)


def test_a_topic_that_would_not_be_made_costs_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await limit(cluster, machine, {"client_id": "admin"}, controller_mutation_rate=1)
        admin = await connect(cluster, "admin")
        for _ in range(3):
            answer = await admin.ask(CREATE_TOPICS, 7, **new_topic("bad/name", 100))
            assert answer.topics[0].error_code == ErrorCode.invalid_topic_exception
            only = {**new_topic("a", 100), "validate_only": True}
            answer = await admin.ask(CREATE_TOPICS, 7, **only)
            assert answer.topics[0].error_code == ErrorCode.none
            assert millis(answer.throttle_time) == 0

    play(story)


def test_brokers_copy_without_a_quota() -> None:
    async def story(cluster: Cluster) -> None:
        first, second = await cluster.start(1, 2)
        await cluster.create(first, TOPIC, [1, 2])
        await limit(
            cluster, first, {"client_id": None}, consumer_byte_rate=10, request_percentage=0.001
        )
        await limit(cluster, first, {"user": None}, consumer_byte_rate=10)
        writer = await connect(cluster, "writer")
        for _ in range(20):
            answer = await writer.ask(PRODUCE, 9, **produced(10_000, acks=-1))
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.none
        assert second.state(TOPIC).isr == (1, 2)
        accounts = {one.kind: one.accounts for one in first.services.quotas.figures()}
        assert accounts[QuotaKind.FETCH] == 0
        assert accounts[QuotaKind.REQUEST] == 2  # the writer's, and that of who set the limits

    play(story)


def test_who_calls_itself_a_broker_and_is_none_has_a_quota() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        await limit(cluster, machine, {"client_id": None}, producer_byte_rate=1_000)
        for name in ("broker-7", "broker-", "broker-x"):
            answer = await (await connect(cluster, name)).ask(PRODUCE, 9, **produced(2_000))
            assert millis(answer.throttle_time) > 0

    play(story)


def test_the_name_of_a_broker_frees_from_quotas_on_the_listener_of_brokers_alone() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        header = RequestHeader(METADATA.key, 9, 1, "broker-1-fetcher")
        for listener, is_charged in ((CONNECTION.listener_name, False), ("OUTSIDE", True)):
            client: Any = SimpleNamespace(**{**vars(CONNECTION), "listener_name": listener})
            charge = make_throttle(header, 100, client, machine.services)
            assert (charge is not None) is is_charged, listener

    play(story)


def test_an_address_that_connects_too_often_is_turned_away() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await limit(cluster, machine, {"ip": None}, connection_creation_rate=2)
        asked = {**METADATA_OF_NOTHING, "include_cluster_authorized_operations": False}
        for _ in range(2):
            await (await connect(cluster, "a", host="flood")).ask(METADATA, 9, **asked)
        refused = await connect(cluster, "a", host="flood")
        began = cluster.clock.monotonic()
        try:
            await refused.ask(METADATA, 9, **asked)
        except ConnectionError:
            assert 0.45 <= cluster.clock.monotonic() - began <= 0.6
        else:
            raise AssertionError("it was answered")
        await (await connect(cluster, "a", host="elsewhere")).ask(METADATA, 9, **asked)
        await (await connect(cluster, "a", host="flood")).ask(METADATA, 9, **asked)

    play(story)


def test_every_broker_holds_a_quota_that_another_was_told() -> None:
    async def story(cluster: Cluster) -> None:
        first, second = await cluster.start(1, 2)
        await limit(cluster, second, {"client_id": "slow"}, producer_byte_rate=1_000)
        await wait_until_idle()
        assert first.services.quotas.is_enabled
        described = await cluster.ask(
            first,
            DESCRIBE_CLIENT_QUOTAS.key,
            1,
            components=[{"entity_type": "client-id", "match_type": 0, "match": "slow"}],
            strict=True,
        )
        (entry,) = described.entries
        assert [(one.entity_type, one.entity_name) for one in entry.entity] == [
            ("client-id", "slow")
        ]
        assert [(one.key, one.value) for one in entry.values] == [("producer_byte_rate", 1000.0)]
        removal = {
            "entity": [{"entity_type": "client-id", "entity_name": "slow"}],
            "ops": [{"key": "producer_byte_rate", "value": 0.0, "remove": True}],
        }
        await cluster.ask(first, ALTER_CLIENT_QUOTAS.key, 0, entries=[removal], validate_only=False)
        await wait_until_idle()
        assert not first.services.quotas.is_enabled
        assert not second.services.quotas.is_enabled

    play(story)


# Quotas that change while clients wait for their sake

NOBODY = {**METADATA_OF_NOTHING, "include_cluster_authorized_operations": False}
SECONDS = 60.0
"""How long the clients would wait."""


async def wait_behind(
    cluster: Cluster, machine: Machine, client: Client, name: str, rate: float | None, key: str
) -> float:
    """How long a request of a client that has to wait is not answered after a quota changed."""
    await client.send(METADATA, 9, **NOBODY)
    await wait_until_idle()
    began = cluster.clock.monotonic()
    await limit(cluster, machine, {"client_id": name}, **{key: rate})
    await wait_until_idle()
    assert cluster.clock.monotonic() == began
    assert (await client.receive(METADATA, 9)).brokers
    return cluster.clock.monotonic() - began


CHANGES = [
    pytest.param("slow", None, 0.0, id="removed"),
    pytest.param("slow", 100_000, SECONDS / 100, id="raised"),
    pytest.param("slow", 500, SECONDS, id="lowered, and it waits as long as it was told"),
    pytest.param("other", 100_000, SECONDS, id="another client's"),
]


@pytest.mark.parametrize(("name", "rate", "seconds"), CHANGES)
def test_a_producer_that_waits_follows_a_change_of_its_quota(
    name: str, rate: float | None, seconds: float
) -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        await limit(cluster, machine, {"client_id": "slow"}, producer_byte_rate=1000)
        slow = await connect(cluster, "slow")
        overhead = await slow.send(PRODUCE, 9, **produced(1)) - 1
        await slow.receive(PRODUCE, 9)
        await cluster.clock.advance(1)
        size_bytes = int(SECONDS * 1000) - overhead
        answer = await slow.ask(PRODUCE, 9, **produced(size_bytes))
        assert abs(millis(answer.throttle_time) - SECONDS * 1000) < 1_000
        waited = await wait_behind(cluster, machine, slow, name, rate, "producer_byte_rate")
        assert abs(waited - seconds) <= seconds * 0.02
        last = await slow.ask(PRODUCE, 9, **produced(1_000))
        assert last.responses[0].partition_responses[0].error_code == ErrorCode.none
        if rate is None:
            assert millis(last.throttle_time) == 0

    play(story)


@pytest.mark.parametrize(("name", "rate", "seconds"), CHANGES)
def test_a_consumer_that_waits_follows_a_change_of_its_quota(
    name: str, rate: float | None, seconds: float
) -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        await (await connect(cluster, "writer")).ask(PRODUCE, 9, **produced(60_000))
        await limit(cluster, machine, {"client_id": "slow"}, consumer_byte_rate=1000)
        slow = await connect(cluster, "slow")
        answer = await slow.ask(FETCH, 12, **fetched(0))
        assert abs(millis(answer.throttle_time) - SECONDS * 1000) < 1_000
        waited = await wait_behind(cluster, machine, slow, name, rate, "consumer_byte_rate")
        assert abs(waited - seconds) <= max(0.1, seconds * 0.02)

    play(story)


def test_quotas_that_change_all_the_time_stop_nobody() -> None:
    """Under load: each second another one, from next to nothing to none at all."""

    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, TOPIC, [1])
        clients = [await connect(cluster, "busy") for _ in range(3)]
        answered = [0, 0, 0]

        async def produce(number: int) -> None:
            client = clients[number]
            while True:
                await client.send(PRODUCE, 9, **produced(20_000))
                await client.channel.receive()
                answered[number] += 1
                await cluster.clock.sleep(0.1)

        tasks = [asyncio.create_task(produce(number)) for number in range(3)]
        for rate in (1, 100_000, None, 1, None, 5, 1_000_000):
            await limit(cluster, machine, {"client_id": "busy"}, producer_byte_rate=rate)
            if rate is None or rate >= 100_000:
                before = list(answered)
                await cluster.clock.advance(5)
                assert all(now > then for now, then in zip(answered, before, strict=True)), rate
            else:
                await cluster.clock.advance(1)
        for task in tasks:
            task.cancel()

    play(story)
