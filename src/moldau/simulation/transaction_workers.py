"""Workers of a simulated cluster that read, transform and write exactly once, and who reads it.

Each is the shipped `AsyncConsumer` and `AsyncProducer` in a process of its own, with a transaction
for each poll, which is aborted now and then. Processes crash, are frozen for longer than their
transactions may last, and are replaced by others of the same transactional id while they are
frozen: then they come back as zombies. Requests of transactions that are over arrive late.

In some seeds there is a producer that prepares its transactions (KIP-939), and ends some of them
itself. Over the others somebody else decides, later than a transaction of one phase may last; the
producer has crashed meanwhile, is frozen, closed, or wants the opposite afterwards.
`transaction_history` knows what must not be.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from moldau.client.admin.client import AsyncAdmin
from moldau.client.cluster import GROUP_KEY, TRANSACTION_KEY, ClusterClient, find_coordinator_once
from moldau.client.connections import BrokerConnection
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.producer.producer import AsyncProducer
from moldau.client.producer.rules.record_accumulator import ProducerIdentity
from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.config.client_options import ACKS_ALL
from moldau.errors import (
    ClientError,
    CommitFailedError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortedError,
)
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from moldau.records.record_batch import build_batch
from moldau.simulation.clients import Client, MakeProcess
from moldau.simulation.history import ClusterHistory
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess
from moldau.wire.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE, TXN_OFFSET_COMMIT, Api
from moldau.wire.produce_frame import encode_produce_request, parse_produce_response
from moldau.workers import InlineWorkers

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.response import EndTxnResponse
    from kio.schema.init_producer_id.v6.response import InitProducerIdResponse


_PRODUCE_VERSION: Final = 12  # from it on the leader adds the partition to the transaction
_TXN_VERSION: Final = 5  # of EndTxn and TxnOffsetCommit

_SESSION_MS: Final = 1_000
_TIMEOUTS_MS: Final = (1_500, 5_000)
_POLL_SECONDS: Final = 0.3
_MOST_RECORDS: Final = 8
_SHORTEST_LIFE_SECONDS: Final = 0.5
_LONGEST_LIFE_SECONDS: Final = 3.0
_LONGEST_FREEZE_SECONDS: Final = 2.5
_LONGEST_NAP_SECONDS: Final = 0.4  # between two transactions
_CLOSE_SECONDS: Final = 5.0
_ABORT_SHARE: Final = 0.2
_SLOW_SHARE: Final = 0.2
_LONGEST_WORK_SECONDS: Final = 4.5  # on the records of a poll: longer than a member may take
_LATE_SHARE: Final = 0.3  # of the naps
_FOREVER_MS: Final = 10**7

_NO_SOURCE: Final = -1
_HANDED_SHARE: Final = 0.5  # of the prepared transactions
_CLOSED_SHARE: Final = 0.3  # of the producers that wait for somebody else
_SUCCESSOR_SHARE: Final = 0.3
_UNDONE_SHARE: Final = 0.3
_LONGEST_DECISION_SECONDS: Final = 6.0  # longer than any transaction of one phase may last
_NAP_SECONDS: Final = 0.1
_DENIALS: Final = (
    InvalidTxnStateError,
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
)
"""What is said of a transaction that somebody else has ended."""
_PASSING: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
    }
)


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
        process: SimulatedProcess,
        clock: ProcessClock,
        consumer: AsyncConsumer,
        producer: AsyncProducer,
        random: Random,
        name: str,
    ) -> None:
        self.process = process
        self._clock = clock
        self.is_ending = False
        self._worker = worker
        self._consumer = consumer
        self._producer = producer
        self._random = random
        self._name = name
        self._count = 0  # of transactions
        self.task = process.spawn(self._run())

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
            await self._producer.close(_CLOSE_SECONDS)
            await self._consumer.close(_CLOSE_SECONDS)
        except (KafkaError, ClientError):
            return

    async def _transform(self, records: Sequence[ConsumerRecord]) -> None:
        book, producer = self._worker.book, self._producer
        self._count += 1
        name = f"{self._name}.{self._count}"
        book.begin(name)
        ends = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        try:
            async with producer.transaction():
                identity = identity_of(producer)
                for record in records:
                    await self._write(name, record)
                if self._worker.progress and self._random.random() < _SLOW_SHARE:
                    await self._clock.sleep(self._random.uniform(0, _LONGEST_WORK_SECONDS))
                if self._random.random() < _ABORT_SHARE:
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


class SimulatedWorker(Client):
    """One transactional id, and the processes that have it one after the other."""

    def __init__(
        self,
        name: str,
        client: ClusterClient,
        history: ClusterHistory,
        random: Random,
        *,
        book: TransactionHistory,
        source: str,
        sinks: Sequence[TopicPartition],
        bootstrap: str,
        make_process: MakeProcess,
    ) -> None:
        super().__init__(name, history, random)
        self._client = client  # for late requests
        self.book = book
        self.sinks = sinks
        self._source = source
        self._bootstrap = bootstrap
        self._make_process = make_process
        self._life = 0
        self._programs: list[_Program] = []  # the last one is it; the others may be zombies
        self.over: EndedTransaction | None = None  # the last one

    async def run(self) -> None:
        self._begin()
        try:
            while not self.is_stopping:
                await self._sleep(_SHORTEST_LIFE_SECONDS, _LONGEST_LIFE_SECONDS)
                if not self.is_stopping:
                    await self._befall()
            for program in self._programs:
                program.is_ending = True
            for program in self._programs:
                await asyncio.wait((program.task,))
                program.task.result()
        except asyncio.CancelledError:
            for program in self._programs:
                program.process.kill()
            raise

    async def _befall(self) -> None:
        """Something happens to the process, or nothing does."""
        for ended in [each for each in self._programs if each.task.done()]:
            ended.task.result()
            self._programs.remove(ended)
        if not self._programs:
            self._begin()
            return
        if not self.progress:
            return  # with long links a transaction takes a while: let it have one
        program, chance = self._programs[-1], self._random.random()
        if chance < 0.15:
            program.process.kill()
            self._programs.remove(program)
            self._begin()
        elif chance < 0.35:
            program.process.pause()
            await self._sleep(0.2, _LONGEST_FREEZE_SECONDS)
            program.process.resume()
        elif chance < 0.45:
            program.process.pause()
            self._begin()
            await self._sleep(0.2, _LONGEST_FREEZE_SECONDS)
            program.process.resume()

    async def _sleep(self, shortest: float, longest: float) -> None:
        """Short naps, so that the end is not waited for."""
        left = self._random.uniform(shortest, longest)
        while left > 0 and not self.is_stopping:
            await self._client.clock.sleep(min(left, 0.5))
            left -= 0.5
            if self.over is not None and self._random.random() < _LATE_SHARE:
                await self._send_late(self.over)

    def _begin(self) -> None:
        self._life += 1
        name = f"{self.name}.{self._life}"
        random = self._random
        process, clock, host = self._make_process(name)
        consumer = AsyncConsumer(
            self._bootstrap,
            group=self.book.group,
            topics=[self._source],
            commit="manual",
            network=host,
            clock=clock,
            random=Random(random.random()),  # noqa: S311 of the seed
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_SESSION_MS // 4,
            max_poll_interval_ms=2 * _SESSION_MS,
            max_poll_records=_MOST_RECORDS,
            request_timeout_ms=1_500,
            metadata_max_age_ms=3_000,
            fetch_max_wait_ms=300,
        )
        producer = AsyncProducer(
            self._bootstrap,
            transactional_id=self.name,
            transaction_timeout_ms=random.choice(_TIMEOUTS_MS),
            network=host,
            clock=clock,
            random=Random(random.random()),  # noqa: S311 of the seed
            workers=InlineWorkers(),
            linger_ms=random.choice((0, 5)),
            batch_size=random.choice((60, 16_384)),
            request_timeout_ms=1_500,
            delivery_timeout_ms=random.choice((4_000, _FOREVER_MS)),
            max_block_ms=_FOREVER_MS,
            metadata_max_age_ms=3_000,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
        )
        decisions = Random(random.random())  # noqa: S311 of the seed
        self._programs.append(_Program(self, process, clock, consumer, producer, decisions, name))

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
        coordinator = await self._connect(self.book.group, GROUP_KEY)
        rows = [
            {
                "partition_index": partition.partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for partition, offset in over.offsets.items()
        ]
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
        await coordinator.call(TXN_OFFSET_COMMIT, values, version=_TXN_VERSION)

    async def _end_late(self, over: EndedTransaction) -> None:
        """The opposite of what was decided."""
        values = {
            "transactional_id": self.name,
            "producer_id": over.identity.id,
            "producer_epoch": over.identity.epoch,
            "committed": not over.is_commit,
        }
        coordinator = await self._connect(self.name, TRANSACTION_KEY)
        answer = await coordinator.call(END_TXN, values, version=_TXN_VERSION)
        if not cast("EndTxnResponse", answer).error_code.value:
            self._history.report("TXN-2", f"the opposite of {over} of {self.name} is a success")

    async def _connect(self, key: str, key_type: int) -> BrokerConnection:
        coordinator = await find_coordinator_once(self._client, key, key_type)
        return await self._client.connect_to_broker(coordinator.id)


class _Handed(NamedTuple):
    """A prepared transaction, as it is stored with the decision over it."""

    name: str
    prepared: PreparedTransaction
    is_commit: bool
    may_be_over: bool = False
    """The producer has decided so itself, and may not have heard that it is done."""


class _PreparingProgram:
    """What runs in a preparer's process."""

    def __init__(
        self,
        preparer: SimulatedPreparer,
        process: SimulatedProcess,
        producer: AsyncProducer,
        random: Random,
        name: str,
    ) -> None:
        self.process = process
        self.is_ending = False
        self.handed: _Handed | None = None  # what is prepared and not known to be over
        self.is_waiting = False  # for somebody else to complete it
        self.is_complete = asyncio.Event()
        self._preparer = preparer
        self._producer = producer
        self._random = random
        self._name = name
        self._count = 0  # of transactions
        self.task = process.spawn(self._run())

    async def _run(self) -> None:
        try:
            while not self.is_ending and not self.is_waiting:
                await self._prepare()
                await self._decide()
            if self.is_waiting and self._random.random() < _CLOSED_SHARE:
                await self._producer.close(_CLOSE_SECONDS)
            elif self.is_waiting:
                await self.is_complete.wait()
                await self._undo()
        except (KafkaError, ClientError):
            pass
        with contextlib.suppress(KafkaError, ClientError):
            await self._producer.close(_CLOSE_SECONDS)

    async def _prepare(self) -> None:
        preparer, self._count = self._preparer, self._count + 1
        name = f"{self._name}.{self._count}"
        preparer.book.begin(name)
        await self._producer.begin_transaction()
        for _ in range(self._random.randint(1, _MOST_RECORDS)):
            result = preparer.next_result(name)
            preparer.book.write(result)
            place = self._random.choice(preparer.sinks)
            await self._producer.send(place.topic, result.encode(), partition=place.partition)
        prepared = await self._producer.prepare_transaction()
        if prepared is None:
            raise RuntimeError("nothing of what was sent is prepared")
        preparer.book.end(name, ToldEnd.PREPARED)
        self.handed = _Handed(name, prepared, self._random.random() >= _ABORT_SHARE)

    async def _decide(self) -> None:
        """Or leave it to somebody else."""
        if self.handed is None or self._random.random() < _HANDED_SHARE:
            self.is_waiting = True
            return
        name, _, is_commit, _ = self.handed
        self.handed = self.handed._replace(may_be_over=True)
        self._preparer.book.end(name, ToldEnd.ASKED if is_commit else ToldEnd.ABORTED)
        if is_commit:
            await self._producer.commit_transaction()
            self._preparer.book.end(name, ToldEnd.COMMITTED)
        else:
            await self._producer.abort_transaction()
        self.handed = None
        self._preparer.progress += 1

    async def _undo(self) -> None:
        """The opposite of what was decided: it does not know."""
        handed = self.handed
        if handed is None:
            return
        if handed.is_commit:
            await self._producer.abort_transaction()
        else:
            await self._producer.commit_transaction()
        self._preparer.refuse(handed)


