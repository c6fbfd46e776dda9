"""A producer with acks=0 sends and goes: what it sent is appended, in order (NET-4).

Compressed and large batches are looked at by a worker, and the connection is gone before the worker
has finished. On real sockets with threads, and in memory with a worker that waits for the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar
from unittest.mock import patch

import pytest
from kio.index import load_request_schema

import moldau
import moldau.testing
from moldau.broker.handlers import load_handler
from moldau.broker.server import BrokerServer
from moldau.client.admin.values import NewTopic
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.cluster.znodes import registered_broker_path
from moldau.model import BrokerId
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from moldau.simulation.manual_clock import wait_until_idle
from moldau.wire.apis import SERVED
from moldau.wire.messages import encode_request
from moldau.wire.shape import fit
from moldau.workers import InlineWorkers
from support.memory_stores import open_memory_store
from support.waiting import PATIENCE_SECONDS, eventually
from support.wire_client import WireClient

from .test_broker_in_memory import World

T = TypeVar("T")

BATCHES = 40
RECORDS = 125
PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 19, 20
ALTER_REPLICA_LOG_DIRS = 34
UNREGISTER_BROKER = 64


def produce_frame(number: int, acks: int = 0) -> bytes:
    """Every second batch is work for a worker: more than 64 KB under zstd."""
    size = 1_000 if number % 2 else 10
    noise = Random(number)
    rows = [(1_700_000_000_000, None, noise.randbytes(size), ()) for _ in range(RECORDS)]
    batch = build_batch(rows, codec=Codec.ZSTD if number % 2 else Codec.NONE)
    data = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(batch)}]}]
    return request(PRODUCE, 8, transactional_id=None, acks=acks, timeout=60_000, topic_data=data)


def request(key: int, version: int, **values: object) -> bytes:
    return bytes(encode_request(fit(load_request_schema(key, version), values), 1, "test"))


def first_values(numbers: range) -> list[bytes]:
    """The first value of each of those batches."""
    return [Random(number).randbytes(1_000 if number % 2 else 10) for number in numbers]


# Real sockets and threads


def test_who_changes_something_and_goes_is_in_the_audit_log(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    names = [f"t{number}" for number in range(20)]
    with moldau.testing.broker({"audit.log.path": str(audit)}) as broker:
        with moldau.Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name=name, partitions=1) for name in names])
        port = int(broker.bootstrap.rsplit(":", 1)[1])
        for name in names:
            with socket.create_connection(("127.0.0.1", port)) as sender:
                sender.sendall(request(DELETE_TOPICS, 4, topic_names=(name,), timeout=60_000))

        def deleted() -> list[str]:
            lines = audit.read_text().splitlines()
            return sorted(line for line in lines if '"DeleteTopics"' in line)

        eventually(lambda: len(deleted()) == len(names), lambda: f"{len(deleted())} are told", 20)
        assert all('"changed"' in line for line in deleted())


def test_what_was_sent_with_acks_0_before_closing_is_appended_on_real_sockets() -> None:
    with moldau.testing.broker({"num.partitions": "1"}) as broker:
        port = int(broker.bootstrap.rsplit(":", 1)[1])
        with WireClient(port) as client:
            topic = {
                "name": "t",
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            values = {"topics": [topic], "timeout": 60_000, "validate_only": False}
            client.ask(fit(load_request_schema(CREATE_TOPICS, 5), values))
        with socket.create_connection(("127.0.0.1", port)) as sender:
            sender.sendall(b"".join(produce_frame(number) for number in range(BATCHES)))
        with WireClient(port) as client:
            eventually(
                lambda: end_offset(client) == BATCHES * RECORDS,
                lambda: f"{end_offset(client)} of {BATCHES * RECORDS} records arrived",
                20,
            )


def end_offset(client: WireClient) -> int:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t", "partitions": [wanted]}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    answer = client.ask(fit(load_request_schema(LIST_OFFSETS, 5), values))
    offset: int = answer.topics[0].partitions[0].offset
    return offset


# In memory


class PatientWorkers(InlineWorkers):
    """Begins its work when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_work = asyncio.Event()
        self.may_work.set()

    async def run(self, work: Callable[[], T]) -> T:
        await self.may_work.wait()
        return await super().run(work)


