"""Transactions in a simulated cluster: a topic of results, those who write and read it, and a look
at all of it at the end. A shell.

In some seeds workers of a group read what the producers write and make results of it, exactly once,
and in some of these a producer has transactions of two phases, over which somebody else decides
(`simulated_transactions`). When everything has healed and every time-out is over, no partition's
last stable offset is behind its high watermark (TXP-6), each coordinator knows what its log says
(TXN-5), and what can be read with `read_committed` is for `transaction_history` (TXN-4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from moldau.coordinators.transactions.rules.records import decode_transaction
from moldau.coordinators.transactions.rules.transaction_metadata import TransactionMetadata
from moldau.errors import ClientError, KafkaError
from moldau.model import TRANSACTION_STATE_TOPIC, TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record_batch import records_of
from moldau.simulation.clients import RACKS, Client
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.machine import DATA_FOLDER, SimulatedMachine, read_log, values_of
from moldau.simulation.transaction_workers import (
    CommittedReader,
    ReadRecord,
    SimulatedPreparer,
    SimulatedWorker,
    ToldEnd,
    TransactionHistory,
)
from moldau.simulation.workload import Workload

SINKS: Final = (TopicPartition("results", 0), TopicPartition("results", 1))
_SHARE_OF_SEEDS: Final = 0.15
_TWO_PHASES_SHARE: Final = 0.4  # of the seeds with transactions
_WORKERS: Final = 2
_ENDING_SECONDS: Final = 14.0
"""For the end of all transactions: those that nobody decides have timed out by then, though wall
clocks differ and jump by hours."""


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
        if not self.is_on:
            return {}
        return {
            "transaction.state.log.num.partitions": str(self._partition_count),
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": min_in_sync,
            "transaction.two.phase.commit.enable": "true" if self.has_two_phases else "false",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "400",
        }

    async def make_topics(self, workload: Workload) -> None:
        if not self.is_on:
            return
        await workload.make_topic("transactions", SINKS[0].topic, len(SINKS), {})

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        """Workers and a reader; the suffix of their names tells generations apart. Nothing is
        asked of what a former generation has done: it ended with a power loss of all machines,
        after which a transaction may hang of which its coordinator knows nothing any more."""
        if not self.is_on:
            return ()
        self._may_hang = self._told is not None
        self._told = book = TransactionHistory(f"x{suffix}", self._history.report, self._told)
        workers: list[Client] = [
            SimulatedWorker(
                name,
                workload.open_client(name),
                self._history,
                workload.random_of(name),
                book=book,
                source=self._source,
                sinks=SINKS,
                bootstrap=workload.bootstrap,
                make_process=workload.open_process,
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
            name,
            workload.open_client(name),
            self._history,
            workload.random_of(name),
            transactional_id="y",
            book=self._told,
            sinks=SINKS,
            bootstrap=workload.bootstrap,
            make_process=workload.open_process,
            admin=workload.open_admin(f"{name}-decides"),
        )

    def _make_reader(self, workload: Workload, name: str) -> CommittedReader:
        random = workload.random_of(name)
        if self._told is None:
            raise RuntimeError("nobody has written anything")
        return CommittedReader(
            name,
            self._history,
            random,
            book=self._told,
            sinks=SINKS,
            bootstrap=workload.bootstrap,
            make_process=workload.open_process,
            rack=random.choice(RACKS) if workload.habits.reads_nearest else "",
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
