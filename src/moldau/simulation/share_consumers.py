"""Consumers of a share group in a simulated cluster: the shipped `AsyncQueue`, each in a process.

They take records, accept most of them, release and reject some, keep some for longer than a lock
lasts, with and without renewing it, and forget some. Now and then a process crashes, is frozen, or
closes its queue and is followed by another. In some seeds all of them go for a while, each in one
of these ways, and somebody alters or deletes the offsets of the group. `ShareHistory` knows what
must not be.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import ShareGroupOffset
from moldau.client.consumer.rules.instructions import Failure
from moldau.client.queue.jobs import AsyncJob
from moldau.client.queue.queue import AsyncQueue
from moldau.client.queue.rules.in_flight import SendShareAcknowledge, SendShareFetch, ShareAnswer
from moldau.coordinators.shares.rules.in_flight_state import InFlightBatch
from moldau.errors import ClientError, KafkaError
from moldau.model import AcknowledgeType, TopicPartition
from moldau.simulation.clients import Client, ClientSetup, RestartedClient, draw_random
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess

_TAKE_SECONDS: Final = 0.4
_PAUSE_SECONDS: Final = 0.1
_TASKS: Final = 2
_LIFE_SECONDS: Final = 2.0, 6.0
_LONGEST_JOB_SECONDS: Final = 2.0
"""Longer than a lock lasts."""
_CLOSE_SECONDS: Final = 5.0
_NAP_SECONDS: Final = 0.5
_DELETION_SHARE: Final = 0.4  # of the alterations of offsets

Asked = SendShareFetch | SendShareAcknowledge


class ShareBook(Protocol):
    """Looks into the brokers when a consumer was told something (`share_groups`)."""

    def observe_leaders(self, partition: TopicPartition) -> None:
        """Compare what leaders know of the partition with what they knew before."""
        ...

    def see_record(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A consumer was given it."""
        ...

    def require_stored(
        self, partition: TopicPartition, offsets: Collection[int], kind: AcknowledgeType
    ) -> None:
        """What was confirmed is in the log of the share coordinator."""
        ...

    def require_altered(self, partition: TopicPartition, start_offset: int | None) -> None:
        """So is an alteration; None when all that was known was to be forgotten."""
        ...


