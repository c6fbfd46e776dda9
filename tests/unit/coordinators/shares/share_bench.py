"""A share partition over a real replica in memory, with a store that tests can hold and break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from moldau.config.option import OffsetReset, ResetTo
from moldau.coordinators.shares.dead_letters import DeadLetterSettings
from moldau.coordinators.shares.rules.in_flight import (
    AcknowledgedRange,
    AcknowledgeType,
    DeadRange,
    Limits,
    Wanted,
)
from moldau.coordinators.shares.rules.records import (
    NO_START_OFFSET,
    SharePartitionKey,
    ShareStateWrite,
    StateBatch,
    StoredShareState,
)
from moldau.coordinators.shares.share_partition import SharePartition, ShareRead, ShareSettings
from moldau.coordinators.shares.share_partitions import SharePartitions
from moldau.errors import FencedLeaderEpochError, FencedStateEpochError, KafkaError
from moldau.replication.partition import Partition
from moldau.simulation.manual_clock import wait_until_idle
from unit.replication.replica_bench import Bench, Replica

GROUP = "workers"


class MemoryStore:
    """A `ShareStateStore`: states in a dictionary, fenced by epochs as the coordinator's are."""

    def __init__(self) -> None:
        self.state_epoch = 3
        self.leader_epoch = -1
        self.start_offset = NO_START_OFFSET
        self.states: dict[int, tuple[int, int]] = {}  # by offset: delivery state and count
        self.writes: list[ShareStateWrite] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.fails_with: Exception | None = None

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> StoredShareState:
        self._fail()
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError("a later leader has read the state")
        self.leader_epoch = leader_epoch
        batches = tuple(
            StateBatch(offset, offset, state, count)
            for offset, (state, count) in sorted(self.states.items())
        )
        return StoredShareState(self.state_epoch, self.start_offset, batches)

    async def write(self, key: SharePartitionKey, change: ShareStateWrite) -> None:
        await self.may_write.wait()
        self._fail()
        if change.leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError("a later leader has read the state")
        if change.state_epoch != self.state_epoch:
            raise FencedStateEpochError("the state was made anew")
        self.writes.append(change)
        if change.start_offset != NO_START_OFFSET:
            self.start_offset = change.start_offset
        for first, last, state, count in change.state_batches:
            self.states |= dict.fromkeys(range(first, last + 1), (state, count))
        self.states = {at: one for at, one in self.states.items() if at >= self.start_offset}

    def _fail(self) -> None:
        if self.fails_with is not None:
            raise self.fails_with


class MemoryLetters:
    """A `DeadLetters`: notes what it is given."""

    def __init__(self) -> None:
        self.dead: list[DeadRange] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.fails_with: KafkaError | None = None

    async def send(
        self,
        group_id: str,
        source: Partition,
        dead: Sequence[DeadRange],
        settings: DeadLetterSettings,
    ) -> None:
        await self.may_send.wait()
        if self.fails_with is not None:
            raise self.fails_with
        self.dead += dead


class ShareBench:
    """One replica that leads, and a share group that reads it."""

    def __init__(self, bench: Bench, replica: Replica) -> None:
        self.replica = replica
        self.bench = bench
        self.store = MemoryStore()
        self.letters = MemoryLetters()
        self.settings = ShareSettings(start=OffsetReset(ResetTo.EARLIEST))
        self.has_members = True
        self.confirmed_settings: ShareSettings | None = None  # by another broker
        self.settings_fail_with: KafkaError | None = None
        self.partitions = SharePartitions(
            store=self.store,
            dead_letters=self.letters,
            clock=bench.clock,
            spawn=self._spawn,
            settings_of=lambda group_id: self.settings,
            refresh_settings=self._refresh_settings,
            has_members=lambda group_id: self.has_members,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _refresh_settings(self, group_id: str) -> None:
        if self.settings_fail_with is not None:
            raise self.settings_fail_with
        self.settings = self.confirmed_settings or self.settings

    def limit(self, **limits: float) -> None:
        self.settings = self.settings._replace(limits=Limits()._replace(**limits))

    @property
    def share(self) -> SharePartition:
        return self.partitions.require(self.replica.partition, GROUP)

    async def load(self) -> SharePartition:
        share = self.share
        await wait_until_idle()
        return share

    async def take(
        self, member: str = "ann", most: int = 500, max_bytes: int = 1 << 20, **wanted: Any
    ) -> ShareRead:
        share = await self.load()
        return share.acquire(member, Wanted(most, 500, **wanted), max_bytes, min_one=True)

    def say(
        self, first: int, last: int, kind: AcknowledgeType, member: str = "ann"
    ) -> Awaitable[None] | None:
        return self.share.acknowledge(member, (AcknowledgedRange(first, last + 1, kind),))

    async def close(self) -> None:
        self.partitions.close()
        self.store.may_write.set()
        self.letters.may_send.set()
        await self.finish_tasks()

    async def finish_tasks(self) -> None:
        """Raises what one of them has failed with."""
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)


def share_story(story: Callable[[ShareBench], Awaitable[None]], **topic_config: str) -> None:
    async def run() -> None:
        bench = Bench(**topic_config)
        (replica,) = await bench.open(1)
        bench.elect(1, 0)
        shares = ShareBench(bench, replica)
        try:
            await story(shares)
        finally:
            await shares.close()
            await bench.close()

    asyncio.run(run())
