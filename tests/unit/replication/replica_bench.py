"""Real replicas of one partition on files in memory, with a leader link that tests can bend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from moldau.cluster.rules.metadata_image import PartitionState
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import BrokerUnreachableError, KafkaError
from moldau.model import Offset, TopicPartition
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import build_batch, records_of
from moldau.replication.incoming_batches import Unpacker
from moldau.replication.partition import FollowedRead, Partition
from moldau.replication.replica_fetcher import LogBounds, ReplicaFetcher
from moldau.replication.replication_quota import ReplicationQuota
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.testing import ManualClock, MemoryFiles
from moldau.wire.fetch_exchange import AnsweredPartition, AnsweredTopic, FetchAnswer
from moldau.wire.fetch_frame import FetchRequest
from moldau.workers import InlineWorkers

CLICKS = TopicPartition("clicks", 0)
TOPIC_ID = UUID(int=42)
FOLDER = Path("/data")
ALL = -1

T = TypeVar("T")


class Observer:
    """Notes what a partition tells. A `PartitionObserver`."""

    def __init__(self) -> None:
        self.appended = 0
        self.replicable = 0
        self.commits: list[int] = []
        self.changes = 0
        self.caught_up = 0
        self.suspicions: list[int] = []

    def on_append(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        self.appended += 1

    def on_replicable(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        self.replicable += 1

    def on_commit(self, topic_partition: TopicPartition, high_watermark: Offset) -> None:
        self.commits.append(high_watermark)

    def on_change(self, topic_partition: TopicPartition) -> None:
        self.changes += 1

    def on_catch_up(self, partition: Partition) -> None:
        self.caught_up += 1

    def on_suspicion(self, partition: Partition, offset: Offset) -> None:
        self.suspicions.append(offset)


class WatchedWorkers(InlineWorkers):
    """Something may happen while they are busy."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    async def run(self, work: Callable[[], T]) -> T:
        result = await super().run(work)
        self.meanwhile()
        return result


class Replica:
    """One broker's replica."""

    def __init__(
        self, bench: Bench, broker_id: int, files: MemoryFiles, store: LogStore, log: object
    ) -> None:
        self.broker_id = broker_id
        self.files = files
        self.store = store
        self.observer = Observer()
        self.lease_end = float("inf")
        self.workers = WatchedWorkers()
        self.partition = Partition(
            log,
            TOPIC_ID,
            broker_id=broker_id,
            clock=bench.clock,
            unpacker=Unpacker(self.workers, bench.clock),
            observer=self.observer,
            lease_end=lambda: self.lease_end,
            broker_epoch_of=lambda broker: bench.broker_epochs.get(broker, -1),
        )

    def produce(self, *values: bytes, acks: int = ALL) -> int:
        """Append a batch; returns the offset at which it ends."""
        batch = memoryview(build_batch([(1, None, value, ()) for value in values]))
        result = self.partition.append_as_leader(batch, acks)
        assert result is not None
        return result.last_offset + 1

    async def produce_in_worker(self, value: bytes, acks: int = ALL) -> int:
        """As `produce`, of a batch that is looked at in a worker."""
        batch = memoryview(build_batch([(1, None, value, ())]))
        assert self.partition.append_as_leader(batch, acks) is None
        return (await self.partition.append_in_worker(batch, acks)).last_offset + 1

    @property
    def values(self) -> list[bytes]:
        """All that is in the log."""
        log = self.partition.log
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, end_offset=log.log_end_offset, min_one=True)
            data = memoryview(read.slice.read())
            for position, header in walk_headers(data):
                batch = data[position : position + header.size_bytes]
                found += [bytes(row.value) for row in records_of(batch, header)]
            offset = read.end_offset
        return found


class _Truncations:
    """Those of a follower's store, with a note of each that is on disk."""

    def __init__(self, bench: Bench, replica: Replica) -> None:
        self._bench = bench
        self._checkpoints = replica.store.checkpoints

    async def prepare_truncation(self, log: Log, offset: int) -> None:
        await self._checkpoints.prepare_truncation(log, offset)

    async def complete_truncation(self, log: Log) -> None:
        if log.flushing.has_pending_truncation:
            await self._checkpoints.complete_truncation(log)
            self._bench.checkpoints.append(log.log_end_offset)