class PatientWorld(World):
    def make_workers(self) -> PatientWorkers:
        self.workers = PatientWorkers()
        return self.workers


def tell(story: Callable[[PatientWorld, BrokerServer], object]) -> None:
    async def run() -> None:
        world = PatientWorld()
        broker = await world.start()
        await world.create("t")
        await story(world, broker)  # type: ignore[misc]
        await broker.stop()

    asyncio.run(run())


def test_batches_with_a_worker_are_appended_in_order_after_the_client_has_gone() -> None:
    async def story(world: PatientWorld, broker: BrokerServer) -> None:
        assert await world.offsets("t") == (0, 0)  # a worker loads its handler, the first time
        world.workers.may_work.clear()
        channel = await world.network.host("client").connect("broker", 9092, timeout=5)
        await channel.send([produce_frame(1), produce_frame(2), produce_frame(3)])
        await channel.close()
        await wait_until_idle()
        assert await world.offsets("t") == (0, 0)
        world.workers.may_work.set()
        await wait_until_idle()
        values = await world.values("t")
        assert values[::RECORDS] == first_values(range(1, 4))

    tell(story)


def test_a_wait_for_records_ends_with_its_client_and_what_it_sent_behind_is_appended() -> None:
    async def story(world: PatientWorld, broker: BrokerServer) -> None:
        wanted = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        fetch = request(
            FETCH,
            11,
            replica_id=-1,
            max_wait=600_000,
            min_bytes=1 << 20,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": "t", "partitions": [wanted]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        channel = await world.network.host("client").connect("broker", 9092, timeout=5)
        await channel.send([fetch, produce_frame(1), produce_frame(2)])
        await wait_until_idle()
        assert await world.offsets("t") == (0, 0)
        await channel.close()
        await wait_until_idle()
        assert await world.offsets("t") == (0, 2 * RECORDS)

    tell(story)


def test_a_broker_that_stops_appends_what_is_with_a_worker() -> None:
    async def story() -> None:
        world = PatientWorld()
        broker = await world.start()
        await world.create("t")
        world.workers.may_work.clear()
        channel = await world.network.host("client").connect("broker", 9092, timeout=5)
        await channel.send([produce_frame(1)])
        await wait_until_idle()
        stopping = asyncio.ensure_future(broker.stop())
        await wait_until_idle()
        world.workers.may_work.set()
        await stopping
        again = await world.start()
        assert await world.offsets("t") == (0, RECORDS)
        await again.stop()

    asyncio.run(story())


class PatientStoreWorld(World):
    """Its store writes when the test says so."""

    def __init__(self, **config: str) -> None:
        super().__init__(**config)
        self.store_workers = PatientWorkers()

    @contextlib.asynccontextmanager
    async def coordination(self, folder: Path):  # type: ignore[no-untyped-def]
        if self.store is None:
            self.store = await open_memory_store(self.clock, self.store_workers)
        session = self.store.session()
        yield session
        await session.close()


def test_topics_named_by_metadata_are_created_and_audited_after_the_client_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        world = PatientStoreWorld(auto_create_topics_enable="true")
        broker = await world.start()
        await world.ask(METADATA, 4, topics=None, allow_auto_topic_creation=False)
        channel = await world.network.host("client").connect("broker", 9092, timeout=5)
        topics = [{"name": "one"}, {"name": "two"}]
        world.store_workers.may_work.clear()
        await channel.send([request(METADATA, 4, topics=topics, allow_auto_topic_creation=True)])
        await wait_until_idle()
        await channel.close()
        await wait_until_idle()
        world.store_workers.may_work.set()
        await wait_until_idle()
        assert set(broker.services.image.topics) == {"one", "two"}
        await broker.stop()

    with caplog.at_level(logging.INFO, "moldau.audit"):
        asyncio.run(story())
    told = [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]
    assert [line.rsplit(" ", 1)[1] for line in told] == ["Topic:one", "Topic:two"]


def test_a_broker_that_stops_does_not_wait_for_topics_that_are_named_by_metadata() -> None:
    """Each of many may take seconds while no controller answers."""

    async def story() -> None:
        world = World(auto_create_topics_enable="true")
        broker = await world.start()
        begun: list[str] = []

        async def create_topic(spec: TopicSpec) -> None:
            begun.append(spec.name)
            await asyncio.Event().wait()

        with patch.object(broker.services.topic_maker, "create_topic", create_topic):
            channel = await world.network.host("client").connect("broker", 9092, timeout=5)
            topics = [{"name": "one"}, {"name": "two"}]
            await channel.send(
                [request(METADATA, 4, topics=topics, allow_auto_topic_creation=True)]
            )
            await wait_until_idle()
            assert begun == ["one"]
            await asyncio.wait_for(broker.stop(), PATIENCE_SECONDS)

    asyncio.run(story())


def test_a_replica_is_moved_to_another_directory_after_the_client_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        world = PatientWorld(log_dirs="/data,/more")
        broker = await world.start()
        await world.create("t")
        log = broker.services.partitions.require_leader("t", 0).log
        target = "/more" if str(log.directory.folder) == "/data" else "/data"
        rows = [{"path": target, "topics": [{"name": "t", "partitions": (0,)}]}]
        await world.ask(ALTER_REPLICA_LOG_DIRS, 2, dirs=[])
        world.workers.may_work.clear()
        channel = await world.network.host("client").connect("broker", 9092, timeout=5)
        await channel.send([request(ALTER_REPLICA_LOG_DIRS, 2, dirs=rows)])
        await wait_until_idle()
        await channel.close()
        await wait_until_idle()
        world.workers.may_work.set()
        for _ in range(20):
            await world.clock.advance(1.0)
        assert str(log.directory.folder) == target
        await broker.stop()

    with caplog.at_level(logging.INFO, "moldau.audit"):
        asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]
    assert [line for line in told if "AlterReplicaLogDirs t-0" in line]