class SimulatedPreparer(Client):
    """One transactional id of two phases, the processes that have it one after the other, and
    whoever decides in their place."""

    def __init__(
        self,
        name: str,
        client: ClusterClient,
        history: ClusterHistory,
        random: Random,
        *,
        transactional_id: str,
        book: TransactionHistory,
        sinks: Sequence[TopicPartition],
        bootstrap: str,
        make_process: MakeProcess,
        admin: AsyncAdmin,
    ) -> None:
        super().__init__(name, history, random)
        self.book = book
        self.sinks = sinks
        self._id = transactional_id
        self._client = client  # of a successor that takes over what is prepared
        self._admin = admin
        self._bootstrap = bootstrap
        self._make_process = make_process
        self._life = 0
        self._written = 0

    def next_result(self, name: str) -> WorkerResult:
        """Of no record: its source is a partition that there is not."""
        self._written += 1
        return WorkerResult(name, _NO_SOURCE, self._written, 0)

    def refuse(self, handed: _Handed) -> None:
        self._history.report("TXN-2", f"the opposite of {handed} is a success")

    async def run(self) -> None:
        program = self._begin()
        try:
            while True:
                await self._live(program)
                if self.is_stopping:
                    break
                program = self._begin()
            await self._abort_what_is_open()
            await self._admin.close()
        except asyncio.CancelledError:
            program.process.kill()
            raise

    async def _live(self, program: _PreparingProgram) -> None:
        left = self._random.uniform(_SHORTEST_LIFE_SECONDS, _LONGEST_LIFE_SECONDS)
        while left > 0 and not (program.is_waiting or program.task.done() or self.is_stopping):
            await self._client.clock.sleep(_NAP_SECONDS)
            left -= _NAP_SECONDS
        chance = self._random.random()
        if chance < 0.4:
            program.process.kill()
        elif chance < 0.7:
            program.process.pause()
        await self._complete(program)
        if chance < 0.4:
            return
        program.process.resume()
        program.is_ending = True
        while not program.task.done():
            await self._client.clock.sleep(_NAP_SECONDS)
            if program.is_waiting:
                await self._complete(program)
        program.task.result()
        await self._complete(program)

    async def _complete(self, program: _PreparingProgram) -> None:
        """Decide in the producer's place, if it cannot and has not."""
        handed, is_busy = program.handed, not (program.is_waiting or program.process.is_paused)
        if handed is None or program.is_complete.is_set() or (is_busy and not program.task.done()):
            return
        left = self._random.uniform(0, _LONGEST_DECISION_SECONDS)
        while left > 0 and not self.is_stopping:
            await self._client.clock.sleep(_NAP_SECONDS)
            left -= _NAP_SECONDS
        self.book.end(handed.name, ToldEnd.ASKED if handed.is_commit else ToldEnd.ABORTED)
        if not handed.may_be_over and self._random.random() < _SUCCESSOR_SHARE:
            await self._succeed(handed)
        else:
            await self._ask_to_complete(handed)
        if handed.is_commit:
            self.book.end(handed.name, ToldEnd.COMMITTED)
        program.is_complete.set()
        self.progress += 1

    async def _ask_to_complete(self, handed: _Handed) -> None:
        while (failure := await self._ask_admin(handed, commit=handed.is_commit)) is not None:
            if isinstance(failure, _DENIALS):
                self._deny(handed, failure)
                return
            await self._client.clock.sleep(_NAP_SECONDS)
        wants_opposite = self._random.random() < _UNDONE_SHARE
        if wants_opposite and await self._ask_admin(handed, commit=not handed.is_commit) is None:
            self.refuse(handed)

    async def _ask_admin(self, handed: _Handed, *, commit: bool) -> Exception | None:
        try:
            found = await self._admin.complete_transactions([handed.prepared], commit=commit)
        except (KafkaError, ClientError) as error:
            return error
        return found[self._id]

    def _deny(self, handed: _Handed, failure: object) -> None:
        self._history.report("TXN-6", f"{handed} cannot be completed: {failure}")

    async def _succeed(self, handed: _Handed) -> None:
        """As another producer that is handed what the former one has prepared."""
        values = {
            "transactional_id": self._id,
            "transaction_timeout": _TIMEOUTS_MS[0],
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
            "enable2_pc": True,
            "keep_prepared_txn": True,
        }
        given = cast("InitProducerIdResponse", await self._ask(INIT_PRODUCER_ID, values, 6))
        kept = given.ongoing_txn_producer_id, given.ongoing_txn_producer_epoch
        prepared = handed.prepared
        if given.error_code.value or kept != (prepared.producer_id, prepared.producer_epoch):
            self._deny(handed, given)
            return
        values = {
            "transactional_id": self._id,
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch,
            "committed": handed.is_commit,
        }
        ended = cast("EndTxnResponse", await self._ask(END_TXN, values, _TXN_VERSION))
        if ended.error_code.value:
            self._deny(handed, ended)

    async def _ask(self, api: Api, values: Mapping[str, object], version: int) -> object:
        """However often it has to."""
        while True:
            try:
                coordinator = await find_coordinator_once(self._client, self._id, TRANSACTION_KEY)
                link = await self._client.connect_to_broker(coordinator.id)
                answer = await link.call(api, values, version=version)
                if cast("EndTxnResponse", answer).error_code not in _PASSING:
                    return answer
            except (KafkaError, ClientError):
                pass
            await self._client.clock.sleep(_NAP_SECONDS)

    async def _abort_what_is_open(self) -> None:
        """A crash may have left something that is not prepared, which does not time out."""
        while True:
            _, _, producer = self._open_producer()
            try:
                await producer.begin_transaction()
                await producer.abort_transaction()
                return await producer.close(_CLOSE_SECONDS)
            except (KafkaError, ClientError):
                await self._client.clock.sleep(_NAP_SECONDS)

    def _begin(self) -> _PreparingProgram:
        name, process, producer = self._open_producer()
        decisions = Random(self._random.random())  # noqa: S311 of the seed
        return _PreparingProgram(self, process, producer, decisions, name)

    def _open_producer(self) -> tuple[str, SimulatedProcess, AsyncProducer]:
        self._life += 1
        name = f"{self.name}.{self._life}"
        process, clock, host = self._make_process(name)
        producer = AsyncProducer(
            self._bootstrap,
            transactional_id=self._id,
            transaction_two_phase_commit_enable=True,
            network=host,
            clock=clock,
            random=Random(self._random.random()),  # noqa: S311 of the seed
            workers=InlineWorkers(),
            batch_size=self._random.choice((60, 16_384)),
            request_timeout_ms=1_500,
            delivery_timeout_ms=self._random.choice((4_000, _FOREVER_MS)),
            max_block_ms=_FOREVER_MS,
            metadata_max_age_ms=3_000,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
        )
        return name, process, producer


