"""Producers, readers and committers of a simulated cluster, and how they differ by seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from moldau.client.cluster import GROUP_KEY, ClusterClient, find_coordinator_once
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.producer.produce_result import RecordMetadata
from moldau.client.producer.producer import AsyncProducer
from moldau.client.producer.sender import Answered, Batch
from moldau.config.client_options import ACKS_LEADER
from moldau.errors import (
    ClientError,
    DeliveryTimeoutError,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from moldau.model import TopicPartition
from moldau.records.compression import Codec
from moldau.simulation.history import ClusterHistory
from moldau.simulation.memory_network import MemoryHost
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess
from moldau.wire.apis import Api
from moldau.workers import InlineWorkers

# Most seeds have one or two habits that make rare paths common: batches that a worker has to
# unpack, fetches that reach their size limits on every turn, consumers that read from the nearest
# replica.


_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_PLENTY_BYTES: Final = 1 << 20
BRISK_RETRIES: Final = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}
RACKS: Final = ("north", "south")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHabits:
    """Of one run."""

    codecs: tuple[Codec, ...] = (Codec.NONE,)
    """Producers choose one of these for each batch."""
    topic_codec: str = "producer"
    """`compression.type` of the topic; if it is not the producer's, a worker packs every batch."""
    most_in_flight: int = 1
    """Batches of an idempotent producer that are under way at the same time."""
    delivery_timeout_ms: int | None = None
    """After which producers give up a record; None for never."""
    reads_nearest: bool = False
    """Consumers read from a replica in their rack (KIP-392)."""
    group_members: int = 0
    """Of a group that shares the partitions."""
    fetch_max_bytes: int = _PLENTY_BYTES
    broker_options: Mapping[str, str] = field(default_factory=dict)

    def rack_of(self, broker_id: int) -> str:
        return RACKS[broker_id % len(RACKS)]


def draw_habits(random: Random) -> ClientHabits:
    """Each habit on its own, so that they meet now and then."""
    options: dict[str, str] = {}
    codecs: tuple[Codec, ...] = (Codec.NONE,)
    topic_codec = "producer"
    if random.random() < 0.4:
        codecs = tuple(Codec)
        topic_codec = random.choice(("producer", "producer", "gzip", "lz4", "uncompressed"))
    most_in_flight = random.choice((1, 1, 2, 5))
    delivery_timeout_ms = random.choice((None, None, None, 2_500))
    reads_nearest = random.random() < 0.3
    if reads_nearest:
        options["replica.selector.class"] = _RACK_AWARE
    group_members = random.choice((0, 2, 3))
    fetch_max_bytes = random.choice((_PLENTY_BYTES, _PLENTY_BYTES, 1, 200))
    if random.random() < 0.3:
        # A few batches at a time: with less, a follower at the end of a long link falls behind.
        limit = random.choice(("1500", "3000"))
        options["replica.fetch.max.bytes"] = limit
        options["replica.fetch.response.max.bytes"] = random.choice((limit, "4000", "10485760"))
    if group_members and random.random() < 0.3:
        options["group.consumer.assignment.interval.ms"] = "1000"
        options["group.share.assignment.interval.ms"] = "1000"
    return ClientHabits(
        codecs=codecs,
        topic_codec=topic_codec,
        most_in_flight=most_in_flight,
        delivery_timeout_ms=delivery_timeout_ms,
        reads_nearest=reads_nearest,
        group_members=group_members,
        fetch_max_bytes=fetch_max_bytes,
        broker_options=options,
    )


# The plain clients of a simulated cluster: they read and commit, and tell what they were told.
#
# Each is a shipped client in a simulated process, and one task around it. They never give up: what
# failed is tried again, until `is_stopping` is set and nothing is under way. What they learn goes
# to a `ClusterHistory`, which knows what must not be.


_POLL_SECONDS: Final = 0.3
_NAP_SECONDS: Final = 0.5
FOREVER_MS: Final = 10**7

AnyReader = TypeVar("AnyReader", bound="SimulatedReader")


class SessionBook(Protocol):
    """Knows when a broker had a session, and how many were in sync."""

    def had_session(self, broker_id: int, since: float, until: float) -> bool: ...

    def had_enough_in_sync(self, partition: TopicPartition, since: float) -> bool:
        """Whether `min.insync.replicas` were in the in-sync set at some time since then."""
        ...


