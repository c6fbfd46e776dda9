"""Topics of a simulated cluster from which records go: compaction, retention and DeleteRecords.

In some seeds the brokers clean up (the others have their cleaner and retention off, as before), and
there are two more topics with clients of their own: one that is compacted, with few keys, and one
that is trimmed by DeleteRecords and by size or age. `__consumer_offsets` is compacted there, too.
What must be there all the same is for `CleanupHistory`. A shell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from moldau.client.admin.client import AsyncAdmin
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.clock import Clock
from moldau.errors import ClientError, KafkaError, MoldauError
from moldau.model import (
    GROUP_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from moldau.records.batch_header import read_header
from moldau.records.record_batch import ControlType, find_control_type, records_of
from moldau.simulation.clients import Client, ClientSetup, Row, SimulatedProducer, SimulatedReader
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.machine import DATA_FOLDER, SimulatedMachine, read_log, values_of
from moldau.simulation.workload import Workload

KEYED: Final = TopicPartition("keyed", 0)
TRIMMED: Final = TopicPartition("trimmed", 0)
_COMPACTED: Final = frozenset({KEYED.topic, GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
_SHARE_OF_SEEDS: Final = 0.35

_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "400",
        "log.retention.ms": "-1",  # of the topics that keep everything
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "300",
    }
)
_KEYED_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "400",
    "min.cleanable.dirty.ratio": "0.3",
}
_RETENTION_BYTES: Final = 700


class ClusterCleanup:
    """One for each run."""

    def __init__(self, random: Random, history: ClusterHistory) -> None:
        self.is_on = random.random() < _SHARE_OF_SEEDS
        self.told = CleanupHistory(history)
        self._by_size = random.random() < 0.6
        self._history = history

    def options(self, replicas: str, min_in_sync: str) -> Mapping[str, str]:
        """What brokers are told beside all that holds for every seed."""
        return _OPTIONS

    async def make_topics(self, workload: Workload) -> None:
        trimmed = {"segment.ms": "400", "cleanup.policy": "delete", **self._retention}
        for topic, config in ((KEYED.topic, _KEYED_CONFIG), (TRIMMED.topic, trimmed)):
            await workload.make_topic("cleanup", topic, 1, config)
        self.told.begin_keyed(KEYED)
        self.told.begin_trimmed(TRIMMED, _RETENTION_BYTES if self._by_size else None)

    @property
    def _retention(self) -> Mapping[str, str]:
        if self._by_size:
            return {"retention.bytes": str(_RETENTION_BYTES), "retention.ms": "-1"}
        return {"retention.ms": "2500"}

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        """Those who work on these topics; the suffix of their names tells generations apart."""
        keyed = workload.make_producer(f"k{suffix}", KEYED, KeyedProducer)
        keyed_reader = workload.make_reader(f"ck{suffix}", KEYED, KeyedReader)
        keyed.cleanup = keyed_reader.cleanup = self.told
        trimmed_reader = workload.make_reader(f"ct{suffix}", TRIMMED, TrimmedReader)
        trimmed_reader.find_start = partial(_find_start, workload.machines.values())
        trimmer = f"trimmer{suffix}"
        return (
            keyed,
            keyed_reader,
            workload.make_producer(f"at{suffix}", TRIMMED, SimulatedProducer),
            trimmed_reader,
            Trimmer(
                workload.setup(trimmer),
                admin=workload.open_admin(trimmer),
                cleanup=self.told,
                partition=TRIMMED,
                clock=workload.world.clock,
            ),
        )

    # Looking

    def is_compacted(self, partition: TopicPartition) -> bool:
        return self.is_on and partition.topic in _COMPACTED

    def comparable(
        self, partition: TopicPartition, log: Sequence[StoredBatch]
    ) -> Sequence[StoredBatch]:
        """A log as it may be compared with what was seen of it before."""
        return one_by_one(log) if self.is_compacted(partition) else log

    def check_equal(
        self, partition: TopicPartition, logs: Mapping[str, Sequence[StoredBatch]], end: int
    ) -> None:
        """All replicas are equal below an offset, as far as they have to be."""
        if self.is_compacted(partition):
            self.told.check_equal_tables(partition, logs, end)
        elif partition in self.told.trimmed or partition.topic == SHARE_GROUP_STATE_TOPIC:
            self._history.check_equal(partition, from_common_start(logs), end)
        else:
            self._history.check_equal(partition, logs, end)

    def check_replicas(
        self,
        machines: Mapping[int, SimulatedMachine],
        replicas: Mapping[TopicPartition, Sequence[int]],
    ) -> None:
        """Everything that was acknowledged and may not be gone is on every replica."""
        if not self.is_on:
            return
        for broker_id in replicas.get(KEYED, ()):
            machine = machines[broker_id]
            log = read_log(machine.files, DATA_FOLDER, KEYED)
            self.told.check_keyed(KEYED, machine.host, log)
        for broker_id in replicas.get(TRIMMED, ()):
            self._check_trimmed(machines[broker_id])

    def _check_trimmed(self, machine: SimulatedMachine) -> None:
        broker = machine.broker
        held = None if broker is None else broker.services.partitions.find(*TRIMMED)
        if held is None:
            return
        start = held.log.log_start_offset
        self.told.check_start(TRIMMED, machine.host, start, held.log.size_bytes)
        values = values_of(read_log(machine.files, DATA_FOLDER, TRIMMED))
        self._history.check_final_log(TRIMMED, machine.host, values, start)
        # A replica that begins behind a deleted batch knows nothing of its producer, and takes the
        # batch once more if it is sent again, as Kafka's do: only what is left is in order.
        left = (value for offset, value in values.items() if offset >= start)
        self._history.check_order(TRIMMED, left)


def _find_start(machines: Collection[SimulatedMachine], partition: TopicPartition) -> int | None:
    """The last offset at which a replica begins; None while a machine has none."""
    brokers = [machine.broker for machine in machines if machine.broker is not None]
    held = [broker.services.partitions.find(*partition) for broker in brokers]
    starts = [one.log.log_start_offset for one in held if one is not None]
    return max(starts) if len(starts) == len(machines) else None


_KEYS: Final = 5
_TOMBSTONES: Final = 0.15  # of the records

FindStart = Callable[[TopicPartition], int | None]
"""Where the log of a partition begins at its leader; None when that is not known."""


class KeyedProducer(SimulatedProducer):
    """Writes records and tombstones of few keys."""

    cleanup: CleanupHistory  # set by whoever makes it

    def _draw_row(self) -> Row:
        key = b"key-%d" % self._random.randrange(_KEYS)
        if self._random.random() < _TOMBSTONES:
            return key, None
        return key, super()._draw_row()[1]

    def _accept(self, offset: int, rows: Sequence[Row]) -> None:
        super()._accept(offset, rows)
        keyed = [(key or b"", value) for key, value in rows]
        self.cleanup.acknowledge(self._partition, offset, keyed)


class KeyedReader(SimulatedReader):
    """Reads a compacted partition: what it sees may go, but is what was acknowledged."""

    cleanup: CleanupHistory  # set by whoever makes it

    def _see_record(self, record: ConsumerRecord) -> None:
        if record.key is not None:
            value = None if record.value is None else bytes(record.value)
            self.cleanup.see(self._partition, record.offset, bytes(record.key), value)


class TrimmedReader(SimulatedReader):
    """Reads a partition whose beginning goes away: then it goes on where the log begins."""

    find_start: FindStart  # set by whoever makes it

    def _miss(self, consumer: AsyncConsumer, error: Exception) -> None:
        start = self.find_start(self._partition)
        if start is not None and start <= self.position:
            super()._miss(consumer, error)
        else:
            consumer.seek_to_beginning(self._partition)


class Trimmer(Client):
    """Asks for DeleteRecords now and then, at most up to what was promised."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        admin: AsyncAdmin,
        cleanup: CleanupHistory,
        partition: TopicPartition,
        clock: Clock,
    ) -> None:
        super().__init__(setup)
        self.progress = 1  # nobody waits for it
        self._admin = admin
        self._clock = clock
        self._cleanup = cleanup
        self._partition = partition

    async def run(self) -> None:
        while not self.is_stopping:
            if not self.is_resting:
                await self._trim()
            await self._clock.sleep(self._random.expovariate(0.7))

    async def _trim(self) -> None:
        before = self._random.randint(0, self._history.promised_end(self._partition))
        self._cleanup.ask_deletion(self._partition, before)
        with contextlib.suppress(KafkaError, ClientError):
            await self._admin.delete_records({self._partition: before}, timeout_ms=1000)