class ShareConsumerProgram:
    """What runs in a consumer's process: a queue, and a loop that takes and deals with records."""

    def __init__(
        self,
        consumer: SimulatedShareConsumer,
        process: SimulatedProcess,
        clock: ProcessClock,
        queue: AsyncQueue,
        *,
        is_diligent: bool,
    ) -> None:
        self.process = process
        self.is_ending = False
        self._consumer = consumer
        self._clock = clock
        self._queue = queue
        self._began_at = clock.monotonic()
        self._is_diligent = is_diligent  # accepts everything at once, and does not wait
        self._hear_answers()
        self.task = process.spawn(self._run())

    def _hear_answers(self) -> None:
        """What a broker has given counts, be the record taken or not; a user need not know."""
        machine, book = self._queue._share_consumer._machine, self._consumer.told
        answered, failed = machine.answered, machine.failed

        def hear(asked: Asked, answer: ShareAnswer) -> None:
            topics = self._queue._share_consumer._client.metadata.current.topics.values()
            names = {topic.topic_id: topic.name for topic in topics}
            for row in answer.partitions:
                place = TopicPartition(names.get(row.partition[0], "?"), row.partition[1])
                for first, last, count in row.acquired:
                    book.receive(
                        place, range(first, last + 1), count, asked.sent_at, self._began_at
                    )
                    self._consumer.book.observe_leaders(place)
            answered(asked, answer)

        def miss(asked: Asked, failure: Failure) -> None:
            book.lose_answers(isinstance(asked, SendShareFetch))
            failed(asked, failure)

        machine.answered = hear  # type: ignore[method-assign]
        machine.failed = miss  # type: ignore[method-assign]

    async def _run(self) -> None:
        # While one task waits, a queue takes as many in advance as wait: one alone is quicker.
        tasks = 1 if self._is_diligent else _TASKS
        await asyncio.gather(*(self._work() for _ in range(tasks)))
        try:
            await self._queue.close(_CLOSE_SECONDS)
        except (KafkaError, ClientError):
            return

    async def _work(self) -> None:
        while not self.is_ending:
            try:
                jobs = await self._queue.take_batch(self._consumer.batch_size, _TAKE_SECONDS)
            except (KafkaError, ClientError):
                await self._clock.sleep(_PAUSE_SECONDS)  # an unreachable cluster at the beginning
                continue
            self._consumer.progress += 1
            await self._deal_with(jobs)

    async def _deal_with(self, jobs: Sequence[AsyncJob]) -> None:
        book = self._consumer.told
        alterations = {place: book.alteration(place) for place in map(_place_of, jobs)}
        outcomes = await asyncio.gather(
            *(self._do(job, alterations[_place_of(job)]) for job in jobs)
        )
        stored: dict[tuple[TopicPartition, AcknowledgeType], list[int]] = defaultdict(list)
        for job, kind in zip(jobs, outcomes, strict=True):
            if kind is not None:
                stored[_place_of(job), kind].append(job.record.offset)
        for (partition, kind), offsets in stored.items():
            self._consumer.book.observe_leaders(partition)
            if book.alteration(partition) == alterations[partition]:
                self._consumer.book.require_stored(partition, offsets, kind)

    async def _do(self, job: AsyncJob, alteration: int) -> AcknowledgeType | None:
        """What became of the record, if the broker has confirmed it."""
        consumer, random = self._consumer, self._consumer.random
        consumer.see(job)
        chance = 1.0 if self._is_diligent else random.random()
        try:
            if chance < 0.05:
                return None  # forgotten: the lock will be over
            if chance < 0.20:
                await self._take_long(job, keeps=chance < 0.12)
            kind = AcknowledgeType.ACCEPT
            if 0.20 <= chance < 0.32:
                kind = AcknowledgeType.RELEASE
            elif 0.32 <= chance < 0.37:
                kind = AcknowledgeType.REJECT
            if consumer.told.alteration(_place_of(job)) == alteration:
                consumer.told.attempt(_place_of(job), job.record.offset, kind)
            waits = kind is not AcknowledgeType.ACCEPT or 0.45 <= chance < 1
            await self._say(job, kind, waits=waits)
        except (KafkaError, ClientError):
            return None
        if not waits or consumer.told.alteration(_place_of(job)) != alteration:
            return None
        consumer.told.confirm(_place_of(job), job.record.offset, kind, self._clock.monotonic())
        return kind

    async def _take_long(self, job: AsyncJob, *, keeps: bool) -> None:
        if keeps:
            job.keep()
        await self._clock.sleep(self._consumer.random.uniform(0, _LONGEST_JOB_SECONDS))
        if not keeps and self._consumer.random.random() < 0.5:
            await job.renew()

    async def _say(self, job: AsyncJob, kind: AcknowledgeType, *, waits: bool) -> None:
        if kind is AcknowledgeType.ACCEPT:
            await job.accept(wait=waits)
        elif kind is AcknowledgeType.RELEASE:
            await job.release(wait=waits)
        else:
            await job.reject(wait=waits)


class SimulatedShareConsumer(RestartedClient[ShareConsumerProgram]):
    """One place in a share group, and the queues that have it one after the other."""

    _life_seconds = _LIFE_SECONDS
    _freeze_seconds = 0.2, 2.0
    _chances = 0.2, 0.4, 0.5

    def __init__(
        self,
        setup: ClientSetup,
        *,
        told: ShareHistory,
        book: ShareBook,
        topics: Collection[str],
        broker_count: int,
        is_diligent: bool = False,
    ) -> None:
        super().__init__(setup)
        self.random = random = setup.random
        self.told = told
        self.book = book
        self.may_take = asyncio.Event()  # nobody wants the group to be empty
        self.may_take.set()
        self.is_out = asyncio.Event()  # as far as this one goes, the group will be empty
        self.batch_size = 500 if is_diligent else random.choice((1, 3, 20))
        self._topics = topics
        self._broker_count = broker_count
        self._is_diligent = is_diligent

    async def _finish(self) -> None:
        await super()._finish()
        self.is_out.set()

    async def _draw_mishap(self) -> None:
        if not self.may_take.is_set():
            await self._stay_away()
        elif not self.is_stopping and not self._is_diligent:
            await super()._draw_mishap()

    async def _stay_away(self) -> None:
        """It crashes, is frozen, or closes its queue, and comes back when it may."""
        chance, process = self.random.random(), self._programs[-1].process
        if chance < 0.3:
            self._crash(process)
        elif chance < 0.6:
            process.pause()
        else:
            await self._end_programs()
        self.is_out.set()
        await self.may_take.wait()
        self.is_out.clear()
        if 0.3 <= chance < 0.6:
            process.resume()
        else:
            self._replace_program()

    def _crash(self, process: SimulatedProcess) -> None:
        super()._crash(process)
        self.told.lose_answers(self._broker_count)

    async def _end_programs(self) -> None:
        await super()._end_programs()
        self.told.lose_answers(self._broker_count)

    @property
    def _may_sleep(self) -> bool:
        return super()._may_sleep and self.may_take.is_set()

    def _open_program(self, name: str) -> ShareConsumerProgram:
        opened, random = self._open_process(name), self.random
        queue = AsyncQueue(
            opened.bootstrap,
            group=self.told.group,
            topic=self._topics,
            on_unacknowledged=lambda _record, _error: None,
            network=opened.host,
            clock=opened.clock,
            random=draw_random(random),
            max_poll_records=500 if self._is_diligent else random.choice((5, 500)),
            share_acquire_mode="batch_optimized"
            if self._is_diligent
            else random.choice(("auto", "batch_optimized", "record_limit")),
            request_timeout_ms=1_500,
            default_api_timeout_ms=4_000,
            metadata_max_age_ms=3_000,
            fetch_max_wait_ms=300,
        )
        return ShareConsumerProgram(
            self, opened.process, opened.clock, queue, is_diligent=self._is_diligent
        )

    def see(self, job: AsyncJob) -> None:
        seen = _place_of(job), job.record.offset, bytes(job.record.value or b"")
        self._history.see(*seen)
        self.book.see_record(*seen)