class OffsetBook(Protocol):
    """Knows whether a committed offset is there to stay (`observer.CommittedOffsets`)."""

    def require(self, group: str, partition: TopicPartition, offset: int, told: str) -> None: ...


def draw_random(random: Random) -> Random:
    """A random source for a client of the product."""
    return Random(random.random())  # noqa: S311 of the seed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProcess:
    """A process with clients of the product in it: its own clock, and the clients' network."""

    process: SimulatedProcess
    clock: ProcessClock
    host: MemoryHost
    bootstrap: str

    def open_consumer(self, random: Random, **options: Any) -> AsyncConsumer:
        return AsyncConsumer(
            self.bootstrap,
            network=self.host,
            clock=self.clock,
            random=random,
            request_timeout_ms=1_500,
            metadata_max_age_ms=3_000,
            fetch_max_wait_ms=300,
            **options,
        )

    def open_producer(self, random: Random, **options: Any) -> AsyncProducer:
        return AsyncProducer(
            self.bootstrap,
            network=self.host,
            clock=self.clock,
            random=random,
            workers=InlineWorkers(),
            max_block_ms=FOREVER_MS,
            metadata_max_age_ms=3_000,
            **{"request_timeout_ms": 1_500, **BRISK_RETRIES, **options},
        )


OpenProcess = Callable[[str], ClientProcess]
"""Makes a process of this name."""


class ClientSetup(NamedTuple):
    """What every client is made of."""

    name: str
    history: ClusterHistory
    random: Random
    open_process: OpenProcess


class Client:
    """What all clients share: a name, progress, and an end."""

    def __init__(self, setup: ClientSetup) -> None:
        self.name, self._history, self._random, self._open_process = setup
        self.is_stopping = False
        self.is_resting = False  # a producer that rests sends nothing new
        self.progress = 0

    async def run(self) -> None:
        """Work until told to stop; clients that are only called by others do nothing here."""


class Program(Protocol):
    """What runs in a process of a `RestartedClient`."""

    process: SimulatedProcess
    is_ending: bool
    task: asyncio.Task[None]


AnyProgram = TypeVar("AnyProgram", bound=Program)


class RestartedClient(Client, Generic[AnyProgram]):
    """One place, and the processes that have it one after the other: now and then a process
    crashes, is frozen and comes back, or leaves and is followed by another."""

    _life_seconds = 1.0, 5.0  # the shortest and the longest
    _freeze_seconds = 0.2, 2.5
    _chances = 0.15, 0.4, 0.5  # up to which number a process crashes, is frozen, or leaves

    def __init__(self, setup: ClientSetup) -> None:
        super().__init__(setup)
        self._life = 0
        self._programs: list[AnyProgram] = []  # the last one has the place; others were frozen

    async def run(self) -> None:
        self._start_program()
        try:
            while not self.is_stopping:
                await self._sleep(*self._life_seconds)
                await self._draw_mishap()
            await self._finish()
        except asyncio.CancelledError:
            for program in self._programs:
                program.process.kill()
            raise

    async def _finish(self) -> None:
        """Nothing happens to the processes any more."""
        await self._end_programs()

    def _open_program(self, name: str) -> AnyProgram:
        raise NotImplementedError

    def _start_program(self) -> None:
        self._life += 1
        self._programs.append(self._open_program(f"{self.name}.{self._life}"))

    def _replace_program(self) -> None:
        self._programs.clear()
        self._start_program()

    async def _end_programs(self) -> None:
        """In good order: they leave."""
        for program in self._programs:
            program.is_ending = True
        for program in self._programs:
            await asyncio.wait((program.task,))
            program.task.result()

    async def _draw_mishap(self) -> None:
        """Something happens to the process, or nothing does."""
        chance, process = self._random.random(), self._programs[-1].process
        to_crash, to_freeze, to_leave = self._chances
        if chance < to_crash:
            self._crash(process)
            self._replace_program()
        elif chance < to_freeze:
            await self._freeze(process)
        elif chance < to_leave:
            await self._end_programs()
            self._replace_program()

    def _crash(self, process: SimulatedProcess) -> None:
        process.kill()

    async def _freeze(self, process: SimulatedProcess) -> None:
        process.pause()
        await self._sleep(*self._freeze_seconds)
        process.resume()

    async def _sleep(self, shortest: float, longest: float) -> None:
        """Short naps, so that the end is not waited for."""
        left = self._random.uniform(shortest, longest)
        while left > 0 and self._may_sleep:
            await asyncio.sleep(min(left, _NAP_SECONDS))
            left -= _NAP_SECONDS
            await self._follow_nap()

    @property
    def _may_sleep(self) -> bool:
        return not self.is_stopping

    async def _follow_nap(self) -> None:
        """For late requests of former processes."""


