"""The shards of one coordinator: they follow the leadership of the partitions of its topic.

A shard is made and loaded when this broker leads its partition, and all that it found in the log is
committed; it is closed and thrown away when somebody else leads. A shell, owned by the event loop.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from moldau.clock import Clock
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.shard import CoordinatorShard
from moldau.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    NotCoordinatorError,
)
from moldau.model import BrokerId, LeaderEpoch, TopicPartition
from moldau.replication.partition import Partition

_log = logging.getLogger("moldau.coordinators")

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_MAKING_PAUSE_SECONDS = 5.0


S = TypeVar("S", bound=CoordinatorShard[Any, Any, Any])


class ShardDuties(Protocol):
    """Runs what must not fail unseen (`broker.background_tasks`)."""

    def keep(self, name: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> object:
        """Begin it, and again when it fails."""
        ...

    def require(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        """The broker ends when it fails."""
        ...


class _CoordinatorContext(Generic[S]):
    """A partition that this broker leads, and its shard."""

    __slots__ = ("leader_epoch", "partition", "shard")

    def __init__(self, partition: Partition, shard: S) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.shard = shard

    def is_still(self, partition: Partition) -> bool:
        """Also under a later epoch, if nobody else has led in between (a reassignment)."""
        return partition is self.partition and partition.state.has_led_since(self.leader_epoch)


class CoordinatorRuntime(Generic[S]):
    """`make` makes a shard for a partition; `noun` says what is coordinated."""

    def __init__(
        self,
        topic: InternalTopic,
        make: Callable[[Partition], S],
        *,
        noun: str,
        broker_id: BrokerId,
        clock: Clock,
        duties: ShardDuties,
    ) -> None:
        self._topic = topic
        self._make = make
        self._noun = noun
        self._broker_id = broker_id
        self._clock = clock
        self._duties = duties
        self._by_partition: dict[int, _CoordinatorContext[S]] = {}
        self._lost: set[int] = set()  # partitions that were here and are not any more
        self._unmade: dict[int, Partition] = {}  # whose shards could not be made; tried again
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._by_partition)

    def __iter__(self) -> Iterator[S]:
        return iter([lead.shard for lead in self._by_partition.values()])

    def find(self, number: int) -> S | None:
        """The shard of a partition."""
        lead = self._by_partition.get(number)
        return None if lead is None else lead.shard

    def require_partition(self, key: str) -> Partition:
        """The partition of a key. Raises `NotCoordinatorError` when it is another broker's."""
        number = self._topic.find_partition(key)
        lead = None if number is None else self._by_partition.get(number)
        if lead is None:
            raise self._elsewhere(key)
        return lead.partition

    def _elsewhere(self, key: str) -> NotCoordinatorError:
        return NotCoordinatorError(f"{self._noun} {key!r} is coordinated by another broker")

    def require(self, key: str) -> S:
        """The shard of a key. Raises `KafkaError` when it is another broker's, or not there yet."""
        number = self._topic.find_partition(key)
        lead = None if number is None else self._by_partition.get(number)
        if lead is not None:
            if not lead.partition.holds_lease:
                raise NotCoordinatorError(f"the lease on coordinating {self._noun} {key!r} is over")
            return lead.shard
        state = self._topic.find_state(key)
        if state is not None and state.leader == self._broker_id and number not in self._lost:
            raise CoordinatorLoadInProgressError(f"{self._noun} {key!r} is about to be loaded")
        raise self._elsewhere(key)

    def on_partition_changed(
        self, topic_partition: TopicPartition, partition: Partition | None
    ) -> None:
        """A partition was opened, dropped (None), or has another leader."""
        if topic_partition.topic != self._topic.name or self._is_closed:
            return
        number = topic_partition.partition
        self._unmade.pop(number, None)
        if partition is None:
            self._lost.add(number)
        else:
            self._lost.discard(number)
        lead = self._by_partition.get(number)
        if lead is not None:
            if partition is not None and lead.is_still(partition):
                return
            del self._by_partition[number]
            lead.shard.close()
        if partition is not None and partition.state.is_settled:
            self._lead(number, partition)

    def _lead(self, number: int, partition: Partition) -> None:
        try:
            shard = self._make(partition)
        except Exception:  # noqa: BLE001 nobody else leads it, and no change may come for long
            # Too little memory, or too few file handles: the first shard imports what it needs.
            _log.exception("cannot coordinate %s, trying again soon", partition.topic_partition)
            self._unmade[number] = partition
            again = partial(self._lead_after_all, number, partition)
            self._clock.call_later(_MAKING_PAUSE_SECONDS, again)
            return
        lead = self._by_partition[number] = _CoordinatorContext(partition, shard)
        shard.on_torn = partial(self._load_again, number, lead)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            shard.load_nothing()
        else:
            self._duties.keep(f"loading of {shard.name}", lambda: self._load(shard))

    def _lead_after_all(self, number: int, partition: Partition) -> None:
        if self._unmade.get(number) is partition:
            self.on_partition_changed(partition.topic_partition, partition)

    def _load_again(self, number: int, torn: _CoordinatorContext[S]) -> None:
        if self._by_partition.get(number) is torn and torn.is_still(torn.partition):
            self._lead(number, torn.partition)

    async def _load(self, shard: S) -> None:
        started = self._clock.monotonic()
        for attempt in itertools.count():
            try:
                await shard.load()
                break
            except KafkaError as error:
                # Also a `StorageError`: a process with too many open files may have fewer soon.
                # The shard is closed when its directory is offline, since the partition is dropped.
                pause_seconds = min(_FIRST_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
                _log.error(
                    "cannot load %s, trying again in %.0f s: %s", shard.name, pause_seconds, error
                )
                await self._clock.sleep(pause_seconds)
                if shard.is_closed:  # another broker leads it, or the directory is offline
                    return
        took_ms = (self._clock.monotonic() - started) * 1000
        count = f"{len(shard)} {self._noun}s"
        _log.info("loaded %s of %s in %.0f ms", count, shard.name, took_ms)

    def close(self) -> None:
        """Stop coordinating; nothing is logged, so that whoever leads next goes on."""
        self._is_closed = True
        for lead in self._by_partition.values():
            lead.shard.close()
        self._by_partition.clear()