class OffsetAlterer(Client):
    """Sends all consumers of a group away now and then, and has the group begin somewhere else."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        told: ShareHistory,
        book: ShareBook,
        consumers: Sequence[SimulatedShareConsumer],
        admin: AsyncAdmin,
    ) -> None:
        super().__init__(setup)
        self.progress = 1  # nobody waits for it
        self._told = told
        self._book = book
        self._consumers = consumers
        self._admin = admin

    async def run(self) -> None:
        for _ in range(self._random.choice((1, 1, 2))):
            left = self._random.uniform(*_LIFE_SECONDS)
            while (left > 0 or not self._told.partitions) and not self.is_stopping:
                await asyncio.sleep(_NAP_SECONDS)
                left -= _NAP_SECONDS
            if not self.is_stopping:
                await self._empty_and_alter()
        await self._admin.close()

    async def _empty_and_alter(self) -> None:
        for consumer in self._consumers:
            consumer.may_take.clear()
        for consumer in self._consumers:
            await consumer.is_out.wait()
        partitions, random = self._told.partitions, self._random
        if random.random() < _DELETION_SHARE:
            topic = random.choice(sorted({each.topic for each in partitions}))
            await self._delete(topic, [each for each in partitions if each.topic == topic])
        else:
            chosen = random.sample(partitions, random.randint(1, len(partitions)))
            ends = {each: self._history.promised_end(each) for each in chosen}
            await self._alter({each: random.randint(0, end) for each, end in ends.items()})
        for consumer in self._consumers:
            consumer.may_take.set()

    async def _alter(self, starts: Mapping[TopicPartition, int]) -> None:
        for partition, start_offset in starts.items():
            self._told.alter(partition, start_offset)
        group = self._told.group
        await self._repeat_until_done(lambda: self._admin.alter_share_group_offsets(group, starts))
        for partition, start_offset in starts.items():
            self._confirm(partition, start_offset)
        try:
            shown = await self._admin.list_share_group_offsets(group, starts)
        except (KafkaError, ClientError):
            return
        for partition, start_offset in starts.items():
            found = shown.get(partition)
            if isinstance(found, ShareGroupOffset) and found.start_offset != start_offset:
                self._history.report(
                    "SHR-13", f"{group} begins at {start_offset} of {partition}, and shows {found}"
                )

    async def _delete(self, topic: str, partitions: Sequence[TopicPartition]) -> None:
        """The group begins in the topic as in a new one: at its beginning."""
        for partition in partitions:
            self._told.alter(partition, 0)
        group = self._told.group
        await self._repeat_until_done(
            lambda: self._admin.delete_share_group_offsets(group, [topic])
        )
        for partition in partitions:
            self._confirm(partition, None)

    async def _repeat_until_done(
        self, ask: Callable[[], Awaitable[Mapping[Any, KafkaError | None]]]
    ) -> None:
        """However often it has to: members that have crashed are not gone at once."""
        while True:
            try:
                if not any((await ask()).values()):
                    return
            except (KafkaError, ClientError):
                pass
            await asyncio.sleep(_PAUSE_SECONDS)

    def _confirm(self, partition: TopicPartition, start_offset: int | None) -> None:
        self._told.confirm_alteration(partition, asyncio.get_running_loop().time())
        self._book.require_altered(partition, start_offset)


def _place_of(job: AsyncJob) -> TopicPartition:
    return TopicPartition(job.record.topic, job.record.partition)


_FINAL = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})


class SeenLeader(NamedTuple):
    """What a leader knows of a share partition."""

    host: str
    leader_epoch: int
    start_offset: int
    runs: tuple[InFlightBatch, ...]
    state_epoch: int = 0
    """Who alters the group's offsets begins another one."""
    loads: int = 1
    """How often leaders have loaded the share partition: one whose session was lost does it again,
    under the same epoch, and knows what was stored."""