class DirectLink:
    """The way to a leader in the same process. A `LeaderEndPoint`."""

    def __init__(self, bench: Bench, leader: Replica) -> None:
        self._bench = bench
        self._leader = leader
        self.is_cut = False
        self.requests: list[FetchRequest] = []
        self.bend: Callable[[bytearray], None] = lambda data: None
        self.is_closed = False

    async def fetch(self, request: FetchRequest) -> FetchAnswer:
        self.requests.append(request)
        if self.is_cut:
            raise BrokerUnreachableError("cut")
        answer = self._answer(request)
        if not answer.records and not answer.error_code and answer.diverging_epoch is None:
            await self._bench.clock.sleep(request.max_wait_ms / 1000)
        return FetchAnswer(0, 0, 0, [AnsweredTopic(None, TOPIC_ID, [answer])])

    def _answer(self, request: FetchRequest) -> AnsweredPartition:
        (wanted,) = request.topics[0].partitions
        try:
            read = self._leader.partition.read_for_follower(
                FollowedRead(
                    request.replica_id,
                    request.replica_epoch,
                    wanted.current_leader_epoch,
                    wanted.fetch_offset,
                    wanted.last_fetched_epoch,
                    wanted.log_start_offset,
                ),
                wanted.partition_max_bytes,
                min_one=True,
            )
        except KafkaError as error:
            return AnsweredPartition(0, error.code.value, -1, -1, -1, (), -1, memoryview(b""))
        data = bytearray() if read.records is None else bytearray(read.records.read())
        self.bend(data)
        return AnsweredPartition(
            0,
            0,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            (),
            -1,
            memoryview(data),
            read.diverging_epoch,
        )

    async def find_bounds(self, topic_partition: TopicPartition, leader_epoch: int) -> LogBounds:
        log = self._leader.partition.log
        return LogBounds(log.log_start_offset, log.log_end_offset)

    async def close(self) -> None:
        self.is_closed = True


class Bench:
    """The replicas of one partition, and who copies from whom."""

    def __init__(self, **topic_config: str) -> None:
        self.clock = ManualClock()
        self.broker_epochs = {1: 11, 2: 12, 3: 13}
        self.replicas: dict[int, Replica] = {}
        self.options = BrokerOptions.resolve({"replica.fetch.wait.max.ms": "500"})
        configs = {name.replace("_", "."): value for name, value in topic_config.items()}
        self.topic_options = TopicOptions.resolve(configs, self.options)
        self.links: dict[int, DirectLink] = {}
        self.checkpoints: list[int] = []  # log ends after truncations that are on disk
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._version = 0

    async def open(self, *broker_ids: int) -> list[Replica]:
        for broker_id in broker_ids:
            files = MemoryFiles(self.clock)
            store = LogStore(
                [FOLDER],
                files=files,
                clock=self.clock,
                workers=InlineWorkers(),
                options=lambda: self.options,
                failures=self,
            )
            await store.open()
            log = await store.create_log(CLICKS, TOPIC_ID, self.topic_options)
            self.replicas[broker_id] = Replica(self, broker_id, files, store, log)
        return [self.replicas[broker_id] for broker_id in broker_ids]

    def directory_failed(self, folder: Path, error: OSError) -> None:
        raise AssertionError(f"{folder} failed: {error}")

    def state(
        self, leader: int, epoch: int, isr: tuple[int, ...] = (), version: int | None = None
    ) -> PartitionState:
        self._version += 1
        return PartitionState(
            leader=leader,
            leader_epoch=epoch,
            isr=isr or tuple(self.replicas),
            replicas=tuple(self.replicas),
            version=self._version if version is None else version,
        )

    def elect(self, leader: int, epoch: int, isr: tuple[int, ...] = ()) -> PartitionState:
        """Everybody hears of an election."""
        state = self.state(leader, epoch, isr)
        for replica in self.replicas.values():
            replica.partition.apply_state(state)
        return state

    def copy(self, follower: int, leader: int) -> DirectLink:
        """Have one replica fetch from another from now on."""
        if follower in self._fetchers:
            self._fetchers[follower].close()
        replica = self.replicas[follower]
        link = self.links[follower] = DirectLink(self, self.replicas[leader])
        fetcher = self._fetchers[follower] = ReplicaFetcher(
            leader,
            link,
            broker_id=follower,
            broker_epoch=lambda: self.broker_epochs[follower],
            clock=self.clock,
            options=lambda: self.options,
            truncations=_Truncations(self, replica),
            quota=ReplicationQuota(self.clock, follower, lambda: 2**63 - 1, lambda options: ()),
        )
        fetcher.add(replica.partition)
        self._tasks.append(asyncio.create_task(fetcher.run()))
        return link

    def follow_anew(self, follower: int) -> None:
        """As when a newer state of its partition was applied."""
        self.follow(follower, self.replicas[follower])

    def follow(self, follower: int, replica: Replica) -> None:
        """Have a follower that copies already copy this one."""
        self._fetchers[follower].add(replica.partition)

    async def settle(self, seconds: float = 2.0) -> None:
        """Long enough for every follower to fetch a few times."""
        await self.clock.advance(seconds)

    async def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        for task in self._tasks:
            await self.clock.advance(2.0)
            await task
        for replica in self.replicas.values():
            await replica.store.close()


def run_story(story: Callable[[Bench], object], **topic_config: str) -> None:
    async def run() -> None:
        bench = Bench(**topic_config)
        try:
            await story(bench)
        finally:
            await bench.close()

    asyncio.run(run())


def fetch(bench: Bench, leader: int, follower: int, offset: int, **changes: int):
    """A follower's fetch, as its leader sees it."""
    wanted = FollowedRead(
        follower,
        bench.broker_epochs[follower],
        bench.replicas[leader].partition.leader_epoch,
        offset,
        -1,
        0,
    )._replace(**changes)
    return bench.replicas[leader].partition.read_for_follower(wanted, 1 << 20, min_one=True)
