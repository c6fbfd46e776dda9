"""Shards follow the leadership of their partitions: real replicas, and shards that note things."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.runtime import CoordinatorPorts, CoordinatorRuntime
from moldau.coordinators.runtime.shard import CoordinatorShard
from moldau.errors import (
    CoordinatorLoadInProgressError,
    InvalidRecordError,
    KafkaError,
    NotCoordinatorError,
    StorageError,
)
from moldau.model import BrokerId, TopicPartition
from moldau.replication.partition import Partition
from moldau.workers import InlineWorkers
from unit.replication.replica_bench import CLICKS, Bench, run_story

HERE, THERE = 1, 2
KEY = "a group"


class Shard:
    """Stands for a `CoordinatorShard`."""

    def __init__(self, partition: Partition, failures: list[KafkaError]) -> None:
        self.name = str(partition.topic_partition)
        self.on_torn: Callable[[], None] | None = None
        self.is_closed = False
        self.loads: list[str] = []
        self._failures = failures

    def __len__(self) -> int:
        return 0

    def become_active(self) -> None:
        self.loads.append("nothing")

    async def load(self) -> None:
        if self._failures:
            failure = self._failures.pop(0)
            self.loads.append(str(failure))
            raise failure
        self.loads.append("all")

    def close(self) -> None:
        self.is_closed = True


class Topic:
    """A topic of one partition. Stands for an `InternalTopic`."""

    name = CLICKS.topic

    def __init__(self) -> None:
        self.state: PartitionState | None = None

    def find_partition(self, key: str) -> int | None:
        return None if self.state is None else 0

    def find_state(self, key: str) -> PartitionState | None:
        return self.state


class Duties:
    """Begins what it is given, once. A `ShardDuties`."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def keep(self, name: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> object:
        self.tasks.append(asyncio.ensure_future(begin()))
        return self.tasks[-1]

    def require(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        raise AssertionError(name)


class Runtime(CoordinatorRuntime[CoordinatorShard[Any, Any, Any]]):
    """Its shards are made by the scene."""

    _NOUN = "group"
    make: Callable[[Partition], CoordinatorShard[Any, Any, Any]]

    def _make_shard(self, partition: Partition) -> CoordinatorShard[Any, Any, Any]:
        return self.make(partition)


class Scene:
    """The leads of one broker, and the replica that it has."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.topic = Topic()
        self.duties = Duties()
        self.made: list[Shard] = []
        self.failures: list[KafkaError] = []  # of loads, one after the other
        self.unmade: list[Exception] = []  # what keeps shards from being made, one after the other
        self.replica = bench.replicas[HERE]
        self.partition = self.replica.partition
        ports = CoordinatorPorts(
            broker_id=BrokerId(HERE),
            options=BrokerOptions,
            image=lambda: MetadataImage(cluster_id=""),
            clock=bench.clock,
            workers=InlineWorkers(),
            duties=self.duties,
            spawn=lambda name, work: asyncio.ensure_future(work),
        )
        self.runtime = Runtime(cast("InternalTopic", self.topic), ports)
        self.runtime.make = self._make

    def _make(self, partition: Partition) -> CoordinatorShard[Any, Any, Any]:
        if self.unmade:
            raise self.unmade.pop(0)
        self.made.append(Shard(partition, self.failures))
        return cast("CoordinatorShard[Any, Any, Any]", self.made[-1])

    def elect(self, leader: int, epoch: int) -> None:
        self.topic.state = self.bench.elect(leader, epoch, isr=(leader,))
        self.change()

    def change(self) -> None:
        self.runtime.on_partition_changed(CLICKS, self.partition)

    async def loaded(self) -> None:
        await asyncio.gather(*self.duties.tasks)


def run(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def play(bench: Bench) -> None:
        await bench.open(HERE, THERE)
        await story(Scene(bench))

    run_story(play)


def test_a_shard_is_there_while_this_broker_leads() -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(NotCoordinatorError):
            scene.runtime.require_shard(KEY)  # there is no topic
        scene.elect(HERE, 1)
        (shard,) = scene.made
        assert scene.runtime.require_shard(KEY) is scene.runtime.find_shard(0) is shard
        assert scene.runtime.require_partition(KEY) is scene.partition
        assert (shard.loads, len(list(scene.runtime))) == (["nothing"], 1)
        scene.elect(THERE, 2)
        assert shard.is_closed
        assert scene.runtime.find_shard(0) is None
        with pytest.raises(NotCoordinatorError):
            scene.runtime.require_shard(KEY)
        with pytest.raises(NotCoordinatorError):
            scene.runtime.require_partition(KEY)

    run(story)


def test_what_is_in_the_log_is_loaded() -> None:
    async def story(scene: Scene) -> None:
        scene.elect(HERE, 1)
        scene.replica.produce(b"a record")
        scene.elect(THERE, 2)
        scene.elect(HERE, 3)
        await scene.loaded()
        assert [shard.loads for shard in scene.made] == [["nothing"], ["all"]]

    run(story)


def test_a_shard_outlives_an_epoch_in_which_nobody_else_has_led() -> None:
    async def story(scene: Scene) -> None:
        scene.elect(HERE, 1)
        scene.elect(HERE, 2)
        assert len(scene.made) == 1
        assert not scene.made[0].is_closed

    run(story)


def test_a_leader_whose_lease_is_over_coordinates_nothing() -> None:
    async def story(scene: Scene) -> None:
        scene.elect(HERE, 1)
        scene.replica.lease_end = scene.bench.clock.monotonic()
        with pytest.raises(NotCoordinatorError, match="lease"):
            scene.runtime.require_shard(KEY)

    run(story)


def test_a_client_is_told_to_wait_while_the_metadata_says_so_and_nothing_is_there_yet() -> None:
    async def story(scene: Scene) -> None:
        scene.topic.state = scene.bench.state(HERE, 1)
        with pytest.raises(CoordinatorLoadInProgressError):
            scene.runtime.require_shard(KEY)
        scene.runtime.on_partition_changed(CLICKS, None)  # it cannot be opened: the disk has failed
        with pytest.raises(NotCoordinatorError):
            scene.runtime.require_shard(KEY)
        scene.elect(HERE, 2)
        assert scene.runtime.require_shard(KEY) is not None

    run(story)


def test_a_shard_that_cannot_be_made_is_made_soon() -> None:
    """A broker without memory or file handles for a moment cannot import what the first needs;
    afterwards no change may come for days, and nobody else leads the partition."""

    async def story(scene: Scene) -> None:
        scene.unmade += [MemoryError(), OSError(errno.EMFILE, "too many open files")]
        scene.elect(HERE, 1)
        with pytest.raises(CoordinatorLoadInProgressError):
            scene.runtime.require_shard(KEY)
        await scene.bench.clock.advance(15)
        (shard,) = scene.made
        assert scene.runtime.require_shard(KEY) is shard

    run(story)


def test_a_shard_that_could_not_be_made_is_not_made_once_another_broker_leads() -> None:
    async def story(scene: Scene) -> None:
        scene.unmade += [MemoryError()]
        scene.elect(HERE, 1)
        scene.elect(THERE, 2)
        await scene.bench.clock.advance(15)
        assert not scene.made
        with pytest.raises(NotCoordinatorError):
            scene.runtime.require_shard(KEY)

    run(story)


def test_a_load_that_fails_is_tried_again_after_longer_and_longer_pauses() -> None:
    async def story(scene: Scene) -> None:
        scene.failures += [InvalidRecordError("first"), InvalidRecordError("second")]
        scene.bench.elect(HERE, 1, isr=(HERE,))
        scene.replica.produce(b"a record")
        scene.change()
        (shard,) = scene.made
        await scene.bench.clock.advance(0.9)
        assert shard.loads == ["first"]
        await scene.bench.clock.advance(0.1)
        assert shard.loads == ["first", "second"]
        await scene.bench.clock.advance(2)
        assert shard.loads == ["first", "second", "all"]
        await scene.loaded()

    run(story)


def test_a_load_without_a_file_handle_is_tried_again() -> None:
    async def story(scene: Scene) -> None:
        scene.failures += [StorageError("too many files are open")]
        scene.bench.elect(HERE, 1, isr=(HERE,))
        scene.replica.produce(b"a record")
        scene.change()
        await scene.bench.clock.advance(1)
        await scene.loaded()
        assert scene.made[0].loads == ["too many files are open", "all"]

    run(story)


def test_a_log_on_a_failed_disk_is_not_tried_again_once_the_partition_is_dropped() -> None:
    async def story(scene: Scene) -> None:
        scene.failures += [StorageError("offline"), StorageError("offline")]
        scene.bench.elect(HERE, 1, isr=(HERE,))
        scene.replica.produce(b"a record")
        scene.change()
        await scene.bench.clock.advance(0)
        scene.runtime.on_partition_changed(CLICKS, None)
        await scene.bench.clock.advance(60)
        await scene.loaded()
        assert scene.made[0].loads == ["offline"]

    run(story)


def test_a_torn_shard_is_loaded_again_unless_another_has_its_place() -> None:
    async def story(scene: Scene) -> None:
        scene.elect(HERE, 1)
        scene.replica.produce(b"a record")
        (torn,) = scene.made
        assert torn.on_torn is not None
        torn.on_torn()
        await scene.loaded()
        assert [shard.loads for shard in scene.made] == [["nothing"], ["all"]]
        torn.on_torn()  # that is known already
        assert len(scene.made) == 2

    run(story)


def test_other_topics_and_what_comes_after_the_end_mean_nothing() -> None:
    async def story(scene: Scene) -> None:
        scene.bench.elect(HERE, 1, isr=(HERE,))
        scene.runtime.on_partition_changed(TopicPartition("others", 0), scene.partition)
        assert not scene.made
        scene.change()
        assert [*scene.runtime] == scene.made
        scene.runtime.close()
        assert scene.made[0].is_closed
        scene.change()
        assert len(list(scene.runtime)) == 0

    run(story)
