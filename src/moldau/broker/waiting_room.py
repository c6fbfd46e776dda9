"""Where fetches wait for records (long poll).

A shell, owned by the event loop. An append tells the room how many bytes came; a fetch leaves when
it has enough, when something else happened to one of its partitions, or when its time is over.
Waiting costs an append one look into a dictionary when nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from moldau.clock import Clock
from moldau.model import TopicPartition


class _Waiter:
    """One waiting fetch. `missing_bytes` > 0 as long as it waits for more."""

    __slots__ = ("missing_bytes", "woken")

    def __init__(self, missing_bytes: int, woken: asyncio.Future[None]) -> None:
        self.missing_bytes = missing_bytes
        self.woken = woken

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class WaitingRoom:
    """The waiting fetches, by partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: dict[TopicPartition, set[_Waiter]] = {}  # no empty sets

    def __len__(self) -> int:
        return len({waiter for waiters in self._waiters.values() for waiter in waiters})

    def on_append(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were committed."""
        waiters = self._waiters.get(topic_partition)
        if waiters:
            for waiter in waiters:
                waiter.missing_bytes -= size_bytes
                if waiter.missing_bytes <= 0:
                    waiter.wake()

    def on_change(self, topic_partition: TopicPartition) -> None:
        """Leadership, existence or the log start changed: every waiter has to look again."""
        for waiter in self._waiters.get(topic_partition, ()):
            waiter.wake()

    def wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()

    async def wait_for_bytes(
        self, topic_partitions: Iterable[TopicPartition], missing_bytes: int, max_wait_ms: int
    ) -> None:
        """Return when enough bytes came to these partitions, or the time is over."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(missing_bytes, woken)
        watched = frozenset(topic_partitions)
        for topic_partition in watched:
            self._waiters.setdefault(topic_partition, set()).add(waiter)
        timer = self._clock.call_later(max_wait_ms / 1000, waiter.wake)
        try:
            await woken
        finally:
            timer.cancel()
            for topic_partition in watched:
                waiters = self._waiters[topic_partition]
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[topic_partition]
