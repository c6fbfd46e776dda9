"""Workers of a simulated cluster that read, transform and write exactly once, and who reads it.

Each is the shipped `AsyncConsumer` and `AsyncProducer` in a process of its own, with a transaction
for each poll, which is aborted now and then. Processes crash, are frozen for longer than their
transactions may last, and are replaced by others of the same transactional id while they are
frozen: then they come back as zombies. Requests of transactions that are over arrive late.

`TransactionHistory` knows what must not be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from moldau.client.cluster import TRANSACTION_KEY, ClusterClient
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.producer.producer import AsyncProducer
from moldau.client.producer.rules.record_accumulator import ProducerIdentity
from moldau.config.client_options import ACKS_ALL
from moldau.errors import ClientError, CommitFailedError, KafkaError, TransactionAbortedError
from moldau.model import TopicPartition
from moldau.records.record_batch import build_batch
from moldau.simulation.clients import (
    FOREVER_MS,
    Client,
    ClientProcess,
    ClientSetup,
    RestartedClient,
    call_coordinator,
    draw_random,
    offset_row,
)
from moldau.wire.apis import END_TXN, PRODUCE, TXN_OFFSET_COMMIT
from moldau.wire.produce_frame import encode_produce_request, parse_produce_response

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.response import EndTxnResponse


_PRODUCE_VERSION: Final = 12  # from it on the leader adds the partition to the transaction
TXN_VERSION: Final = 5  # of EndTxn and TxnOffsetCommit

_SESSION_MS: Final = 1_000
TIMEOUTS_MS: Final = (1_500, 5_000)
_POLL_SECONDS: Final = 0.3
MOST_RECORDS: Final = 8
LIFE_SECONDS: Final = 0.5, 3.0
_LONGEST_NAP_SECONDS: Final = 0.4  # between two transactions
CLOSE_SECONDS: Final = 5.0
ABORT_SHARE: Final = 0.2
_SLOW_SHARE: Final = 0.2
_LONGEST_WORK_SECONDS: Final = 4.5  # on the records of a poll: longer than a member may take
_LATE_SHARE: Final = 0.3  # of the naps


class _ChangeOfMindError(Exception):
    """The program aborts its transaction."""


class EndedTransaction(NamedTuple):
    """Of which a request may still be under way."""

    identity: ProducerIdentity
    offsets: Mapping[TopicPartition, int]
    is_commit: bool


class _Program:
    """What runs in a worker's process."""

    def __init__(
        self,
        worker: SimulatedWorker,
        opened: ClientProcess,
        consumer: AsyncConsumer,
        producer: AsyncProducer,
        random: Random,
        name: str,
    ) -> None:
        self.process = opened.process
        self._clock = opened.clock
        self.is_ending = False
        self._worker = worker
        self._consumer = consumer
        self._producer = producer
        self._random = random
        self._name = name
        self._count = 0  # of transactions
        self.task = opened.process.spawn(self._run())

    async def _run(self) -> None:
        """Until it is told to end, or cannot go on: it is fenced, or does not know what became of
        a transaction."""
        while not self.is_ending:
            try:
                records = await self._consumer.poll(_POLL_SECONDS)
            except (KafkaError, ClientError):
                continue
            try:
                if records:
                    await self._transform(records)
                    await self._clock.sleep(self._random.uniform(0, _LONGEST_NAP_SECONDS))
            except (KafkaError, ClientError):
                break
        try:
            await self._producer.close(CLOSE_SECONDS)
            await self._consumer.close(CLOSE_SECONDS)
        except (KafkaError, ClientError):
            return

    async def _transform(self, records: Sequence[ConsumerRecord]) -> None:
        book, producer = self._worker.book, self._producer
        self._count += 1
        name = f"{self._name}.{self._count}"
        book.begin_transaction(name)
        ends = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        try:
            async with producer.transaction():
                identity = identity_of(producer)
                for record in records:
                    await self._write(name, record)
                if self._worker.progress and self._random.random() < _SLOW_SHARE:
                    await self._clock.sleep(self._random.uniform(0, _LONGEST_WORK_SECONDS))
                if self._random.random() < ABORT_SHARE:
                    raise _ChangeOfMindError
                book.send_offsets(name, ends)
                await producer.send_offsets(ends, self._consumer.group_metadata)
                book.end(name, ToldEnd.ASKED)
            book.end(name, ToldEnd.COMMITTED)
            self._worker.progress += 1
            self._remember(identity, ends, is_commit=True)
        except _ChangeOfMindError:
            book.end(name, ToldEnd.ABORTED)
            self._go_back(records)
            self._remember(identity, ends, is_commit=False)
        except (TransactionAbortedError, CommitFailedError):
            book.end(name, ToldEnd.ABORTED)
            self._go_back(records)

    async def _write(self, name: str, record: ConsumerRecord) -> None:
        worker = self._worker
        for copy in range(COPIES):
            result = WorkerResult(name, record.partition, record.offset, copy)
            place = worker.sinks[(record.offset + copy) % len(worker.sinks)]
            worker.book.write(result)
            await self._producer.send(place.topic, result.encode(), partition=place.partition)

    def _remember(
        self,
        identity: ProducerIdentity | None,
        offsets: Mapping[TopicPartition, int],
        *,
        is_commit: bool,
    ) -> None:
        """A transaction of which brokers know nothing ends without another epoch."""
        if identity is not None and identity != identity_of(self._producer):
            self._worker.over = EndedTransaction(identity, offsets, is_commit)

    def _go_back(self, records: Iterable[ConsumerRecord]) -> None:
        """As `moldau.client.transform` does."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for partition, offset in first.items():
            if partition in self._consumer.assignment:
                self._consumer.seek(partition, offset)


class SimulatedWorker(RestartedClient[_Program]):
    """One transactional id, and the processes that have it one after the other. A process that is
    frozen may find another one in its place when it comes back: then it is a zombie."""

    _life_seconds = LIFE_SECONDS

    def __init__(
        self,
        setup: ClientSetup,
        *,
        client: ClusterClient,
        book: TransactionHistory,
        source: str,
        sinks: Sequence[TopicPartition],
    ) -> None:
        super().__init__(setup)
        self._client = client  # for late requests
        self.book = book
        self.sinks = sinks
        self._source = source
        self.over: EndedTransaction | None = None  # the last one

    async def _draw_mishap(self) -> None:
        if self.is_stopping:
            return
        for ended in [each for each in self._programs if each.task.done()]:
            ended.task.result()
            self._programs.remove(ended)
        if not self._programs:
            self._start_program()
            return
        if not self.progress:
            return  # with long links a transaction takes a while: let it have one
        program, chance = self._programs[-1], self._random.random()
        if chance < 0.15:
            program.process.kill()
            self._programs.remove(program)
            self._start_program()
        elif chance < 0.35:
            await self._freeze(program.process)
        elif chance < 0.45:
            program.process.pause()
            self._start_program()
            await self._freeze(program.process)

    async def _follow_nap(self) -> None:
        if self.over is not None and self._random.random() < _LATE_SHARE:
            await self._send_late(self.over)

    def _open_program(self, name: str) -> _Program:
        opened, random = self._open_process(name), self._random
        consumer = opened.open_consumer(
            draw_random(random),
            group=self.book.group,
            topics=[self._source],
            commit="manual",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_SESSION_MS // 4,
            max_poll_interval_ms=2 * _SESSION_MS,
            max_poll_records=MOST_RECORDS,
        )
        timeout_ms = random.choice(TIMEOUTS_MS)
        producer = opened.open_producer(
            draw_random(random),
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            linger_ms=random.choice((0, 5)),
            batch_size=random.choice((60, 16_384)),
            delivery_timeout_ms=random.choice((4_000, FOREVER_MS)),
        )
        return _Program(self, opened, consumer, producer, draw_random(random), name)

    # Late requests

    async def _send_late(self, over: EndedTransaction) -> None:
        """As a request of a transaction that is over would that was long under way. While the end
        marker is on its way it may count as one that came again; whatever goes on by now, it is no
        part of what comes after it (TXN-2)."""
        kind = self._random.randrange(3)
        try:
            if kind == 0:
                await self._produce_late(over.identity)
            elif kind == 1:
                await self._commit_late(over)
            else:
                await self._end_late(over)
        except (KafkaError, ClientError):
            return

    async def _produce_late(self, identity: ProducerIdentity) -> None:
        place = self._random.choice(self.sinks)
        value = WorkerResult(f"late-{self.name}", 0, 0, 0).encode()
        batch = build_batch(
            [(self._client.clock.now_ms(), None, value, ())],
            producer_id=identity.id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            transactional=True,
        )
        leader = await self._client.connect_to_leader(place)
        topics = [(place.topic, [(place.partition, batch)])]
        version = _PRODUCE_VERSION - self._random.randrange(2)
        body = encode_produce_request(version, ACKS_ALL, 1_500, topics, self.name)
        answer = await leader.exchange(PRODUCE, version, body)
        told = parse_produce_response(version, answer.frame, answer.position)
        if told.answers[0].error_code:
            await self._client.metadata.refresh((place.topic,))

    async def _commit_late(self, over: EndedTransaction) -> None:
        rows = [offset_row(each.partition, offset) for each, offset in over.offsets.items()]
        values = {
            "transactional_id": self.name,
            "group_id": self.book.group,
            "producer_id": over.identity.id,
            "producer_epoch": over.identity.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self._source, "partitions": rows}],
        }
        await call_coordinator(
            self._client, self.book.group, TXN_OFFSET_COMMIT, values, TXN_VERSION
        )

    async def _end_late(self, over: EndedTransaction) -> None:
        """The opposite of what was decided."""
        values = {
            "transactional_id": self.name,
            "producer_id": over.identity.id,
            "producer_epoch": over.identity.epoch,
            "committed": not over.is_commit,
        }
        answer = await call_coordinator(
            self._client, self.name, END_TXN, values, TXN_VERSION, TRANSACTION_KEY
        )
        if not cast("EndTxnResponse", answer).error_code.value:
            self._history.report("TXN-2", f"the opposite of {over} of {self.name} is a success")


class CommittedReader(Client):
    """Reads what the workers have written, with `read_committed`."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        book: TransactionHistory,
        sinks: Sequence[TopicPartition],
        rack: str,
        max_bytes: int,
    ) -> None:
        super().__init__(setup)
        self._book = book
        self.consumer = self._open_process(self.name).open_consumer(
            draw_random(self._random),
            group=book.group,
            commit="manual",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            client_rack=rack,
            fetch_max_bytes=max_bytes,
        )
        self.consumer.assign(sinks)

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                records = await self.consumer.poll(_POLL_SECONDS)
            except (KafkaError, ClientError):
                continue
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                value = bytes(record.value or b"")
                self._history.see(partition, record.offset, value)
                self._book.see(partition, record.offset, value)
                self.progress += 1
        await self.consumer.close(CLOSE_SECONDS)


