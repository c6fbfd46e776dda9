"""Brokers of one cluster, the production code, on virtual time, around one store in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from kio.index import load_request_schema

from moldau.broker.api import Services
from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState
from moldau.coordination.embedded import MEMORY, EmbeddedSession, EmbeddedStore
from moldau.simulation.manual_clock import ManualClock, SkewedClock, wait_until_idle
from moldau.simulation.memory_files import MemoryFiles
from moldau.simulation.memory_network import MemoryNetwork
from moldau.storage.rules.file_names import CLEAN_SHUTDOWN_FILE
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.workers import InlineWorkers

DATA = Path("/data")
STEP_SECONDS = 0.05
PATIENCE_STEPS = 1200
PATIENCE_SECONDS = 60.0


class Machine:
    """What a broker runs on; it outlives the broker."""

    def __init__(self, cluster: Cluster, broker_id: int, skew_ms: int = 0) -> None:
        self.id = broker_id
        self.files = MemoryFiles(cluster.clock)
        self.boot_id = "first"
        self._clock = SkewedClock(cluster.clock, skew_ms) if skew_ms else cluster.clock
        self.broker: BrokerServer | None = None
        self.session: EmbeddedSession | None = None
        self._cluster = cluster
        self._is_killed = False
        self._starts = 0

    @contextlib.asynccontextmanager
    async def _coordination(self, folder: Path) -> AsyncIterator[EmbeddedSession]:
        self.session = self._cluster.store.session()
        yield self.session
        if not self._is_killed:
            await self.session.close()

    async def start(self, **config: str) -> BrokerServer:
        await self._cluster.during(self.come_up(**config))
        assert self.broker is not None
        return self.broker

    async def come_up(self, **config: str) -> None:
        """The same, while somebody else lets time pass."""
        cluster = self._cluster
        self._starts += 1
        ports = Ports(
            clock=self._clock,
            files=self.files,
            network=cluster.network.host(f"b{self.id}"),
            workers=InlineWorkers(),
            open_coordination=self._coordination,
            random=Random(f"{self.id}/{self._starts}"),
            boot_id=lambda: self.boot_id,
        )
        static = {
            "broker.id": str(self.id),
            "listeners": f"PLAINTEXT://b{self.id}:9092",
            "log.dirs": str(DATA),
            **cluster.config,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
        broker = BrokerServer(static, ports)
        await broker.start()
        self.broker, self._is_killed = broker, False

    async def stop(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await self._cluster.clock.run_until_done(broker.stop())

    async def kill(self) -> None:
        """The process ends without a word: its session lasts on, nothing is marked as clean."""
        if self.broker is None:
            return
        self._is_killed = True
        self.broker._lifecycle = None  # nothing is handed over
        await self.stop()
        self.files.remove(DATA / CLEAN_SHUTDOWN_FILE)

    def reboot(self, boot_id: str) -> None:
        """The machine was started again after a kill: that takes longer than a session lasts."""
        assert self.session is not None
        self.session.expire()
        self.boot_id = boot_id

    @property
    def services(self) -> Services:
        assert self.broker is not None
        return self.broker.services

    @property
    def image(self) -> MetadataImage:
        return self.services.image

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        found = self.image.find_partition(topic, partition)
        assert found is not None
        return found

    def led(self, topic: str, partition: int = 0) -> tuple[int, tuple[int, ...], int]:
        state = self.state(topic, partition)
        return state.leader, state.isr, state.leader_epoch


class Cluster:
    """The machines, and what is between them."""

    def __init__(self, store: EmbeddedStore, clock: ManualClock, **config: str) -> None:
        self.store = store
        self.clock = clock
        self.network = MemoryNetwork(clock)
        self.config = {name.replace("_", "."): value for name, value in config.items()}
        self.machines: dict[int, Machine] = {}
        self.skews_ms: dict[int, int] = {}  # of the machines' clocks, against the store's

    async def start(self, *broker_ids: int) -> list[Machine]:
        for broker_id in broker_ids:
            skew_ms = self.skews_ms.get(broker_id, 0)
            machine = self.machines[broker_id] = Machine(self, broker_id, skew_ms)
            await machine.start()
        await wait_until_idle()
        return [self.machines[broker_id] for broker_id in broker_ids]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        for _ in range(PATIENCE_STEPS):
            await wait_until_idle()
            if condition():
                return
            await self.clock.advance(STEP_SECONDS)
        raise AssertionError("it did not happen")

    async def during(self, work: Awaitable[Any]) -> Any:
        """Let time pass while something is done."""
        return await self.clock.run_until_done(work)

    async def ask(self, machine: Machine, key: int, version: int, **values: object) -> Any:
        """What a client gets that asks this broker."""
        return await self.during(self.exchange(machine, key, version, **values))

    async def exchange(self, machine: Machine, key: int, version: int, **values: object) -> Any:
        """The same, while somebody else lets time pass."""
        request = fit(load_request_schema(key, version), values)
        channel = await self.network.host("client").connect(f"b{machine.id}", 9092, timeout=5)
        try:
            await channel.send([encode_request(request, 1, "test")])
            return parse_response(key, version, memoryview(await channel.receive()))[1]
        finally:
            await channel.close()

    async def create(self, machine: Machine, topic: str, *replicas: list[int]) -> Any:
        assignments = [
            {"partition_index": number, "broker_ids": tuple(brokers)}
            for number, brokers in enumerate(replicas)
        ]
        row = {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            "configs": [],
        }
        answer = await self.ask(machine, 19, 7, topics=[row], timeout=1000, validate_only=False)
        await wait_until_idle()
        return answer.topics[0].error_code


def play(story: Callable[[Cluster], Coroutine[Any, Any, None]], **config: str) -> None:
    """Run a story with a cluster of its own."""

    async def run() -> None:
        clock = ManualClock()
        store = await EmbeddedStore.open(MEMORY, clock=clock, workers=InlineWorkers())
        cluster = Cluster(store, clock, **config)
        try:
            await asyncio.wait_for(story(cluster), PATIENCE_SECONDS)
        finally:
            for machine in cluster.machines.values():
                await machine.stop()
            await store.close()

    asyncio.run(run())
