"""A whole broker in memory on a virtual clock, and clients that speak to its groups in bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from kio.index import load_request_schema

from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.coordination.embedded import EmbeddedStore
from moldau.coordination.port import Coordination
from moldau.net.port import Channel
from moldau.simulation.manual_clock import SkewedClock
from moldau.testing import ManualClock, MemoryFiles, MemoryNetwork
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.workers import InlineWorkers
from support.memory_stores import open_memory_store

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT = 8, 9, 10, 11, 12
LEAVE, SYNC, DESCRIBE_GROUPS, LIST_GROUPS = 13, 14, 15, 16
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DELETE_GROUPS, OFFSET_DELETE = 19, 20, 37, 42, 47
ALTER_CONFIGS = 33


class Client:
    """One connection."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._numbers = 0

    async def send(self, api_key: int, version: int, /, **values: object) -> None:
        self._numbers += 1
        request = fit(load_request_schema(api_key, version), values)
        await self.channel.send([encode_request(request, self._numbers, "client")])

    async def receive(self, api_key: int, version: int) -> Any:
        return parse_response(api_key, version, memoryview(await self.channel.receive()))[1]

    async def ask(self, api_key: int, version: int, /, **values: object) -> Any:
        await self.send(api_key, version, **values)
        return await self.receive(api_key, version)

    async def send_join(self, group: str = "g", member_id: str = "", version: int = 3) -> None:
        await self.send(
            JOIN,
            version,
            group_id=group,
            session_timeout=10_000,
            rebalance_timeout=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )

    async def join(self, group: str = "g", member_id: str = "") -> Any:
        await self.send_join(group, member_id)
        return await self.receive(JOIN, 3)

    async def work(self, group: str = "g") -> str:
        """Be the only member, at work; the member id."""
        joined = await self.join(group)
        member_id: str = joined.member_id
        synced = await self.ask(
            SYNC,
            1,
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member_id,
            assignments=[{"member_id": member_id, "assignment": b"all"}],
        )
        assert synced.assignment == b"all"
        return member_id

    async def beat(self, member_id: str, generation: int = 1, group: str = "g") -> Any:
        answer = await self.ask(
            HEARTBEAT, 1, group_id=group, generation_id=generation, member_id=member_id
        )
        return answer.error_code

    async def commit(
        self, topic: str, offset: int, group: str = "g", member_id: str = "", generation: int = -1
    ) -> Any:
        answer = await self.ask(
            OFFSET_COMMIT,
            7,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=None,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_leader_epoch": 3,
                            "committed_metadata": "noted",
                        }
                    ],
                }
            ],
        )
        return answer.topics[0].partitions[0].error_code

    async def fetch(self, group: str = "g") -> dict[str, int]:
        """All positions of a group, by topic."""
        answer = await self.ask(OFFSET_FETCH, 5, group_id=group, topics=None)
        return {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}


class World:
    """The machine of one broker; it outlives the broker."""

    def __init__(self, **config: str) -> None:
        self.clock = ManualClock()
        self.broker_clock = SkewedClock(self.clock, 0)
        self.files = MemoryFiles(self.clock)
        self.network = MemoryNetwork(self.clock)
        self.config = {name.replace("_", "."): value for name, value in config.items()}
        self.store: EmbeddedStore | None = None

    @contextlib.asynccontextmanager
    async def coordination(self, folder: Path) -> AsyncIterator[Coordination]:
        if self.store is None:
            self.store = await open_memory_store(self.clock)
        session = self.store.session()
        yield session
        await session.close()

    async def start(self) -> BrokerServer:
        ports = Ports(
            clock=self.broker_clock,
            files=self.files,
            network=self.network.host("broker"),
            workers=InlineWorkers(),
            open_coordination=self.coordination,
        )
        hour_ms = str(3_600_000)
        static = {
            "listeners": "PLAINTEXT://broker:9092",
            "log.dirs": "/data",
            "offsets.topic.num.partitions": "4",
            "log.flush.offset.checkpoint.interval.ms": hour_ms,
            "log.flush.start.offset.checkpoint.interval.ms": hour_ms,
            "replica.high.watermark.checkpoint.interval.ms": hour_ms,
            "log.retention.check.interval.ms": hour_ms,
            "log.cleaner.backoff.ms": hour_ms,
            **self.config,
        }
        broker = BrokerServer(static, ports)
        await broker.start()
        return broker

    async def connect(self) -> Client:
        return Client(await self.network.host("client").connect("broker", 9092, timeout=5))

    async def crash(self, broker: BrokerServer) -> None:
        """The process ends here and now; what it would still do cannot reach the files."""
        self.files.crash_process()
        self.network.crash("broker")
        with contextlib.suppress(Exception):
            await broker.stop()

    async def create(self, client: Client, topic: str, partitions: int = 1) -> None:
        row = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        await client.ask(CREATE_TOPICS, 5, topics=[row], timeout=1000, validate_only=False)


def run(story: Callable[[World], Awaitable[None]], **config: str) -> None:
    async def tell() -> None:
        await story(World(**config))

    asyncio.run(tell())
