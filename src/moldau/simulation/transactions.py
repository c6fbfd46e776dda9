"""Transactions in a simulated cluster: a topic of results, those who write and read it, and a look
at all of it at the end. A shell.

In some seeds workers of a group read what the producers write and make results of it, exactly once
(`transaction_workers`). In some of these a producer prepares its transactions (KIP-939) and ends
some of them itself. Over the others somebody else decides, later than a transaction of one phase
may last; the producer has crashed meanwhile, is frozen, closed, or wants the opposite afterwards.

When everything has healed and every time-out is over, no partition's last stable offset is behind
its high watermark (TXP-6), each coordinator knows what its log says (TXN-5), and
`transaction_workers.TransactionHistory` checks what can be read with `read_committed` (TXN-4).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from moldau.client.admin.client import AsyncAdmin
from moldau.client.cluster import TRANSACTION_KEY, ClusterClient
from moldau.client.producer.producer import AsyncProducer
from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.coordinators.transactions.rules.records import decode_transaction
from moldau.coordinators.transactions.rules.transaction_metadata import TransactionMetadata
from moldau.errors import (
    ClientError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
)
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TRANSACTION_STATE_TOPIC, TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record_batch import records_of
from moldau.simulation.clients import FOREVER_MS, Client, ClientSetup, call_coordinator, draw_random
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.machine import DATA_FOLDER, SimulatedMachine, read_log, values_of
from moldau.simulation.transaction_workers import (
    ABORT_SHARE,
    CLOSE_SECONDS,
    LIFE_SECONDS,
    MOST_RECORDS,
    TIMEOUTS_MS,
    TXN_VERSION,
    CommittedReader,
    ReadRecord,
    SimulatedWorker,
    ToldEnd,
    TransactionHistory,
    WorkerResult,
)
from moldau.simulation.virtual_loop import SimulatedProcess
from moldau.simulation.workload import Workload
from moldau.wire.apis import END_TXN, INIT_PRODUCER_ID, Api

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.response import EndTxnResponse
    from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

SINKS: Final = (TopicPartition("results", 0), TopicPartition("results", 1))
_SHARE_OF_SEEDS: Final = 0.15
_TWO_PHASES_SHARE: Final = 0.4  # of the seeds with transactions
_WORKERS: Final = 2
_ENDING_SECONDS: Final = 14.0
"""For the end of all transactions: those that nobody decides have timed out by then, though wall
clocks differ and jump by hours."""
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


class ClusterTransactions:
    """One for each run."""

    def __init__(
        self, random: Random, history: ClusterHistory, source: str, is_on: bool | None
    ) -> None:
        """Workers read the topic `source`; `is_on` is for the seed to say if it is None."""
        drawn = random.random() < _SHARE_OF_SEEDS
        self.is_on = drawn if is_on is None else is_on
        self._partition_count = random.choice((1, 2))
        self.has_two_phases = random.random() < _TWO_PHASES_SHARE and self.is_on
        self._history = history
        self._source = source
        self._told: TransactionHistory | None = None  # of the present workers
        self._may_hang = False  # a coordinator may have lost what it knew of a transaction

    @property
    def committed(self) -> int:
        """Transactions of the present workers whose commit was confirmed."""
        return 0 if self._told is None else self._told.count(ToldEnd.COMMITTED)

    def options(self, replicas: str, min_in_sync: str) -> Mapping[str, str]:
        """What brokers are told beside all that holds for every seed."""
        return {
            "transaction.state.log.num.partitions": str(self._partition_count),
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": min_in_sync,
            "transaction.two.phase.commit.enable": "true" if self.has_two_phases else "false",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "400",
        }

    async def make_topics(self, workload: Workload) -> None:
        await workload.make_topic("transactions", SINKS[0].topic, len(SINKS), {})

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        """Workers and a reader; the suffix of their names tells generations apart. Nothing is
        asked of what a former generation has done: it ended with a power loss of all machines,
        after which a transaction may hang of which its coordinator knows nothing any more."""
        self._may_hang = self._told is not None
        self._told = book = TransactionHistory(f"x{suffix}", self._history.report, self._told)
        workers: list[Client] = [
            SimulatedWorker(
                workload.setup(name),
                client=workload.open_client(name),
                book=book,
                source=self._source,
                sinks=SINKS,
            )
            for name in (f"x{number}{suffix[1:]}" for number in range(_WORKERS))
        ]
        if self.has_two_phases:
            workers.append(self._make_preparer(workload, f"y{suffix}"))
        reader = self._make_reader(workload, f"cx{suffix}")
        reader.progress += self._may_hang  # then it may wait for ever
        return *workers, reader

    def _make_preparer(self, workload: Workload, name: str) -> SimulatedPreparer:
        """With the transactional id of the one before it, whose transaction does not time out."""
        if self._told is None:
            raise RuntimeError("nobody has begun")
        return SimulatedPreparer(
            workload.setup(name),
            client=workload.open_client(name),
            transactional_id="y",
            book=self._told,
            sinks=SINKS,
            admin=workload.open_admin(f"{name}-decides"),
        )

    def _make_reader(self, workload: Workload, name: str) -> CommittedReader:
        if self._told is None:
            raise RuntimeError("nobody has written anything")
        return CommittedReader(
            workload.setup(name),
            book=self._told,
            sinks=SINKS,
            rack=workload.draw_rack(name),
            max_bytes=workload.habits.fetch_max_bytes,
        )

    def deliver(self, group: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A share group that reads committed records only was given one."""
        if self._told is not None and partition in SINKS:
            self._told.see(partition, offset, value, by=group)

    # At the end

    async def check_end(self, workload: Workload) -> None:
        """All workers have come to their end."""
        if not self.is_on:
            return
        flaw = await self._wait_until_ended(workload, _ENDING_SECONDS)
        if flaw is not None:
            if not (self._may_hang and flaw[0] == "TXP-6"):
                self._history.report(*flaw)
            return
        await self._check_results(workload)

    async def _wait_until_ended(self, workload: Workload, seconds: float) -> tuple[str, str] | None:
        """Return when every transaction has its end, or what has none (rule and text)."""
        end = workload.world.loop.time() + seconds
        while True:
            flaw = self._find_unstable(workload) or await self._find_unfinished(workload)
            if flaw is None or workload.world.loop.time() >= end:
                return flaw
            await workload.world.clock.sleep(0.1)

    def _find_unstable(self, workload: Workload) -> tuple[str, str] | None:
        for machine, partition in workload.leaders():
            stable, end = partition.last_stable_offset, partition.log.log_end_offset
            if stable < end:
                return "TXP-6", (
                    f"the last stable offset of {partition.topic_partition} is {stable} on "
                    f"{machine.host}, whose log ends at {end}"
                )
        return None

    async def _find_unfinished(self, workload: Workload) -> tuple[str, str] | None:
        """A transaction that is not over, or that is not what the log of its coordinator says."""
        for machine in workload.machines.values():
            if machine.broker is None:
                continue
            try:
                found = await machine.broker.services.transactions.list_transactions()
            except KafkaError as error:
                return "LIVE", f"{machine.host} does not tell of its transactions: {error}"
            known = {each.transactional_id: each for each in found}
            logged = self._logged_by(workload, machine)
            for name in sorted(logged.keys() | known.keys()):
                one = known.get(name)
                if one != logged.get(name):
                    return "TXN-5", (
                        f"{machine.host} coordinates {name} and knows {one}; its log says "
                        f"{logged.get(name)}"
                    )
                if one is not None and not one.state.is_idle:
                    return "TXN-3", f"{machine.host} has no end of {one}"
        return None

    def _logged_by(
        self, workload: Workload, coordinator: SimulatedMachine
    ) -> dict[str, TransactionMetadata]:
        logged: dict[str, TransactionMetadata] = {}
        for machine, partition in workload.leaders():
            place = partition.topic_partition
            if machine is coordinator and place.topic == TRANSACTION_STATE_TOPIC:
                logged |= last_of_each(read_log(machine.files, DATA_FOLDER, place))
        return logged

    async def _check_results(self, workload: Workload) -> None:
        if self._told is None:
            return
        ends: dict[TopicPartition, int] = {}
        given: dict[TopicPartition, list[int]] = {}
        for machine, partition in workload.leaders():
            place = partition.topic_partition
            if place.topic == self._source:
                given[place] = list(values_of(read_log(machine.files, DATA_FOLDER, place)))
            elif place in SINKS:
                ends[place] = partition.log.log_end_offset
                values = values_of(read_log(machine.files, DATA_FOLDER, place))
                self._history.check_final_log(place, machine.host, values, 0)
        reader = self._make_reader(workload, "final results")
        readable = await _read_all(reader, ends)
        offsets = await _committed(reader, sorted(given))
        await reader.consumer.close()
        self._told.check_end(readable, offsets, given)