# What may rightly be gone from the topics of a simulated cluster, and what must be there. A rule.
#
# From a compacted partition a record goes when a later one has its key; a tombstone stays as long
# as `delete.retention.ms` says, which is longer than a run. From a trimmed one goes what lies
# before the log's start, which moves by DeleteRecords and by retention only. Everything else that
# was acknowledged is there, and equal on all replicas:
#
# - the last acknowledged value of a key is there, or a later one (REP-3);
# - a record that is not there was replaced by a later one of its key, in the same log (LOG-6);
# - replicas of a compacted partition have the same last value of each key, and the same record
#   wherever both have one (REP-2); those of a trimmed one are equal from where both begin.


class KeyedRecord(NamedTuple):
    """A record of a compacted log."""

    offset: int
    leader_epoch: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class _Trimming:
    retention_bytes: int | None  # None: retention goes by time, and clocks jump
    deleted_before: int = 0  # the highest offset that DeleteRecords was asked for


@dataclass(slots=True)
class CleanupHistory:
    """What was told of such topics. One for each run."""

    history: ClusterHistory
    keyed: dict[TopicPartition, dict[int, tuple[bytes, bytes | None]]] = field(default_factory=dict)
    """Acknowledged key and value by offset."""
    trimmed: dict[TopicPartition, _Trimming] = field(default_factory=dict)

    # Told by clients

    def begin_keyed(self, partition: TopicPartition) -> None:
        self.keyed[partition] = {}

    def begin_trimmed(self, partition: TopicPartition, retention_bytes: int | None) -> None:
        self.trimmed[partition] = _Trimming(retention_bytes)

    def acknowledge(
        self,
        partition: TopicPartition,
        base_offset: int,
        rows: Sequence[tuple[bytes, bytes | None]],
    ) -> None:
        """A produce request with acks=all was answered without an error."""
        self.keyed[partition].update(enumerate(rows, base_offset))

    def _acknowledged(self, partition: TopicPartition) -> dict[int, tuple[bytes, bytes | None]]:
        """Without what was forgiven after a power loss of all machines."""
        keyed = self.keyed[partition]
        for offset in [each for each in keyed if not self._is_promised(partition, each)]:
            del keyed[offset]
        return keyed

    def _is_promised(self, partition: TopicPartition, offset: int) -> bool:
        return self.history.is_acknowledged(partition, offset)

    def see(self, partition: TopicPartition, offset: int, key: bytes, value: bytes | None) -> None:
        """A consumer read a record of a compacted partition."""
        known = self._acknowledged(partition).get(offset)
        if known not in (None, (key, value)):
            self.history.report(
                "REP-3", f"{partition}@{offset} was acknowledged as {known!r} and reads {value!r}"
            )

    def ask_deletion(self, partition: TopicPartition, before: int) -> None:
        """DeleteRecords is asked for; it may be done whatever is answered."""
        trimming = self.trimmed[partition]
        trimming.deleted_before = max(trimming.deleted_before, before)

    # At the end

    def check_keyed(
        self, partition: TopicPartition, replica: str, batches: Sequence[StoredBatch]
    ) -> None:
        """The log of a replica has all that was acknowledged and not replaced since."""
        records = read_records(batches)
        found = {record.offset: record for record in records}
        last = {record.key: record.offset for record in records}
        for offset, (key, value) in self._acknowledged(partition).items():
            record = found.get(offset)
            if record is not None and (record.key, record.value) != (key, value):
                self.history.report(
                    "REP-3",
                    f"{partition}@{offset} was acknowledged as {key!r}: {value!r}; {replica} has "
                    f"{record.key!r}: {record.value!r}",
                )
            if record is None and last.get(key, -1) < offset:
                self.history.report(
                    "REP-3",
                    f"{partition}@{offset}, {key!r}: {value!r}, was acknowledged; {replica} has "
                    f"neither it nor a later one of its key, the last is at {last.get(key)}",
                )

    def check_start(
        self, partition: TopicPartition, replica: str, log_start_offset: int, size_bytes: int
    ) -> None:
        """A trimmed log begins where somebody asked for it, or keeps what it has to keep.

        After a power loss of all machines, what it kept may be gone with its end.
        """
        trimming = self.trimmed[partition]
        if self.history.kept_end(partition) is not None:
            return
        if log_start_offset <= trimming.deleted_before or trimming.retention_bytes is None:
            return
        if size_bytes < trimming.retention_bytes:
            self.history.report(
                "LOG-12",
                f"{partition} starts at {log_start_offset} on {replica} and has {size_bytes} bytes "
                f"left; retention keeps {trimming.retention_bytes}, and nobody asked to delete "
                f"more than what lies before {trimming.deleted_before}",
            )

    def check_equal_tables(
        self, partition: TopicPartition, logs: Mapping[str, Sequence[StoredBatch]], end: int
    ) -> None:
        """Replicas of a compacted partition mean the same below an offset."""
        known: dict[int, tuple[str, KeyedRecord]] = {}
        first: tuple[str, dict[bytes, KeyedRecord]] | None = None
        for replica, batches in logs.items():
            below = [record for record in read_records(batches) if record.offset < end]
            for record in below:
                other, former = known.setdefault(record.offset, (replica, record))
                if former != record:
                    self.history.report(
                        "REP-2", f"{replica} and {other} differ in {partition}@{record.offset}"
                    )
            table = {record.key: record for record in below}
            if first is None:
                first = replica, table
            elif table != first[1]:
                differing = sorted(
                    key for key in table.keys() | first[1] if table.get(key) != first[1].get(key)
                )
                self.history.report(
                    "REP-2",
                    f"{replica} and {first[0]} have other last values in {partition} below {end}: "
                    f"{[(key, table.get(key), first[1].get(key)) for key in differing[:3]]}",
                )


