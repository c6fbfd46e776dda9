"""Where requests wait for what happens to partitions.

- Fetches of consumers wait for committed records (long poll), those of followers for appended ones.
- Produces with acks=all wait until their batches are committed.
- Deletions of records wait until every replica has done the same.

A shell, owned by the event loop. Where there is one replica, an append tells the room how many
bytes came; otherwise whoever waits looks again when the high watermark moved. A request leaves when
it has enough, when something else happened to one of its partitions, or when its time is over.
Waiting costs an append one look into a dictionary when nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from moldau.clock import Clock
from moldau.model import TopicPartition


class _Waiter:
    """One waiting request. `missing_bytes` > 0 as long as a fetch waits for more."""

    __slots__ = ("end_offsets", "missing_bytes", "woken")

    def __init__(
        self,
        woken: asyncio.Future[None],
        *,
        missing_bytes: int = 0,
        end_offsets: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.woken = woken
        self.missing_bytes = missing_bytes
        self.end_offsets = dict(end_offsets or {})  # of a produce: what is not committed yet

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


_Waiters = dict[TopicPartition, dict[_Waiter, None]]
"""By partition, in the order of their coming; no empty ones."""


class WaitingRoom:
    """Everybody who waits, by partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._consumers: _Waiters = {}
        self._followers: _Waiters = {}
        self._producers: _Waiters = {}
        self._watchers: _Waiters = {}
        self._kinds = (self._consumers, self._followers, self._producers, self._watchers)

    def __len__(self) -> int:
        everybody = (waiters for kind in self._kinds for waiters in kind.values())
        return len({waiter for waiters in everybody for waiter in waiters})

    # What happens

    def on_append(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended and are committed."""
        waiters = self._consumers.get(topic_partition)
        if waiters:
            _count(waiters, size_bytes)

    def on_replicable(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended; followers may have them."""
        waiters = self._followers.get(topic_partition)
        if waiters:
            _count(waiters, size_bytes)

    def on_commit(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """The high watermark moved: consumers may have more, and followers hear of it."""
        for waiter in self._consumers.get(topic_partition, ()):
            waiter.wake()
        for waiter in self._followers.get(topic_partition, ()):
            waiter.wake()
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

    async def wait_for_bytes(
        self,
        topic_partitions: Iterable[TopicPartition],
        missing_bytes: int,
        max_wait_ms: float,
        *,
        uncommitted: bool = False,
    ) -> None:
        """Return when a fetch should look again, or its time is over."""
        kind = self._followers if uncommitted else self._consumers
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(woken, missing_bytes=missing_bytes)
        await self._wait(kind, dict.fromkeys(topic_partitions), waiter, max_wait_ms)

    async def wait_until_committed(
        self, end_offsets: Mapping[TopicPartition, int], max_wait_ms: float
    ) -> None:
        """Return when all is committed up to these offsets, something else happened, or the time
        is over."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(woken, end_offsets=end_offsets)
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


def _count(waiters: Iterable[_Waiter], size_bytes: int) -> None:
    for waiter in waiters:
        waiter.missing_bytes -= size_bytes
        if waiter.missing_bytes <= 0:
            waiter.wake()