async def _read_all(
    reader: CommittedReader, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[ReadRecord]]:
    found: dict[TopicPartition, list[ReadRecord]] = {each: [] for each in SINKS}
    while True:
        try:
            for record in await reader.consumer.poll(0.3):
                place = TopicPartition(record.topic, record.partition)
                found[place].append(ReadRecord(record.offset, bytes(record.value or b"")))
            positions = {each: await reader.consumer.position(each) for each in ends}
        except (KafkaError, ClientError):
            continue
        if all(positions[each] >= end for each, end in ends.items()):
            return found


async def _committed(
    reader: CommittedReader, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    while True:
        try:
            found = await reader.consumer.committed(partitions)
        except (KafkaError, ClientError):
            continue
        return {each: told.offset for each, told in found.items() if told is not None}


def last_of_each(batches: Sequence[StoredBatch]) -> dict[str, TransactionMetadata]:
    """The last record of each transactional id in a log."""
    found: dict[str, TransactionMetadata] = {}
    for batch in batches:
        header = read_header(batch.content)
        if header.is_control:
            continue
        for row in records_of(batch.content, header):
            record = decode_transaction(row.key, row.value)
            if record is None:
                continue
            if record.metadata is None:
                found.pop(record.transactional_id, None)
            else:
                found[record.transactional_id] = record.metadata
    return found


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
                await self._producer.close(CLOSE_SECONDS)
            elif self.is_waiting:
                await self.is_complete.wait()
                await self._undo()
        except (KafkaError, ClientError):
            pass
        with contextlib.suppress(KafkaError, ClientError):
            await self._producer.close(CLOSE_SECONDS)

    async def _prepare(self) -> None:
        preparer, self._count = self._preparer, self._count + 1
        name = f"{self._name}.{self._count}"
        preparer.book.begin_transaction(name)
        await self._producer.begin_transaction()
        for _ in range(self._random.randint(1, MOST_RECORDS)):
            result = preparer.next_result(name)
            preparer.book.write(result)
            place = self._random.choice(preparer.sinks)
            await self._producer.send(place.topic, result.encode(), partition=place.partition)
        prepared = await self._producer.prepare_transaction()
        if prepared is None:
            raise RuntimeError("nothing of what was sent is prepared")
        preparer.book.end(name, ToldEnd.PREPARED)
        self.handed = _Handed(name, prepared, self._random.random() >= ABORT_SHARE)

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
        setup: ClientSetup,
        *,
        client: ClusterClient,
        transactional_id: str,
        book: TransactionHistory,
        sinks: Sequence[TopicPartition],
        admin: AsyncAdmin,
    ) -> None:
        super().__init__(setup)
        self.book = book
        self.sinks = sinks
        self._id = transactional_id
        self._client = client  # of a successor that takes over what is prepared
        self._admin = admin
        self._life = 0
        self._written = 0

    def next_result(self, name: str) -> WorkerResult:
        """Of no record: its source is a partition that there is not."""
        self._written += 1
        return WorkerResult(name, _NO_SOURCE, self._written, 0)

    def refuse(self, handed: _Handed) -> None:
        self._history.report("TXN-2", f"the opposite of {handed} is a success")

    async def run(self) -> None:
        program = self._start_program()
        try:
            while True:
                await self._live(program)
                if self.is_stopping:
                    break
                program = self._start_program()
            await self._abort_what_is_open()
            await self._admin.close()
        except asyncio.CancelledError:
            program.process.kill()
            raise

    async def _live(self, program: _PreparingProgram) -> None:
        left = self._random.uniform(*LIFE_SECONDS)
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
            "transaction_timeout": TIMEOUTS_MS[0],
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
            "enable2_pc": True,
            "keep_prepared_txn": True,
        }
        given = cast(
            "InitProducerIdResponse", await self._call_until_answered(INIT_PRODUCER_ID, values, 6)
        )
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
        ended = cast(
            "EndTxnResponse", await self._call_until_answered(END_TXN, values, TXN_VERSION)
        )
        if ended.error_code.value:
            self._deny(handed, ended)

    async def _call_until_answered(
        self, api: Api, values: Mapping[str, object], version: int
    ) -> object:
        """However often it has to."""
        while True:
            try:
                answer = await call_coordinator(
                    self._client, self._id, api, values, version, TRANSACTION_KEY
                )
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
                return await producer.close(CLOSE_SECONDS)
            except (KafkaError, ClientError):
                await self._client.clock.sleep(_NAP_SECONDS)

    def _start_program(self) -> _PreparingProgram:
        name, process, producer = self._open_producer()
        return _PreparingProgram(self, process, producer, draw_random(self._random), name)

    def _open_producer(self) -> tuple[str, SimulatedProcess, AsyncProducer]:
        self._life += 1
        name = f"{self.name}.{self._life}"
        opened = self._open_process(name)
        producer = opened.open_producer(
            draw_random(self._random),
            transactional_id=self._id,
            transaction_two_phase_commit_enable=True,
            batch_size=self._random.choice((60, 16_384)),
            delivery_timeout_ms=self._random.choice((4_000, FOREVER_MS)),
        )
        return name, opened.process, producer