def test_a_broker_is_unregistered_and_audited_after_the_client_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        world = PatientStoreWorld()
        broker = await world.start()
        assert world.store is not None
        path = registered_broker_path(BrokerId(9))  # that is away
        session = world.store.session()
        await session.create(path, b"{}")
        await world.ask(UNREGISTER_BROKER, 0, broker_id=8)
        world.store_workers.may_work.clear()
        channel = await world.network.host("client").connect("broker", 9092, timeout=5)
        await channel.send([request(UNREGISTER_BROKER, 0, broker_id=9)])
        await wait_until_idle()
        await channel.close()
        await wait_until_idle()
        world.store_workers.may_work.set()
        await wait_until_idle()
        assert await session.get(path) is None
        await session.close()
        await broker.stop()

    with caplog.at_level(logging.INFO, "moldau.audit"):
        asyncio.run(story())
    told = [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]
    assert [line.rsplit(" ", 1)[1] for line in told if "Broker:9" in line] == ["Broker:9"]


FINISHED_OTHERWISE = {
    "delete_records": "the leader has done it, and audited it, before the handler awaits anything",
    "metadata": "the handler finishes the creation of topics itself",
    "streams_group_heartbeat": "internal topics are created by a task of the broker",
}


def test_every_api_that_is_audited_is_finished_when_the_client_has_gone() -> None:
    loaded = [load_handler(api) for api in SERVED]
    cancelled = [one for one in loaded if not one.API.changes_cluster]
    audited = {one.API.name for one in cancelled if hasattr(one, "audit_change")}
    assert audited == FINISHED_OTHERWISE.keys()
