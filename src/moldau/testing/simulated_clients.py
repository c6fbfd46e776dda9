"""The plain clients of a simulated cluster: they read and commit, and tell what they were told.

Each is a shipped client in a simulated process, and one task around it. They never give up: what
failed is tried again, until `is_stopping` is set and nothing is under way. What they learn goes to
a `ClusterHistory`, which knows what must not be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol, TypeVar

from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.errors import ClientError, KafkaError, LogTruncatedError, OffsetOutOfRangeError
from moldau.model import TopicPartition
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.memory_network import MemoryHost
from moldau.testing.virtual_loop import ProcessClock, SimulatedProcess

_POLL_SECONDS: Final = 0.3
_PLENTY_BYTES: Final = 1 << 20

MakeProcess = Callable[[str], tuple[SimulatedProcess, ProcessClock, MemoryHost]]
"""Of a name: a process for a client, its clock and its network."""

AnyReader = TypeVar("AnyReader", bound="SimulatedReader")


class SessionBook(Protocol):
    """Knows when a broker had a session, and how many were in sync."""

    def had_session(self, broker_id: int, since: float, until: float) -> bool: ...

    def had_enough_in_sync(self, partition: TopicPartition, since: float) -> bool:
        """Whether `min.insync.replicas` were in the in-sync set at some time since then."""
        ...


class OffsetBook(Protocol):
    """Knows whether a committed offset is there to stay (`committed_offsets`)."""

    def require(self, group: str, partition: TopicPartition, offset: int, told: str) -> None: ...


class Client:
    """What all clients share: a name, progress, and an end."""

    def __init__(self, name: str, history: ClusterHistory, random: Random) -> None:
        self.name = name
        self.is_stopping = False
        self.is_resting = False  # a producer that rests sends nothing new
        self.progress = 0
        self._history = history
        self._random = random

    async def run(self) -> None:
        """Work until told to stop; who is only called by others has nothing to do."""


class SimulatedReader(Client):
    """Reads one partition from its beginning, up to the high watermark, again and again."""

    def __init__(
        self,
        name: str,
        history: ClusterHistory,
        random: Random,
        *,
        partition: TopicPartition,
        bootstrap: str,
        make_process: MakeProcess,
        max_bytes: int = _PLENTY_BYTES,
        rack: str = "",
    ) -> None:
        super().__init__(name, history, random)
        self.position = 0
        self.values: dict[int, bytes] = {}
        self._partition = partition
        self._bootstrap = bootstrap
        self._make_process = make_process
        self._max_bytes = max_bytes
        self._rack = rack

    async def run(self) -> None:
        await self._read_while(lambda: not self.is_stopping)

    async def read_until(self, end_offset: int) -> None:
        await self._read_while(lambda: self.position < end_offset)

    async def _read_while(self, wants_more: Callable[[], bool]) -> None:
        process, clock, host = self._make_process(self.name)
        task = process.spawn(self._read(self._open(clock, host), wants_more))
        try:
            await asyncio.wait((task,))
            task.result()
        except asyncio.CancelledError:
            process.kill()
            raise

    def _open(self, clock: ProcessClock, host: MemoryHost) -> AsyncConsumer:
        return AsyncConsumer(
            self._bootstrap,
            network=host,
            clock=clock,
            random=Random(self._random.random()),  # noqa: S311 of the seed
            auto_offset_reset="error",
            client_rack=self._rack,
            fetch_max_bytes=self._max_bytes,
            max_partition_fetch_bytes=self._max_bytes,
            fetch_max_wait_ms=300,
            request_timeout_ms=1_500,
            metadata_max_age_ms=3_000,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
            **self._options(),
        )

    def _options(self) -> dict[str, Any]:
        return {}

    async def _read(self, consumer: AsyncConsumer, wants_more: Callable[[], bool]) -> None:
        consumer.assign([self._partition])
        consumer.seek(self._partition, self.position)
        while wants_more():
            try:
                records = await consumer.poll(_POLL_SECONDS)
            except (OffsetOutOfRangeError, LogTruncatedError) as error:
                self._miss(consumer, error)
                continue
            except (KafkaError, ClientError):
                continue
            for record in records:
                self._take(record)
                self.position = record.offset + 1
                self.progress += 1
        await consumer.close()

    def _miss(self, consumer: AsyncConsumer, error: Exception) -> None:
        """What this reader has come to is not there."""
        self._history.report("HW-3", f"{self.name} has come to {self.position}, and hears: {error}")
        consumer.seek(self._partition, self.position)

    def _take(self, record: ConsumerRecord) -> None:
        value = bytes(record.value or b"")
        self._history.see(self._partition, record.offset, value)
        self.values[record.offset] = value


class Committer(Client):
    """Commits offsets of a group that only grow, and looks at them now and then."""

    def __init__(
        self,
        name: str,
        history: ClusterHistory,
        random: Random,
        *,
        group: str,
        partition: TopicPartition,
        offsets: OffsetBook,
        bootstrap: str,
        make_process: MakeProcess,
    ) -> None:
        super().__init__(name, history, random)
        self._group = group
        self._partition = partition
        self._offsets = offsets
        self._next = 1
        _, self._clock, host = make_process(name)
        self._consumer = AsyncConsumer(
            bootstrap,
            group=group,
            commit="manual",
            network=host,
            clock=self._clock,
            random=Random(random.random()),  # noqa: S311 of the seed
            request_timeout_ms=1_500,
            default_api_timeout_ms=5_000,
            metadata_max_age_ms=3_000,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
        )

    async def run(self) -> None:
        while not self.is_stopping:
            await (self._commit() if self._random.random() < 0.7 else self.look())
            await self._clock.sleep(self._random.expovariate(4))

    async def look_at_last(self) -> None:
        """However often it has to ask; then nothing more is asked."""
        while not await self.look():
            await self._clock.sleep(0.1)

    async def _commit(self) -> None:
        offset, self._next = self._next, self._next + 1  # also after an error: it may be there
        self._history.attempt_commit(self._group, offset)
        try:
            await self._consumer.commit({self._partition: offset})
        except (KafkaError, ClientError):
            return
        self._history.acknowledge_commit(self._group, offset)
        self._offsets.require(self._group, self._partition, offset, "committed")
        self.progress += 1

    async def look(self) -> bool:
        at_least = self._history.committed_offset(self._group)
        try:
            found = (await self._consumer.committed(self._partition))[self._partition]
        except (KafkaError, ClientError):
            return False
        offset = -1 if found is None else found.offset
        self._history.see_committed(self._group, offset, at_least)
        self._offsets.require(self._group, self._partition, offset, "shown")
        return True


class OffsetWatcher(Committer):
    """Looks at the offsets of a committer's group all the time, as a tool does that shows lag: it
    sees what is not committed yet, if anybody shows it."""

    async def run(self) -> None:
        while not self.is_stopping:
            if await self.look():
                self.progress += 1
            await self._clock.sleep(self._random.uniform(0.01, 0.3))
