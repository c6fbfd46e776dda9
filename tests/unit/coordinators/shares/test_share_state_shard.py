"""A shard of the share coordinator: what of its log may be deleted, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from moldau.coordinators.shares.coordinator import ShareCoordinatorShard
from moldau.coordinators.shares.rules.records import (
    SharePartitionKey,
    ShareStateRecord,
    ShareStateWrite,
)
from moldau.coordinators.shares.rules.share_states import InitializeState, StateEvent, WriteState
from moldau.simulation.manual_clock import ManualClock

KEY = SharePartitionKey("workers", UUID(int=7), 0)


class MemoryLog:
    """A `ShardLog` whose followers have as much of it as the test says."""

    def __init__(self) -> None:
        self.records: list[ShareStateRecord] = []
        self.committed_offset = 0
        self.is_safe = True

    def watch(self, on_commit: Callable[[], None]) -> None:
        """Nobody waits here for a commit."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[ShareStateRecord], transaction: Any = None) -> None:
        self.records += records

    def append_marker(self, *arguments: Any) -> None:
        raise NotImplementedError

    async def load(self) -> AsyncGenerator[list[ShareStateRecord], None]:
        yield []


async def submit(shard: ShareCoordinatorShard, event: StateEvent) -> None:
    answer = shard.submit(event)
    if isinstance(answer, Awaitable):
        asyncio.ensure_future(answer).cancel()  # it waits for a commit


def test_the_log_is_not_pruned_before_the_snapshot_is_committed() -> None:
    """The snapshot is at the high watermark: the log itself would let the rest be deleted."""

    async def story() -> None:
        log, deleted = MemoryLog(), list[int]()
        shard = ShareCoordinatorShard(
            "__share_group_state-0",
            log,
            clock=ManualClock(),
            commit_timeout_ms=lambda: 1000,
            has_partition=lambda key: True,
            was_deleted=lambda key: False,
            updates_per_snapshot=lambda: 1,
            delete_records=deleted.append,
        )
        await shard.load()
        await submit(shard, InitializeState(KEY, 1, 0))
        await submit(shard, WriteState(KEY, ShareStateWrite(1, 0, 1, 0, ())))
        log.committed_offset = 2
        await submit(shard, WriteState(KEY, ShareStateWrite(1, 0, 2, 0, ())))  # a snapshot
        assert log.end_offset == 3
        shard.prune()
        assert deleted == []
        log.committed_offset = 3
        shard.prune()
        assert deleted == [2]
        shard.close()

    asyncio.run(story())
