"""A whole broker for consumers to talk to, in one process and on a virtual clock.

The broker is the production code, on files in memory. Each consumer has a host of its own, so that
it can be cut off or crash.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import NewTopic
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.producer.producer import AsyncProducer
from moldau.coordination.embedded import MEMORY, EmbeddedStore
from moldau.coordination.port import Coordination
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.testing import ManualClock, MemoryFiles, MemoryNetwork
from moldau.workers import InlineWorkers

T = TypeVar("T")

BOOTSTRAP = "broker:9092"
HOUR_MS = 3_600_000


class ConsumerStage:
    """One broker, and the consumers that a test makes."""

    def __init__(self, *, group_protocol: str = "classic", **config: str) -> None:
        self._group_protocol = group_protocol  # of consumers that do not say
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock)
        self.broker: BrokerServer | None = None
        self._files = MemoryFiles(self.clock)
        self._config = {name.replace("_", "."): value for name, value in config.items()}
        self._store: EmbeddedStore | None = None
        self._consumer_count = 0
        self._admin: AsyncAdmin | None = None

    def play(self, story: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a story on this stage, jumping over every pause."""

        async def whole() -> T:
            await self.start_broker()
            self._admin = AsyncAdmin(
                BOOTSTRAP, network=self.network.host("admin"), clock=self.clock
            )
            try:
                return await self.clock.run_until_done(story())
            finally:
                await self._admin.close()
                await self.stop_broker()
                if self._store is not None:
                    await self._store.close()

        return asyncio.run(whole())

    # The broker

    async def start_broker(self) -> None:
        ports = Ports(
            clock=self.clock,
            files=self._files,
            network=self.network.host("broker"),
            workers=InlineWorkers(),
            open_coordination=self._open_coordination,
        )
        static = {
            "listeners": "PLAINTEXT://broker:9092",
            "log.dirs": "/data",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._config,
        }
        self.broker = BrokerServer(static, ports)
        await self.broker.start()

    async def stop_broker(self) -> None:
        if self.broker is not None:
            await self.broker.stop()
            self.broker = None

    @contextlib.asynccontextmanager
    async def _open_coordination(self, folder: Path) -> AsyncIterator[Coordination]:
        if self._store is None:
            self._store = await EmbeddedStore.open(
                MEMORY, clock=self.clock, workers=InlineWorkers()
            )
        session = self._store.session()
        yield session
        await session.close()

    @property
    def admin(self) -> AsyncAdmin:
        assert self._admin is not None
        return self._admin

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        topic = NewTopic(
            name=name,
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        (made,) = (await self.admin.create_topics([topic])).values()
        assert not isinstance(made, KafkaError), made

    async def produce(
        self, topic: str, values: Iterable[object], *, partition: int = 0, timestamp_ms: int = 0
    ) -> None:
        """All values in one batch; they are written as text."""
        texts = [str(value).encode() for value in values]
        host = self.network.host("producer")
        async with AsyncProducer(BOOTSTRAP, network=host, clock=self.clock) as producer:
            at_ms = timestamp_ms or self.clock.now_ms()
            await (await producer.send_many(topic, texts, partition=partition, timestamp_ms=at_ms))

    # Consumers

    def consumer(self, **options: Any) -> AsyncConsumer:
        """A consumer on a host of its own, called c1, c2, ..."""
        self._consumer_count += 1
        host = self.network.host(f"c{self._consumer_count}")
        options.setdefault("auto_offset_reset", "earliest")
        options.setdefault("group_protocol", self._group_protocol)
        return AsyncConsumer(BOOTSTRAP, network=host, clock=self.clock, **options)

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        found = await self.admin.list_group_offsets(group)
        return {one: at.offset for one, at in found.items() if not isinstance(at, KafkaError)}


async def read(consumer: Any, count: int, *, timeout_seconds: float = 30.0) -> list[ConsumerRecord]:
    """The next so many records, poll by poll."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        some = await consumer.poll(timeout_seconds, max_records=count - len(found))
        assert some, f"only {len(found)} of {count} records came"
        found += some
    return found


def values(records: Iterable[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]