class CommittedReader(Client):
    """Reads what the workers have written, with `read_committed`."""

    def __init__(
        self,
        name: str,
        history: ClusterHistory,
        random: Random,
        *,
        book: TransactionHistory,
        sinks: Sequence[TopicPartition],
        bootstrap: str,
        make_process: MakeProcess,
        rack: str,
        max_bytes: int,
    ) -> None:
        super().__init__(name, history, random)
        self._book = book
        _, clock, host = make_process(name)
        self.consumer = AsyncConsumer(
            bootstrap,
            group=book.group,
            commit="manual",
            network=host,
            clock=clock,
            random=Random(random.random()),  # noqa: S311 of the seed
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            client_rack=rack,
            fetch_max_bytes=max_bytes,
            request_timeout_ms=1_500,
            metadata_max_age_ms=3_000,
            fetch_max_wait_ms=300,
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
        await self.consumer.close(_CLOSE_SECONDS)


def identity_of(producer: AsyncProducer) -> ProducerIdentity | None:
    """Under which epoch it writes; users have no need to know."""
    transactions = producer._core._machine.transactions
    return None if transactions is None else transactions.identity


# What the transactions of a simulated cluster were told to be, and what must never be. A rule.
#
# Workers read a topic and write two records for each that they were given, with the group's
# offsets, in transactions; each says what it is about to do before it does it:
#
# - Nothing is read with `read_committed` of a transaction that was aborted, or that nobody has
# asked   to commit (TXP-4). - At the end all of a transaction can be read, or nothing; all if its
# commit was confirmed (TXN-4). - What the group has committed and what can be read are the same:
# each record before the committed   offset has its results once, in order, and none behind it has
# any (TXN-4).


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
    """Of the workers of one group. `report(rule, text)` hears of what must not be."""

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

    def begin(self, name: str) -> None:
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