async def call_coordinator(
    client: ClusterClient,
    key: str,
    api: Api,
    values: Mapping[str, object],
    version: int,
    key_type: int = GROUP_KEY,
) -> object:
    """Send one request to the coordinator of a group or a transactional id."""
    coordinator = await find_coordinator_once(client, key, key_type)
    link = await client.connect_to_broker(coordinator.id)
    return await link.call(api, values, version=version)


def offset_row(partition: int, offset: int) -> dict[str, object]:
    """An offset in a commit request."""
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }


def commit_values(
    group: str, member_id: str, epoch: int, partition: TopicPartition, offset: int
) -> dict[str, object]:
    """An OffsetCommit request for one partition."""
    rows = [offset_row(partition.partition, offset)]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member_id,
        "group_instance_id": None,
        "topics": [{"name": partition.topic, "partitions": rows}],
    }


class SimulatedReader(Client):
    """Reads one partition from its beginning, up to the high watermark, again and again."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        partition: TopicPartition,
        max_bytes: int = _PLENTY_BYTES,
        rack: str = "",
    ) -> None:
        super().__init__(setup)
        self.position = 0
        self.values: dict[int, bytes] = {}
        self._partition = partition
        self._max_bytes = max_bytes
        self._rack = rack

    async def run(self) -> None:
        await self._read_while(lambda: not self.is_stopping)

    async def read_until(self, end_offset: int) -> None:
        await self._read_while(lambda: self.position < end_offset)

    async def _read_while(self, wants_more: Callable[[], bool]) -> None:
        opened = self._open_process(self.name)
        task = opened.process.spawn(self._read(self._open(opened), wants_more))
        try:
            await asyncio.wait((task,))
            task.result()
        except asyncio.CancelledError:
            opened.process.kill()
            raise

    def _open(self, opened: ClientProcess) -> AsyncConsumer:
        return opened.open_consumer(
            draw_random(self._random),
            auto_offset_reset="error",
            client_rack=self._rack,
            fetch_max_bytes=self._max_bytes,
            max_partition_fetch_bytes=self._max_bytes,
            **BRISK_RETRIES,
            **self._options(),
        )

    def _options(self) -> dict[str, Any]:
        return {}

    async def _read(self, consumer: AsyncConsumer, wants_more: Callable[[], bool]) -> None:
        consumer.assign([self._partition])
        consumer.seek(self._partition, self.position)
        while wants_more():
            try:
                records = await consumer.poll(_POLL_SECONDS)
            except (OffsetOutOfRangeError, LogTruncatedError) as error:
                self._miss(consumer, error)
                continue
            except (KafkaError, ClientError):
                continue
            for record in records:
                self._see_record(record)
                self.position = record.offset + 1
                self.progress += 1
        await consumer.close()

    def _miss(self, consumer: AsyncConsumer, error: Exception) -> None:
        """What this reader has come to is not there."""
        self._history.report("HW-3", f"{self.name} has come to {self.position}, and hears: {error}")
        consumer.seek(self._partition, self.position)

    def _see_record(self, record: ConsumerRecord) -> None:
        value = bytes(record.value or b"")
        self._history.see(self._partition, record.offset, value)
        self.values[record.offset] = value


class Committer(Client):
    """Commits offsets of a group that only grow, and looks at them now and then."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        group: str,
        partition: TopicPartition,
        offsets: OffsetBook,
    ) -> None:
        super().__init__(setup)
        self._group = group
        self._partition = partition
        self._offsets = offsets
        self._next = 1
        opened = self._open_process(self.name)
        self._clock = opened.clock
        self._consumer = opened.open_consumer(
            draw_random(self._random),
            group=group,
            commit="manual",
            default_api_timeout_ms=5_000,
            **BRISK_RETRIES,
        )

    async def run(self) -> None:
        while not self.is_stopping:
            await (self._commit() if self._random.random() < 0.7 else self.check_offset())
            await self._clock.sleep(self._random.expovariate(4))

    async def check_last_offset(self) -> None:
        """However often it has to ask; then nothing more is asked."""
        while not await self.check_offset():
            await self._clock.sleep(0.1)

    async def _commit(self) -> None:
        offset, self._next = self._next, self._next + 1  # also after an error: it may be there
        self._history.attempt_commit(self._group, offset)
        try:
            await self._consumer.commit({self._partition: offset})
        except (KafkaError, ClientError):
            return
        self._history.acknowledge_commit(self._group, offset)
        self._offsets.require(self._group, self._partition, offset, "committed")
        self.progress += 1

    async def check_offset(self) -> bool:
        at_least = self._history.committed_offset(self._group)
        try:
            found = (await self._consumer.committed(self._partition))[self._partition]
        except (KafkaError, ClientError):
            return False
        offset = -1 if found is None else found.offset
        self._history.see_committed(self._group, offset, at_least)
        self._offsets.require(self._group, self._partition, offset, "shown")
        return True


