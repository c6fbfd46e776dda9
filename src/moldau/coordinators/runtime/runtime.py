"""The shards of one coordinator: they follow the leadership of the partitions of its topic.

A shard is made and loaded when this broker leads its partition, and all that it found in the log is
committed; it is closed and thrown away when somebody else leads. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.log import CoordinatorLog, CoordinatorLogFormat
from moldau.coordinators.runtime.shard import CoordinatorShard
from moldau.errors import CoordinatorLoadInProgressError, KafkaError, NotCoordinatorError
from moldau.model import BrokerId, LeaderEpoch, TopicPartition
from moldau.replication.partition import Partition
from moldau.workers import Workers

_log = logging.getLogger("moldau.coordinators")

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_STARTING_PAUSE_SECONDS = 5.0
_EVENTS_AT_ONCE = 100
"""Events that are handled before the event loop gets a turn."""


S = TypeVar("S", bound=CoordinatorShard[Any, Any, Any])
W = TypeVar("W")  # what is written
R = TypeVar("R")  # what is read


class ShardDuties(Protocol):
    """Runs what must not fail unseen (`broker.background_tasks`)."""

    def keep(self, name: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> object:
        """Begin it, and again when it fails."""
        ...

    def require(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        """The broker ends when it fails."""
        ...


class CoordinatorPorts(NamedTuple):
    """What a broker gives to each of its coordinators."""

    broker_id: BrokerId
    options: Callable[[], BrokerOptions]
    image: Callable[[], MetadataImage]
    clock: Clock
    workers: Workers
    duties: ShardDuties
    spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]


class _CoordinatorContext(Generic[S]):
    """A partition that this broker leads, and its shard."""

    __slots__ = ("leader_epoch", "partition", "shard")

    def __init__(self, partition: Partition, shard: S) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.shard = shard

    def still_leads(self, partition: Partition) -> bool:
        """Also under a later epoch, if nobody else has led in between (a reassignment)."""
        return partition is self.partition and partition.state.has_led_since(self.leader_epoch)


class CoordinatorRuntime(ABC, Generic[S]):
    """What every coordinator is: the shards of its topic. `_NOUN` says what is coordinated."""

    _NOUN: ClassVar[str]

    def __init__(
        self,
        topic: InternalTopic,
        ports: CoordinatorPorts,
    ) -> None:
        self.topic = topic
        self._broker_id = ports.broker_id
        self._options = ports.options
        self._image = ports.image
        self._clock = ports.clock
        self._workers = ports.workers
        self._duties = ports.duties
        self._spawn = ports.spawn
        self._contexts: dict[int, _CoordinatorContext[S]] = {}  # by partition
        self._lost: set[int] = set()  # partitions that were here and are not any more
        self._not_started: dict[int, Partition] = {}  # whose shards could not be made yet
        self._is_closed = False

    @abstractmethod
    def _make_shard(self, partition: Partition) -> S: ...

    def _open_log(
        self, partition: Partition, log_format: CoordinatorLogFormat[W, R]
    ) -> CoordinatorLog[W, R]:
        return CoordinatorLog(
            partition,
            log_format,
            clock=self._clock,
            workers=self._workers,
            require=self._duties.require,
        )

    def __iter__(self) -> Iterator[S]:
        return iter([context.shard for context in self._contexts.values()])

    def find_shard(self, number: int) -> S | None:
        """The shard of a partition."""
        context = self._contexts.get(number)
        return None if context is None else context.shard

    def require_partition(self, key: str) -> Partition:
        """The partition of a key. Raises `NotCoordinatorError` when it is another broker's."""
        number = self.topic.find_partition(key)
        context = None if number is None else self._contexts.get(number)
        if context is None:
            raise self._not_coordinator(key)
        return context.partition

    def _not_coordinator(self, key: str) -> NotCoordinatorError:
        return NotCoordinatorError(f"{self._NOUN} {key!r} is coordinated by another broker")

    def require_shard(self, key: str) -> S:
        """The shard of a key. Raises `KafkaError` when it is another broker's, or not there yet."""
        number = self.topic.find_partition(key)
        context = None if number is None else self._contexts.get(number)
        if context is not None:
            if not context.partition.holds_lease:
                raise NotCoordinatorError(f"the lease on coordinating {self._NOUN} {key!r} is over")
            return context.shard
        state = self.topic.find_state(key)
        if state is not None and state.leader == self._broker_id and number not in self._lost:
            raise CoordinatorLoadInProgressError(f"{self._NOUN} {key!r} is about to be loaded")
        raise self._not_coordinator(key)

    async def _report_all(
        self, shards: Iterable[S], events_of: Callable[[S], Iterable[object]]
    ) -> None:
        """Have shards handle events, some at a time: others are served in between."""
        for shard in tuple(shards):
            for count, event in enumerate(events_of(shard), start=1):
                shard.report(event)
                if count % _EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    # Following the cluster

    def on_partition_changed(
        self, topic_partition: TopicPartition, partition: Partition | None
    ) -> None:
        """A partition was opened, dropped (None), or has another leader."""
        if topic_partition.topic != self.topic.name or self._is_closed:
            return
        number = topic_partition.partition
        self._not_started.pop(number, None)
        if partition is None:
            self._lost.add(number)
        else:
            self._lost.discard(number)
        context = self._contexts.get(number)
        if context is not None:
            if partition is not None and context.still_leads(partition):
                return
            del self._contexts[number]
            context.shard.close()
        if partition is not None and partition.state.is_settled:
            self._start_shard(number, partition)

    def _start_shard(self, number: int, partition: Partition) -> None:
        try:
            shard = self._make_shard(partition)
        except Exception:  # noqa: BLE001 nobody else leads it, and no change may come for long
            # Too little memory, or too few file handles.
            _log.exception("cannot coordinate %s, trying again soon", partition.topic_partition)
            self._not_started[number] = partition
            again = partial(self._start_after_all, number, partition)
            self._clock.call_later(_STARTING_PAUSE_SECONDS, again)
            return
        context = self._contexts[number] = _CoordinatorContext(partition, shard)
        shard.on_torn = partial(self._load_again, number, context)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            shard.become_active()
        else:
            self._duties.keep(f"loading of {shard.name}", lambda: self._load(shard))

    def _start_after_all(self, number: int, partition: Partition) -> None:
        if self._not_started.get(number) is partition:
            self.on_partition_changed(partition.topic_partition, partition)

    def _load_again(self, number: int, torn: _CoordinatorContext[S]) -> None:
        if self._contexts.get(number) is torn and torn.still_leads(torn.partition):
            self._start_shard(number, torn.partition)

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
        count = f"{len(shard)} {self._NOUN}s"
        _log.info("loaded %s of %s in %.0f ms", count, shard.name, took_ms)

    def close(self) -> None:
        """Stop coordinating; nothing is logged, so that the next coordinator goes on."""
        self._is_closed = True
        for context in self._contexts.values():
            context.shard.close()
        self._contexts.clear()
