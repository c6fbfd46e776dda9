"""Where requests wait for what happens to partitions: Kafka's purgatory of delayed operations.

- Fetches wait in their session (`fetch_session`) for news of its partitions (long poll): as a
  `DelayedFetch`, or in a task that acquires records for a share group.
- Produces with acks=all wait until their batches are committed.
- Deletions of records wait until every replica has done the same.

A shell, owned by the event loop. A request leaves when it has enough, when something else happened
to one of its partitions, or when its time is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from moldau.broker.fetch_session import FetchSession, FetchWait
from moldau.clock import Clock
from moldau.model import TopicPartition

_LOOKS_PER_TURN = 50
"""Fetches that look again before somebody else may use the loop: each takes some ten
microseconds, and thousands may wait for one record."""


class _Looking(Protocol):
    """A `DelayedFetch` that was woken."""

    def look(self) -> None: ...


class _Waiter:
    """One waiting request. `end_offsets` of a produce: what is not committed yet."""

    __slots__ = ("end_offsets", "woken")

    def __init__(
        self,
        woken: asyncio.Future[None],
        end_offsets: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.woken = woken
        self.end_offsets = dict(end_offsets or {})

    def wake(self) -> None:
        _wake(self.woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


class _AwaitedNews(FetchWait):
    """A task waits."""

    __slots__ = ("woken",)

    def __init__(
        self, woken: asyncio.Future[None], missing_bytes: int, *, hears_commits: bool
    ) -> None:
        super().__init__(missing_bytes, hears_commits=hears_commits)
        self.woken = woken

    def wake(self) -> None:
        _wake(self.woken)


_Waiters = dict[TopicPartition, dict[_Waiter, None]]
"""By partition, in the order of their coming; no empty ones."""


class Purgatory:
    """The delayed requests, by partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.fetches = 0  # that wait
        self._due: deque[_Looking] = deque()  # woken, and looked at in a turn of the loop
        self._producers: _Waiters = {}
        self._watchers: _Waiters = {}
        self._kinds = (self._producers, self._watchers)

    def __len__(self) -> int:
        everybody = (waiters for kind in self._kinds for waiters in kind.values())
        return self.fetches + len({waiter for waiters in everybody for waiter in waiters})

    def sizes(self) -> dict[str, int]:
        """How many requests wait, by what they are."""
        produces, deletions = (
            len({waiter for waiters in kind.values() for waiter in waiters}) for kind in self._kinds
        )
        return {"Fetch": self.fetches, "Produce": produces, "DeleteRecords": deletions}

    # What happens

    def on_commit(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """The high watermark moved."""
        for waiter in self._producers.get(topic_partition, ()):
            if waiter.end_offsets.get(topic_partition, 0) <= high_watermark:
                waiter.end_offsets.pop(topic_partition, None)
                if not waiter.end_offsets:
                    waiter.wake()

    def on_change(self, topic_partition: TopicPartition) -> None:
        """Leadership, existence or the log start changed: every waiter has to look again."""
        for kind in self._kinds:
            for waiter in kind.get(topic_partition, ()):
                waiter.wake()

    # Waiting

    def look_soon(self, fetch: _Looking) -> None:
        """Have a fetch look again in the next turn of the loop, with all who are woken before."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._look)
        self._due.append(fetch)

    def _look(self) -> None:
        due = self._due
        try:
            for _ in range(min(len(due), _LOOKS_PER_TURN)):
                due.popleft().look()
        finally:
            if due:
                asyncio.get_running_loop().call_soon(self._look)

    async def wait_for_news(
        self, session: FetchSession, missing_bytes: int, max_wait_ms: float, *, hears_commits: bool
    ) -> None:
        """Return when a fetch should look again, or its time is over."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait = _AwaitedNews(woken, missing_bytes, hears_commits=hears_commits)
        timer = self._clock.call_later(max_wait_ms / 1000, wait.wake)
        session.waits[wait] = None
        self.fetches += 1
        try:
            await woken
        finally:
            self.fetches -= 1
            del session.waits[wait]
            timer.cancel()

    async def wait_until_committed(
        self, end_offsets: Mapping[TopicPartition, int], max_wait_ms: float
    ) -> None:
        """Return when all is committed up to these offsets, something else happened, or the time
        is over."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(woken, end_offsets)
        await self._wait(self._producers, end_offsets, waiter, max_wait_ms)

    async def wait_for_change(self, topic_partition: TopicPartition, max_wait_ms: float) -> None:
        """Return when something else than records came to a partition, or the time is over."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(woken)
        await self._wait(self._watchers, (topic_partition,), waiter, max_wait_ms)

    async def _wait(
        self,
        kind: _Waiters,
        wanted: Iterable[TopicPartition],
        waiter: _Waiter,
        max_wait_ms: float,
    ) -> None:
        watched = tuple(wanted)
        for topic_partition in watched:
            kind.setdefault(topic_partition, {})[waiter] = None
        timer = self._clock.call_later(max_wait_ms / 1000, waiter.wake)
        try:
            await waiter.woken
        finally:
            timer.cancel()
            for topic_partition in watched:
                waiters = kind[topic_partition]
                waiters.pop(waiter, None)
                if not waiters:
                    del kind[topic_partition]