def read_records(batches: Sequence[StoredBatch]) -> list[KeyedRecord]:
    """The records with keys, in order; control records, what is no record, and records of aborted
    transactions are left out: compaction drops the last at once, on each replica in its time."""
    found: dict[int, KeyedRecord] = {}
    undecided: dict[int, list[int]] = {}  # offsets by producer id
    for batch in batches:
        header = read_header(batch.content)
        try:
            for record in records_of(batch.content, header):
                if header.is_control:
                    offsets = undecided.pop(header.producer_id, ())
                    if find_control_type(record.key) is ControlType.ABORT:
                        for offset in offsets:
                            found.pop(offset, None)
                elif record.key is not None:
                    value = None if record.value is None else bytes(record.value)
                    found[record.offset] = KeyedRecord(
                        record.offset, batch.leader_epoch, bytes(record.key), value
                    )
                    if header.is_transactional:
                        undecided.setdefault(header.producer_id, []).append(record.offset)
        except MoldauError:
            continue
    return list(found.values())


def one_by_one(batches: Sequence[StoredBatch]) -> list[StoredBatch]:
    """Each record of a compacted log as if it were a batch: compaction makes other batches of the
    same records, so that only records can be compared."""
    return [
        StoredBatch(each.offset, each.offset + 1, each.leader_epoch, repr(each[2:]).encode())
        for each in read_records(batches)
    ]


def from_common_start(
    logs: Mapping[str, Sequence[StoredBatch]],
) -> dict[str, Sequence[StoredBatch]]:
    """The logs of trimmed replicas, from where all of them begin: each trims its own."""
    start = max((log[0].base_offset for log in logs.values() if log), default=0)
    return {
        replica: [batch for batch in log if batch.base_offset >= start]
        for replica, log in logs.items()
    }