class OffsetWatcher(Committer):
    """Looks at the offsets of a committer's group all the time, as a tool does that shows lag: it
    sees what is not committed yet, if anybody shows it."""

    async def run(self) -> None:
        while not self.is_stopping:
            if await self.check_offset():
                self.progress += 1
            await self._clock.sleep(self._random.uniform(0.01, 0.3))


# Producers of a simulated cluster: the shipped `AsyncProducer`, mostly with acks=all.
#
# Each has a process of its own, which is frozen now and then, and writes `name:number` records to
# one partition, some batches at a time. They do not give up, except in seeds in which the time for
# delivery is short: then a record may be missing, and the numbering of the partition begins a new
# epoch, but still nothing is there twice or out of order (SEQ-1).


_LONGEST_FREEZE_SECONDS: Final = 2.5
_FREEZE_SHARE: Final = 0.15  # of the naps

Row = tuple[bytes | None, bytes | None]
"""Key and value."""


AnyProducer = TypeVar("AnyProducer", bound="SimulatedProducer")


class Sent(NamedTuple):
    row: Row
    at: float
    power_losses: int  # of all machines, before it
    future: asyncio.Future[RecordMetadata]


class SimulatedProducer(Client):
    """Writes to one partition, idempotent and with acks=all; every answer is a promise."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        partition: TopicPartition,
        habits: ClientHabits,
        sessions: SessionBook,
        now: Callable[[], float],
    ) -> None:
        super().__init__(setup)
        self._partition = partition
        self._habits = habits
        self._sessions = sessions
        self._now = now
        self._next = 0
        self._has_given_up = False  # a batch: its numbers may be missing for good

    async def run(self) -> None:
        opened = self._open_process(self.name)
        process, task = opened.process, opened.process.spawn(self._write_on(opened))
        try:
            while not task.done() and not self.is_stopping:
                await asyncio.wait((task,), timeout=_NAP_SECONDS)
                if self._random.random() < _FREEZE_SHARE and not self.is_stopping:
                    process.pause()
                    await asyncio.sleep(self._random.uniform(0.1, _LONGEST_FREEZE_SECONDS))
                    process.resume()
            await asyncio.wait((task,))
            task.result()
        except asyncio.CancelledError:
            process.kill()
            raise

    async def write(self, batches: int) -> None:
        """So many batches, and no more."""
        producer = self._open(self._open_process(self.name))
        for _ in range(batches):
            await self._deliver(producer, 1)
        await producer.close()

    async def _write_on(self, opened: ClientProcess) -> None:
        producer = self._open(opened)
        while not self.is_stopping:
            if not self.is_resting:
                await self._deliver(producer, self._random.randint(1, self._habits.most_in_flight))
            await opened.clock.sleep(self._random.expovariate(5))
        await producer.close()  # not on the way out of a process that was killed

    def _open(self, opened: ClientProcess) -> AsyncProducer:
        random = self._random
        codec: Codec = random.choice(self._habits.codecs)
        return opened.open_producer(
            draw_random(random),
            batch_size=random.choice((0, 30, 16_384)),
            linger_ms=random.choice((0, 0, 5)),
            compression_type=codec.name.lower(),
            delivery_timeout_ms=self._habits.delivery_timeout_ms or FOREVER_MS,
            **self._guarantees(),
        )

    def _guarantees(self) -> dict[str, Any]:
        return {"max_in_flight_requests_per_connection": self._habits.most_in_flight}

    async def _deliver(self, producer: AsyncProducer, batches: int) -> None:
        sent: list[Sent] = []
        for _ in range(batches):
            sent += [await self._send(producer) for _ in range(self._random.randint(1, 3))]
            if self._random.random() < 0.5:
                await asyncio.sleep(0)
        await asyncio.wait([one.future for one in sent])
        self.progress += 1
        for one in sent:
            self._look_at(one)
        self._look_for_gap(producer)

    async def _send(self, producer: AsyncProducer) -> Sent:
        row = self._draw_row()
        self._next += 1
        topic, number = self._partition
        while True:
            try:
                future = await producer.send(topic, row[1], row[0], partition=number)
            except (KafkaError, ClientError):
                continue  # the topic is not known yet: nothing was sent
            return Sent(row, self._now(), self._history.power_losses, future)

    def _draw_row(self) -> Row:
        return None, f"{self.name}:{self._next}".encode()

    def _look_at(self, sent: Sent) -> None:
        error = sent.future.exception()
        if sent.power_losses != self._history.power_losses:
            self._has_given_up = True  # what was answered before is looked at only now
        elif isinstance(error, DeliveryTimeoutError):
            self._has_given_up = True
        elif error is not None:
            self._history.report("SEQ-1", f"{self.name} is told {error!r} for {sent.row[1]!r}")
        else:
            self._look_at_success(sent)

    def _look_at_success(self, sent: Sent) -> None:
        offset = sent.future.result().offset
        if offset >= 0:
            self._accept(offset, [sent.row])
        else:
            self._history.report(
                "SEQ-2", f"{sent.row[1]!r} was accepted for {self._partition} without an offset"
            )
        if not self._sessions.had_enough_in_sync(self._partition, sent.at):
            self._history.report(
                "ISR-1",
                f"{sent.row[1]!r} was accepted for {self._partition} with acks=all, and too few "
                f"were in sync since {sent.at:.3f}",
            )

    def _accept(self, offset: int, rows: Sequence[Row]) -> None:
        self._history.acknowledge(self._partition, offset, [value or b"" for _, value in rows])

    def _look_for_gap(self, producer: AsyncProducer) -> None:
        """A producer that never gave up begins a new epoch only when a record of it is gone."""
        identity = producer._sender._machine.queue_of(self._partition).identity
        if identity is not None and identity.epoch and not self._has_given_up:
            self._has_given_up = True  # told once
            self._history.report(
                "REP-3",
                f"{self.name} had to begin epoch {identity.epoch} before number {self._next} in "
                f"{self._partition}: a batch before it is gone",
            )


class HastyProducer(SimulatedProducer):
    """Writes with acks=1, one request at a time.

    Its answers promise nothing, except that whoever gives them had a session (REP-4): so it listens
    to which broker it sends to, and which one answers.
    """

    def _guarantees(self) -> dict[str, Any]:
        return {
            "acks": ACKS_LEADER,
            "enable_idempotence": False,
            "max_in_flight_requests_per_connection": 1,
        }

    def _open(self, opened: ClientProcess) -> AsyncProducer:
        producer = super()._open(opened)
        sending = producer._sender._requests
        send, take_answers = sending.send, sending._on_answers
        sent_at: dict[int, float] = {}

        def watched_send(broker_id: int, batches: Sequence[Batch]) -> None:
            sent_at[broker_id] = self._now()
            send(broker_id, batches)

        def watched_answers(broker_id: int, answers: Sequence[Answered], pause: float) -> None:
            if any(answer.error is None for _, answer in answers):
                self._look_at_session(broker_id, sent_at[broker_id])
            take_answers(broker_id, answers, pause)

        sending.send = watched_send  # type: ignore[method-assign]
        sending._on_answers = watched_answers
        return producer

    def _look_at_session(self, broker_id: int, sent_at: float) -> None:
        if not self._sessions.had_session(broker_id, sent_at, self._now()):
            self._history.report(
                "REP-4",
                f"broker {broker_id} accepted records of {self.name} for {self._partition}, and "
                f"had no session since {sent_at:.3f}",
            )

    def _look_at_success(self, sent: Sent) -> None:
        """It may be lost again."""