@dataclass(slots=True)
class _Alteration:
    """Where the group begins since its offsets were altered, and what is not told of it."""

    number: int
    start_offset: int
    lost_answers: int
    confirmed_at: float = inf


_UNALTERED: Final = _Alteration(0, 0, 0)


@dataclass(slots=True)
class _Told:
    """Of one record."""

    deliveries: int = 0  # that consumers have heard of
    was_accepted: bool = False  # somebody was about to say so; whether it arrived or not
    was_rejected: bool = False
    confirmed_at: float | None = None
    confirmed: AcknowledgeType | None = None


class ShareHistory:
    """What the consumers of one share group were told, and what must never be. A rule.

    Consumers report every record that a broker has given them, whether the program saw it or not,
    what they are about to say of it, and what was confirmed. `see_leader` has what a leader knows.
    `report(rule, text)` is called for:

    - a record that was accepted or rejected with the broker's confirmation and is given to somebody
      whose request was sent after that, whoever leads (SHR-8);
    - a record that was not accepted, rejected, or delivered as often as the group allows in the
      end; or, with a dead-letter topic, a record that was not accepted and has no letter (SHR-9);
    - a record that is delivered more than `delivery.count.limit` times (SHR-5);
    - after a confirmed alteration of the group's offsets, a record before the new offset that is
      given to a member that joined later, or a record behind it that is not dealt with again,
      whatever was said of it before (SHR-13);
    - in a group that reads committed records, a record of a transaction that was aborted or has no
      end (SHR-12);
    - under one leader, while its session lasts, a delivery count that goes down (SHR-10);
    - a start offset that goes back without an alteration, whoever leads (SHR-2).
    """

    def __init__(self, group: str, delivery_limit: int, report: Callable[[str, str], None]) -> None:
        self.group = group
        self.confirmed = 0  # accepted or rejected, with the broker's word for it
        self._limit = delivery_limit
        self._report = report
        self._told: defaultdict[tuple[TopicPartition, int], _Told] = defaultdict(_Told)
        self._lost_answers = 0  # each may have had records
        self._altered: dict[TopicPartition, _Alteration] = {}
        self._newest: dict[TopicPartition, SeenLeader] = {}
        self._counts: dict[tuple[TopicPartition, int], int] = {}  # of the newest leader, locked

    # Told by consumers

    def receive(
        self,
        partition: TopicPartition,
        offsets: Iterable[int],
        delivery_count: int,
        sent_at: float,
        member_since: float = inf,
    ) -> None:
        """An answer has these records; its request was sent then, and not before. Who is a member
        no more since it was frozen may not have heard so yet."""
        altered = self._altered.get(partition, _UNALTERED)
        for offset in offsets:
            if offset < altered.start_offset and altered.confirmed_at < min(sent_at, member_since):
                self._report(
                    "SHR-13",
                    f"{partition}@{offset} is delivered to {self.group} on a request of "
                    f"{sent_at:.3f}, after it was confirmed at {altered.confirmed_at:.3f} that the "
                    f"group begins at {altered.start_offset}",
                )
            told = self._told[partition, offset]
            told.deliveries += 1
            if told.confirmed_at is not None and told.confirmed_at < sent_at:
                self._report(
                    "SHR-8",
                    f"{partition}@{offset} is delivered to {self.group} on a request of "
                    f"{sent_at:.3f}, after {told.confirmed} was confirmed at "
                    f"{told.confirmed_at:.3f}",
                )
            if delivery_count > self._limit:
                self._report(
                    "SHR-5",
                    f"{partition}@{offset} is delivered {delivery_count} times, and "
                    f"{self._limit} are allowed",
                )

    def lose_answers(self, count: int = 1) -> None:
        """So many requests for records may have had answers that nobody saw."""
        self._lost_answers += count

    def attempt(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """A consumer is about to say what became of a record."""
        told = self._told[partition, offset]
        told.was_accepted |= kind is AcknowledgeType.ACCEPT
        told.was_rejected |= kind is AcknowledgeType.REJECT

    def confirm(
        self, partition: TopicPartition, offset: int, kind: AcknowledgeType, now: float
    ) -> None:
        """The broker has said that it counts."""
        told = self._told[partition, offset]
        if kind in _FINAL and told.confirmed_at is None:
            told.confirmed_at, told.confirmed = now, kind
            self.confirmed += 1

    # Told by whoever alters offsets

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those of which consumers have had records."""
        return sorted({partition for partition, _ in self._told})

    def alteration(self, partition: TopicPartition) -> int:
        """How often it was altered: what is said of records from before does not count."""
        return self._altered.get(partition, _UNALTERED).number

    def alter(self, partition: TopicPartition, start_offset: int) -> None:
        """Somebody is about to have the group begin there; nobody takes anything meanwhile."""
        number = self.alteration(partition) + 1
        self._altered[partition] = _Alteration(number, start_offset, self._lost_answers)
        for place in [place for place in self._told if place[0] == partition]:
            del self._told[place]

    def confirm_alteration(self, partition: TopicPartition, now: float) -> None:
        self._altered[partition].confirmed_at = now

    # Told by whoever looks into the brokers

    def see_leader(self, partition: TopicPartition, seen: SeenLeader) -> None:
        former = self._newest.get(partition)
        if former is not None and seen.state_epoch > former.state_epoch:
            former = None
        if former is not None and (
            seen.leader_epoch < former.leader_epoch or seen.state_epoch < former.state_epoch
        ):
            return  # it does not know yet that it was replaced, or that the offsets were altered
        if former is not None and seen.start_offset < former.start_offset:
            self._report(
                "SHR-2",
                f"{seen.host} begins at {seen.start_offset} of {partition} for {self.group}, and "
                f"{former.host} began at {former.start_offset}",
            )
        if former is None or (seen.leader_epoch, seen.loads) > (
            former.leader_epoch,
            former.loads,
        ):
            self._counts = {
                place: count for place, count in self._counts.items() if place[0] != partition
            }
        self._newest[partition] = seen
        for run in seen.runs:
            if not run.record_state.is_final:
                self._see_run(partition, seen, run)

    def _see_run(self, partition: TopicPartition, seen: SeenLeader, run: InFlightBatch) -> None:
        count = run.record_state.delivery_count
        for offset in range(run.first, run.end):
            known = self._counts.get((partition, offset), 0)
            if count < known:
                self._report(
                    "SHR-10",
                    f"{seen.host} has delivered {partition}@{offset} {count} times to "
                    f"{self.group}, and had {known} times in epoch {seen.leader_epoch}",
                )
            if count and not run.record_state.is_available:
                self._counts[partition, offset] = max(known, count)

    # At the end

    def check_end(
        self,
        present: Mapping[TopicPartition, Collection[int]],
        letters: Collection[tuple[TopicPartition, int]] | None,
        withheld: Mapping[TopicPartition, Collection[int]] = MappingProxyType({}),
    ) -> None:
        """`present` are the offsets of all records that the group has to have had; `letters` are
        those with a dead letter, None without a topic for these. The group may not have had those
        that are `withheld`."""
        for partition, offsets in withheld.items():
            for offset in offsets:
                if (partition, offset) in self._told and self._told[partition, offset].deliveries:
                    self._report(
                        "SHR-12",
                        f"{partition}@{offset} was delivered to {self.group}, and is no record of "
                        "a committed transaction",
                    )
        for partition, offsets in present.items():
            start_offset = self._altered.get(partition, _UNALTERED).start_offset
            for offset in offsets:
                if offset >= start_offset:
                    self._check_fate(partition, offset, letters)

    def _check_fate(
        self,
        partition: TopicPartition,
        offset: int,
        letters: Collection[tuple[TopicPartition, int]] | None,
    ) -> None:
        told = self._told[partition, offset]
        if told.was_accepted:
            return
        if letters is not None and (partition, offset) not in letters:
            self._report(
                "SHR-9",
                f"{partition}@{offset} was never accepted in {self.group}, and has no dead letter",
            )
        altered = self._altered.get(partition, _UNALTERED)
        most = told.deliveries + self._lost_answers - altered.lost_answers
        if not told.was_rejected and most < self._limit:
            self._report(
                "SHR-9",
                f"{partition}@{offset} was delivered {most} times to {self.group} at most, and "
                "never accepted or rejected",
            )
