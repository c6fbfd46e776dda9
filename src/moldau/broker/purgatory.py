"""Where requests wait for what happens to partitions: Kafka's purgatory of delayed operations.

- Fetches wait in their session (`broker.fetch`) for news of its partitions (long poll): as a
  `DelayedFetch`, or in a task that acquires records for a share group.
- Produces with acks=all wait until their batches are committed.
- Deletions of records wait until every replica has done the same.

A shell, owned by the event loop. A request leaves when it has enough, when something else happened
to one of its partitions, or when its time is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Protocol

from moldau.broker.api import Services
from moldau.broker.fetch import FetchSession, FetchSessions, FetchWait
from moldau.broker.throttling import RequestThrottle
from moldau.clock import Clock, Timer
from moldau.coordinators.groups.coordinator import GroupCoordinator
from moldau.coordinators.shares.coordinator import ShareCoordinator
from moldau.coordinators.shares.share_partitions import Shares
from moldau.coordinators.transactions.coordinator import TransactionCoordinator
from moldau.model import INTERNAL_TOPICS, Offset, TopicPartition
from moldau.net.port import Chunk
from moldau.replication.damage_watch import DamageWatch
from moldau.replication.isr_keeper import IsrKeeper
from moldau.replication.partition import Partition
from moldau.replication.partitions import Partitions
from moldau.replication.replica_fetcher import ReplicaFetchers

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
        self, woken: asyncio.Future[None], end_offsets: Mapping[TopicPartition, int] | None = None
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
        self, kind: _Waiters, wanted: Iterable[TopicPartition], waiter: _Waiter, max_wait_ms: float
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


Look = Callable[[bool], list[Chunk] | int]
"""The answer, or how many bytes are missing for one. Called with True when the time is over, and
then there has to be an answer."""

OnAnswer = Callable[[list[Chunk] | Exception], None]


class DelayedFetch(FetchWait):
    """A fetch that waits for news of its partitions (long poll): Kafka's DelayedFetch.

    A task for each would cost more than all that the fetch does: most consumers wait at the end of
    their log, and every record wakes all that wait for it. So this is an object that hears of what
    happens from the moment in which it is made, and looks again in the next turn of the loop,
    together with all others that the same record has woken. `begin` or `await` it, once; `cancel`
    it when nobody waits for the answer any more.
    """

    __slots__ = (
        "_is_due",
        "_is_late",
        "_is_over",
        "_look",
        "_on_answer",
        "_services",
        "_session",
        "_throttle",
        "_timer",
    )

    def __init__(
        self,
        session: FetchSession,
        look: Look,
        missing_bytes: int,
        max_wait_ms: int,
        services: Services,
        throttle: RequestThrottle | None,
        *,
        hears_commits: bool,
    ) -> None:
        """The session watches its partitions already, and a look has found too little."""
        super().__init__(missing_bytes, hears_commits=hears_commits)
        self._session = session
        self._look = look
        self._services = services
        self._throttle = throttle
        self._on_answer: OnAnswer | None = None
        self._is_due = False  # a look is to come
        self._is_late = False  # the time is over
        self._is_over = False  # it was answered or given up
        session.waits[self] = None
        services.purgatory.fetches += 1
        self._timer: Timer = services.clock.call_later(max_wait_ms / 1000, self._be_late)
        if throttle is not None:
            throttle.pause()

    def begin(self, on_answer: OnAnswer) -> None:
        """Have the answer told, or why there is none; not before the next turn of the loop."""
        self._on_answer = on_answer
        if self._is_due:
            self._services.purgatory.look_soon(self)

    def __await__(self) -> Generator[Any, Any, list[Chunk]]:
        answer: asyncio.Future[list[Chunk]] = asyncio.get_running_loop().create_future()

        def settle(found: list[Chunk] | Exception) -> None:
            if answer.done():
                return
            if isinstance(found, Exception):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        self.begin(settle)
        try:
            return (yield from answer)
        finally:
            self.cancel()

    def wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            if self._on_answer is not None:
                self._services.purgatory.look_soon(self)

    def _be_late(self) -> None:
        self._is_late = True
        self.wake()

    def look(self) -> None:
        """See whether there is an answer now."""
        on_answer = self._on_answer
        if self._is_over or on_answer is None:
            return
        self._is_due = False
        found: list[Chunk] | int | Exception
        throttle = self._throttle
        if throttle is not None:
            throttle.resume()
        try:
            found = self._look(self._is_late)
        except Exception as error:  # noqa: BLE001 who waits for the answer decides what it costs
            found = error
        if throttle is not None:
            throttle.pause()
        if isinstance(found, int):
            self.missing_bytes = found
        else:
            self.cancel()
            on_answer(found)

    def cancel(self) -> None:
        """Wait no longer, and tell nothing."""
        if self._is_over:
            return
        self._is_over = True
        services, session = self._services, self._session
        services.purgatory.fetches -= 1
        del session.waits[self]
        self._timer.cancel()
        if not session.is_kept:
            services.fetch_sessions.unwatch(session.partitions.values())


class PartitionEvents:
    """Passes on what happens to partitions: to fetch sessions, waiting requests, the coordinators,
    and the parts that copy, keep the in-sync sets and look for damage.

    Implements `replication.partition.PartitionObserver`.
    """

    def __init__(self, purgatory: Purgatory, fetch_sessions: FetchSessions) -> None:
        self._purgatory = purgatory
        self._fetch_sessions = fetch_sessions
        self._partitions: Partitions | None = None
        self._coordinators: tuple[
            GroupCoordinator | TransactionCoordinator | ShareCoordinator, ...
        ] = ()
        self._shares: Shares | None = None
        self._isr_keeper: IsrKeeper | None = None
        self._damage_watch: DamageWatch | None = None
        self._fetchers: ReplicaFetchers | None = None
        # Straight: these are on the path of every produce.
        self.on_append = fetch_sessions.on_append
        self.on_replicable = fetch_sessions.on_replicable

    def connect(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        share_coordinator: ShareCoordinator,
        shares: Shares,
        isr_keeper: IsrKeeper,
        damage_watch: DamageWatch,
        fetchers: ReplicaFetchers,
    ) -> None:
        """They know each other through this, and so come into being after it."""
        self._partitions = partitions
        self._coordinators = (groups, transactions, share_coordinator)
        self._shares = shares
        self._isr_keeper = isr_keeper
        self._damage_watch = damage_watch
        self._fetchers = fetchers

    def on_commit(self, topic_partition: TopicPartition, high_watermark: Offset) -> None:
        self._fetch_sessions.on_commit(topic_partition)
        self._purgatory.on_commit(topic_partition, high_watermark)

    def on_change(self, topic_partition: TopicPartition) -> None:
        self._fetch_sessions.on_change(topic_partition)
        self._purgatory.on_change(topic_partition)
        if self._fetchers is not None:
            self._fetchers.look_again(topic_partition)
        if self._partitions is None or self._shares is None:
            return
        found = self._partitions.find(*topic_partition)
        self._shares.partitions.on_partition_changed(topic_partition, found)
        if topic_partition.topic in INTERNAL_TOPICS:
            for coordinator in self._coordinators:
                coordinator.on_partition_changed(topic_partition, found)

    def on_catch_up(self, partition: Partition) -> None:
        if self._isr_keeper is not None:
            self._isr_keeper.on_catch_up(partition)

    def on_suspicion(self, partition: Partition, offset: Offset) -> None:
        if self._damage_watch is not None:
            self._damage_watch.on_suspicion(partition, offset)
