"""How partitions come into the program's hands, and out of them again.

The `MembershipOwner` of a consumer. Partitions leave in a handover: it waits until all readers
rest, so that the program has dealt with everything it was given; then offsets are committed and the
program is told. Partitions come the other way: the program is told, then they are fetched. What
it was never told of leaves without a word.

A shell of one loop. One handover at a time; the membership asks for it, or its heartbeats do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from moldau.client.consumer_commits import Commits
from moldau.client.consumer_readers import Reader, Readers
from moldau.client.consumer_topics import ConsumerTopics
from moldau.client.fetcher import Fetcher
from moldau.client.rules.offset_positions import PartitionTable
from moldau.client.user_calls import Listener, Partitions, UserCalls
from moldau.clock import Clock
from moldau.errors import ClientError, KafkaError
from moldau.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """What the program wants to hear of rebalances."""

    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None


class _Handover:
    """Partitions on their way out."""

    def __init__(self, partitions: Partitions, *, is_lost: bool) -> None:
        self.partitions = partitions
        self.is_lost = is_lost  # others have them already: nothing is committed
        self.at_rest = asyncio.Event()
        self.done = asyncio.Event()


class PartitionOwner:
    """The partitions of one consumer."""

    def __init__(
        self,
        table: PartitionTable,
        readers: Readers,
        fetcher: Fetcher,
        topics: ConsumerTopics,
        calls: UserCalls,
        listeners: Listeners,
        clock: Clock,
        *,
        announce: Callable[[], None],
        on_coming: Callable[[], None],
        on_failure: Callable[[KafkaError | ClientError], None],
    ) -> None:
        self.commits: Commits | None = None  # there are none without a group
        self._table = table
        self._readers = readers
        self._fetcher = fetcher
        self._topics = topics
        self._calls = calls
        self._listeners = listeners
        self._clock = clock
        self._announce = announce
        self._on_coming = on_coming
        self._on_failure = on_failure
        self._handover: _Handover | None = None
        self._coming: Partitions = frozenset()  # the program is being told of them
        self._is_leaving = False

    @property
    def is_handing_over(self) -> bool:
        return self._handover is not None

    def welcome(self, reader: Reader) -> None:
        """A reader has come to rest, and all that it gave was dealt with.

        Of what leaves it gives nothing more, be there others that still work on theirs.
        """
        if self._handover is not None:
            reader.delivery.drop(self._handover.partitions)
            self._look_at_readers()

    def _look_at_readers(self) -> None:
        if self._handover is not None and self._readers.all_rest:
            self._handover.at_rest.set()

    def adopt(self, partitions: Collection[TopicPartition], *, held: bool = False) -> None:
        """These are the program's now; while they are held nothing of them is fetched."""
        self._table.add(partitions, held=held)
        self._readers.route(partitions)

    def release(self, partitions: Partitions) -> None:
        """These are not the program's any more."""
        self._table.remove(partitions)
        self._readers.drop(partitions)
        self._fetcher.forget(partitions)
        if self.commits is not None:
            self.commits.forget(partitions)

    def set_aside(self, partitions: Iterable[TopicPartition]) -> None:
        """Nobody wants these any more; they leave with the next rebalance."""
        unwanted = frozenset(partitions)
        self._hold(unwanted, is_held=True)
        self._fetcher.forget(unwanted)
        self._readers.drop_chunks(unwanted)

    # For the membership

    def subscribed_topics(self) -> frozenset[str]:
        return self._topics.names

    def owned_partitions(self) -> frozenset[TopicPartition]:
        return self._table.partitions

    def idle_seconds(self) -> float:
        return self._readers.idle_seconds(self._clock.monotonic())

    async def give_up(self, partitions: Collection[TopicPartition]) -> None:
        while self._handover is not None:
            await self._handover.done.wait()
        leaving = frozenset(partitions) & self._table.partitions
        if leaving:
            await self._hand_over(_Handover(leaving, is_lost=False))

    async def lose(self) -> None:
        self._call_off_what_comes()
        while self._handover is not None:
            self._handover.is_lost = True
            await self._handover.done.wait()
        if len(self._table):
            await self._hand_over(_Handover(self._table.partitions, is_lost=True))

    async def take_over(self, partitions: Collection[TopicPartition]) -> None:
        if self._is_leaving:
            return
        coming = frozenset(partitions) - self._table.partitions
        self.adopt(coming, held=True)
        self._coming = coming
        await self._calls.call(self._listeners.on_assigned, coming)
        self._coming = frozenset()
        self._hold(coming, is_held=False)
        self._on_coming()

    def _call_off_what_comes(self) -> None:
        """Partitions that the program has not heard of yet are gone again, or about to.

        It is not told that it has them, and so not that it has them no more either.
        """
        if self._calls.withdraw(self._listeners.on_assigned, self._coming):
            self.release(self._coming)

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """The program is here, is done with everything, and wants no more."""
        self._is_leaving = True
        self._call_off_what_comes()
        for reader in self._readers:
            self.welcome(reader)
        try:
            yield
        finally:
            self._is_leaving = False

    async def count_partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        return await self._topics.count_partitions(topics)

    def fail(self, error: KafkaError | ClientError) -> None:
        self._on_failure(error)

    # Handovers

    async def _hand_over(self, handover: _Handover) -> None:
        self._handover = handover
        self._hold(handover.partitions, is_held=True)
        self._fetcher.forget(handover.partitions)
        for reader in self._readers:
            if reader.is_resting:
                reader.delivery.drop(handover.partitions)
        self._announce()
        try:
            self._look_at_readers()
            await handover.at_rest.wait()
            await self._let_go(handover)
        finally:
            self._handover = None
            handover.done.set()
            self._announce()

    async def _let_go(self, handover: _Handover) -> None:
        leaving = handover.partitions
        settled = self._table.settled_positions
        if self.commits is not None and self.commits.is_automatic and not handover.is_lost:
            await self.commits.try_commit({p: at for p, at in settled.items() if p in leaving})
        listener = self._listeners.on_revoked
        if handover.is_lost and self._listeners.on_lost is not None:
            listener = self._listeners.on_lost
        await self._calls.call(listener, leaving)
        self.release(leaving)

    def _hold(self, partitions: Partitions, *, is_held: bool) -> None:
        for partition in partitions:
            state = self._table.find(partition)
            if state is not None:
                state.is_held = is_held