def identity_of(producer: AsyncProducer) -> ProducerIdentity | None:
    """Under which epoch it writes; users have no need to know."""
    transactions = producer._sender._machine.transactions
    return None if transactions is None else transactions.identity


COPIES: Final = 2
"""Results of one record, each in a partition of its own."""


class ToldEnd(Enum):
    """What is known of a transaction's end."""

    OPEN = "nobody asked to commit it"
    PREPARED = "it is prepared, and nobody has decided"
    ASKED = "its commit was asked for"
    COMMITTED = "its commit was confirmed"
    ABORTED = "it was aborted"


_MAY_BE_READ: Final = frozenset({ToldEnd.ASKED, ToldEnd.COMMITTED})


class WorkerResult(NamedTuple):
    """What a record says that was made from another: in whose transaction, and from which."""

    transaction: str
    source_partition: int
    source_offset: int
    copy: int

    def encode(self) -> bytes:
        return ":".join(map(str, self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> WorkerResult:
        name, *numbers = value.decode().split(":")
        return cls(name, *map(int, numbers))


class ReadRecord(NamedTuple):
    offset: int
    value: bytes


@dataclass(slots=True)
class _Told:
    outcome: ToldEnd = ToldEnd.OPEN
    written: list[bytes] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)  # of the group


class TransactionHistory:
    """What the transactions of one group's workers were told to be, and what must never be. A rule.

    Workers read a topic and write two records for each that they were given, with the group's
    offsets, in transactions. Each says what it is about to do before it does it. Checked is:

    - Nothing is read with `read_committed` of a transaction that was aborted, or that nobody has
      asked to commit (TXP-4).
    - At the end all of a transaction can be read, or nothing; all if its commit was confirmed
      (TXN-4).
    - What the group has committed and what can be read are the same: each record before the
      committed offset has its results once, in order, and none behind it has any (TXN-4).

    `report(rule, text)` is called for what must not be.
    """

    def __init__(
        self,
        group: str,
        report: Callable[[str, str], None],
        former: TransactionHistory | None = None,
    ) -> None:
        """Nothing is asked of what workers have done of whom a `former` history was told."""
        self.group = group
        self._former: set[str] = set()  # the names of their transactions
        if former is not None:
            self._former = former._former | former._told.keys()
        self._report = report
        self._told: dict[str, _Told] = {}
        self._seen: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)

    # Told by workers

    def begin_transaction(self, name: str) -> None:
        self._told[name] = _Told()

    def write(self, result: WorkerResult) -> None:
        """About to be sent."""
        self._told[result.transaction].written.append(result.encode())

    def send_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """About to be sent."""
        self._told[name].offsets.update(offsets)

    def end(self, name: str, outcome: ToldEnd) -> None:
        self._told[name].outcome = outcome

    def count(self, outcome: ToldEnd) -> int:
        return sum(1 for told in self._told.values() if told.outcome is outcome)

    # Told by readers

    def see(
        self, partition: TopicPartition, offset: int, value: bytes, *, by: str = "a consumer"
    ) -> None:
        """A reader of committed records was given one."""
        self._require_readable(partition, offset, value, by)
        self._seen[partition][offset] = value

    def _require_readable(
        self, partition: TopicPartition, offset: int, value: bytes, by: str = "a consumer"
    ) -> None:
        if self._is_former(value):
            return
        told = self._told.get(WorkerResult.decode(value).transaction)
        if told is None:
            self._report(
                "TXP-2", f"{partition}@{offset}: {by} reads {value!r}, which belongs nowhere"
            )
        elif told.outcome not in _MAY_BE_READ:
            self._report(
                "TXP-4",
                f"{partition}@{offset}: {by} reads {value!r} of a transaction: "
                f"{told.outcome.value}",
            )

    def _is_former(self, value: bytes) -> bool:
        return WorkerResult.decode(value).transaction in self._former

    # At the end

    def check_end(
        self,
        readable: Mapping[TopicPartition, Sequence[ReadRecord]],
        committed: Mapping[TopicPartition, int],
        given: Mapping[TopicPartition, Collection[int]],
    ) -> None:
        """`readable` is all that can be read with `read_committed`, `committed` are the group's
        offsets, and `given` the offsets of all records that there are to work on."""
        values: Counter[bytes] = Counter()
        for partition, records in readable.items():
            for record in records:
                self._require_readable(partition, *record)
            self._check_seen(partition, {each.offset: each.value for each in records})
            present = [each for each in records if not self._is_former(each.value)]
            self._check_order(partition, present)
            values.update(each.value for each in present)
        for name, told in self._told.items():
            self._check_whole(name, told, values, committed)
        self._check_sources(values, committed, given)

    def _check_seen(self, partition: TopicPartition, readable: Mapping[int, bytes]) -> None:
        for offset, value in self._seen[partition].items():
            if readable.get(offset) != value:
                self._report(
                    "TXP-4",
                    f"{partition}@{offset} read {value!r} once, and reads {readable.get(offset)!r}",
                )

    def _check_order(self, partition: TopicPartition, records: Sequence[ReadRecord]) -> None:
        last: dict[int, int] = {}  # by partition of the source
        for record in records:
            result = WorkerResult.decode(record.value)
            if result.source_offset <= last.get(result.source_partition, -1):
                self._report(
                    "TXN-4", f"{partition}@{record.offset}: {record.value!r} comes again, or late"
                )
            last[result.source_partition] = result.source_offset

    def _check_whole(
        self,
        name: str,
        told: _Told,
        values: Mapping[bytes, int],
        committed: Mapping[TopicPartition, int],
    ) -> None:
        missing = [value for value in told.written if not values.get(value)]
        is_there = len(missing) < len(told.written)
        if missing and (is_there or told.outcome is ToldEnd.COMMITTED):
            self._report(
                "TXN-4",
                f"{name} ({told.outcome.value}): {len(missing)} of {len(told.written)} records "
                f"cannot be read, {missing[0]!r} and others",
            )
        if not is_there and told.outcome is not ToldEnd.COMMITTED:
            return
        for partition, offset in told.offsets.items():
            if committed.get(partition, -1) < offset:
                self._report(
                    "TXN-4",
                    f"{name} can be read and has offset {offset} of {partition}; "
                    f"{self.group} has {committed.get(partition)}",
                )

    def _check_sources(
        self,
        values: Mapping[bytes, int],
        committed: Mapping[TopicPartition, int],
        given: Mapping[TopicPartition, Collection[int]],
    ) -> None:
        made: Counter[tuple[int, int]] = Counter()
        for value, count in values.items():
            result = WorkerResult.decode(value)
            made[result.source_partition, result.source_offset] += count
        for partition, offsets in given.items():
            end = committed.get(partition, 0)
            for offset in offsets:
                expected = COPIES if offset < end else 0
                found = made[partition.partition, offset]
                if found != expected:
                    self._report(
                        "TXN-4",
                        f"{partition}@{offset} has {found} results where {expected} have to be: "
                        f"{self.group} has committed {end}",
                    )
