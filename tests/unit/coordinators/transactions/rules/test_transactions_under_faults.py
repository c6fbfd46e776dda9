"""Producers, zombies, late copies of requests, crashes of the coordinator at every step: whatever
happens, a transaction is committed in all of its partitions or in none (TXN-1 to TXN-3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.coordinators.transactions.rules.records import decode_transaction, encode_transaction
from moldau.coordinators.transactions.rules.transaction_metadata import MAX_EPOCH, IdAndEpoch
from moldau.coordinators.transactions.rules.transactions import (
    AddPartitions,
    EndTransaction,
    ExpireId,
    InitProducer,
    MarkersToWrite,
    MarkersWritten,
    TransactionAnswer,
    TransactionEvent,
    TransactionRecord,
    Transactions,
    markers_of,
)
from moldau.errors import ErrorCode
from moldau.model import TopicPartition

ID = "pipeline-1"
TIMEOUT_MS = 1000
PARTITIONS = [TopicPartition("out", number) for number in range(3)]


@dataclass
class Process:
    """A producer's process: a zombie from the moment at which the next one has its identity."""

    version: int
    identity: IdAndEpoch | None = None
    transaction: int = 0  # counts its transactions; 0 while none is open
    began: int = 0
    written: set[TopicPartition] = field(default_factory=set)
    unknown_end: bool | None = None  # it asked for an end and does not know what became of it
    is_broken: bool = False  # it was told that another one has its place, or cannot go on


@dataclass
class Written:
    """Something in a partition: whose it is, and what readers will see of it."""

    process: int
    transaction: int
    committed: bool | None = None


class Partition:
    """The leader of a partition, as far as transactions are concerned."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}  # by producer id
        self.open: dict[int, list[Written]] = {}
        self.records: list[Written] = []

    def append(self, identity: IdAndEpoch, written: Written) -> bool:
        if identity.producer_epoch < self.epochs.get(identity.producer_id, -1):
            return False
        self.epochs[identity.producer_id] = identity.producer_epoch
        self.open.setdefault(identity.producer_id, []).append(written)
        self.records.append(written)
        return True

    def mark(self, markers: MarkersToWrite) -> None:
        producer_id, epoch = markers.producer
        known = self.epochs.get(producer_id, -1)
        if epoch < known or (markers.version >= 2 and epoch == known):
            return  # a copy of an old one
        self.epochs[producer_id] = epoch
        for written in self.open.pop(producer_id, []):
            written.committed = markers.commit


class Coordination(RuleBasedStateMachine):
    """`keep` says of each step whether its records and its answer survive."""

    @initialize(version=st.sampled_from([0, 2]), first_epoch=st.sampled_from([0, MAX_EPOCH - 3]))
    def begin(self, version: int, first_epoch: int) -> None:
        self.now_ms = 1_000_000
        self.machine = Transactions()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.next_id = 100
        self.version = version
        self.partitions = {one: Partition() for one in PARTITIONS}
        self.processes: list[Process] = [Process(version)]
        self.requests: list[TransactionEvent] = []  # copies of them may come again, at any time
        self.markers: list[MarkersToWrite] = []  # on their way, or lost, or coming twice
        self.promised: dict[tuple[int, int], bool] = {}  # answered ends of (process, transaction)
        self.init(0)
        self.jump_to_epoch(first_epoch)

    def jump_to_epoch(self, epoch: int) -> None:
        """Epochs are exhausted after 32,766 producers; begin near that."""
        metadata = self.machine.find(ID)
        if metadata is not None and epoch:
            self.write((TransactionRecord(ID, replace(metadata, producer_epoch=epoch)),))
            self.processes[0].identity = IdAndEpoch(metadata.producer_id, epoch)

    # The coordinator

    def spare(self) -> int | None:
        if not self.machine.wants_producer_id(ID):
            return None
        self.next_id += 1
        return self.next_id

    def write(self, records: tuple[TransactionRecord, ...]) -> None:
        for record in records:
            self.log.append(encode_transaction(record))
            self.machine.apply(record, is_live=True)
            metadata = record.metadata
            if metadata is not None and metadata.state.is_prepared:
                self.markers.append(markers_of(metadata))

    def send(self, event: TransactionEvent, keep: str = "all") -> TransactionAnswer | None:
        """None when the answer is lost; with "nothing" the coordinator crashes before others have
        its records, with "records" after."""
        former = list(self.log)
        outcome = self.machine.handle(event, self.now_ms)
        before = len(self.markers)
        self.write(outcome.records)
        if keep == "nothing":
            self.log = former
            del self.markers[before:]  # they are sent when the decision is committed
            self.crash()
            return None
        if keep == "records":
            self.crash()
            return None
        return outcome.answer

    def crash(self) -> None:
        self.machine = Transactions()
        for key, value in self.log:
            record = decode_transaction(key, value)
            assert record is not None
            self.machine.apply(record)
        self.markers += self.machine.markers()

    # Producers

    def init(self, index: int, keep: str = "all") -> None:
        process = self.processes[index]
        event = InitProducer(
            transactional_id=ID,
            timeout_ms=TIMEOUT_MS,
            expected=process.identity,
            spare_id=self.spare(),
        )
        if process.identity is not None:
            self.requests.append(event)
        answer = self.send(event, keep)
        if answer is None:
            return
        if answer.error is ErrorCode.none:
            process.identity = answer.producer
            process.transaction, process.written = 0, set()
            process.unknown_end = None
        elif answer.error is not ErrorCode.concurrent_transactions:
            process.is_broken = True

    def living(self) -> list[int]:
        return [
            i
            for i, one in enumerate(self.processes)
            if one.identity is not None and not one.is_broken
        ]

    faults = st.sampled_from(["all", "all", "all", "all", "records", "nothing"])

    @rule(data=st.data(), keep=faults)
    def another_process_takes_over(self, data: Any, keep: str) -> None:
        waiting = [i for i, one in enumerate(self.processes) if one.identity is None]
        if not waiting:
            self.processes.append(Process(self.version))
            waiting = [len(self.processes) - 1]
        self.init(waiting[0], keep)

    @precondition(lambda self: self.living())
    @rule(data=st.data(), keep=faults)
    def goes_on_after_an_error(self, data: Any, keep: str) -> None:
        """KIP-360: whatever was open is given up."""
        index = data.draw(st.sampled_from(self.living()))
        self.init(index, keep)

    @precondition(lambda self: self.living())
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), keep=faults)
    def writes(self, data: Any, partition: TopicPartition, keep: str) -> None:
        index = data.draw(st.sampled_from(self.living()))
        process = self.processes[index]
        if process.unknown_end is not None or process.identity is None:
            return
        event = AddPartitions(
            transactional_id=ID,
            producer=process.identity,
            partitions=frozenset({partition}),
            version=process.version,
        )
        self.requests.append(event)
        if not process.transaction:
            process.began += 1
            process.transaction, process.written = process.began, set()
        answer = self.send(event, keep)
        if answer is None:
            return
        if answer.error is not ErrorCode.none:
            process.is_broken |= answer.error is not ErrorCode.concurrent_transactions
            return
        verified = self.machine.verify(ID, process.identity, frozenset({partition}))
        if verified[partition] is not ErrorCode.none:
            return
        written = Written(index, process.transaction)
        if self.partitions[partition].append(process.identity, written):
            process.written.add(partition)
        else:
            process.is_broken = True

    @precondition(lambda self: self.living())
    @rule(data=st.data(), commit=st.booleans(), keep=faults)
    def ends(self, data: Any, commit: bool, keep: str) -> None:
        index = data.draw(st.sampled_from(self.living()))
        process = self.processes[index]
        if process.identity is None or not process.transaction:
            return
        if process.unknown_end is not None:
            commit = process.unknown_end  # it asks the same again, until it is told
        event = EndTransaction(
            transactional_id=ID,
            producer=process.identity,
            commit=commit,
            version=process.version,
            spare_id=self.spare(),
        )
        self.requests.append(event)
        answer = self.send(event, keep)
        if answer is None:
            process.unknown_end = commit
        elif answer.error is ErrorCode.none:
            self.promised[index, process.transaction] = commit
            if process.version >= 2:
                process.identity = answer.producer
            process.transaction, process.written, process.unknown_end = 0, set(), None
        elif answer.error is ErrorCode.concurrent_transactions:
            process.unknown_end = commit
        else:
            process.is_broken = True

    @precondition(lambda self: self.requests and self.version >= 2)
    @rule(data=st.data())
    def a_copy_of_an_old_request_arrives(self, data: Any) -> None:
        """Over another connection, long after; nobody waits for its answer. Before transaction
        version 2 an AddPartitionsToTxn of the same epoch can join the next transaction."""
        event = data.draw(st.sampled_from(self.requests))
        self.send(event)

    # Partitions

    @precondition(lambda self: self.markers)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), told=st.booleans())
    def a_marker_is_written(self, data: Any, partition: TopicPartition, told: bool) -> None:
        current = [one for one in self.markers if self.is_current(one)]
        if not current:
            return
        markers = data.draw(st.sampled_from(current))
        if partition not in markers.partitions:
            return
        self.partitions[partition].mark(markers)
        if told:
            self.send(
                MarkersWritten(
                    transactional_id=ID,
                    producer=markers.producer,
                    partitions=frozenset({partition}),
                )
            )

    def is_current(self, markers: MarkersToWrite) -> bool:
        """Copies of old markers exist, too; what fences those is the partition's epoch check, and
        before version 2 nothing (KIP-1228)."""
        if self.version >= 2:
            return True
        found = self.machine.find(ID)
        return found is not None and found.state.is_prepared and markers_of(found) == markers

    # Time

    @rule(passes_ms=st.sampled_from([10, TIMEOUT_MS + 1]))
    def time_passes(self, passes_ms: int) -> None:
        self.now_ms += passes_ms
        for abort in self.machine.find_timed_out(self.now_ms, self.now_ms / 1000):
            self.send(abort)
        self.send(ExpireId(transactional_id=ID, expiration_ms=10**9))

    @rule()
    def the_coordinator_moves(self) -> None:
        self.crash()

    # What must hold

    @invariant()
    def a_transaction_has_one_end(self) -> None:
        ends: dict[tuple[int, int], set[bool]] = {}
        for partition in getattr(self, "partitions", {}).values():
            for written in partition.records:
                if written.committed is not None:
                    key = (written.process, written.transaction)
                    ends.setdefault(key, set()).add(written.committed)
        for key, found in ends.items():
            assert len(found) == 1, f"{key} is torn"
            if key in self.promised:
                assert found == {self.promised[key]}, f"{key} did not end as its producer was told"

    @invariant()
    def what_may_time_out_is_looked_at_and_nothing_else(self) -> None:
        if hasattr(self, "machine"):
            open_now = [one for one in self.machine if one.may_time_out]
            assert list(self.machine._open.values()) == open_now

    def drain(self) -> Iterator[MarkersToWrite]:
        self.crash()  # whoever coordinates now sends all of them
        self.now_ms += 10 * TIMEOUT_MS
        for abort in self.machine.find_timed_out(self.now_ms, self.now_ms / 1000):
            self.send(abort)
        yield from self.machine.markers()

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        for markers in list(self.drain()):
            for one in sorted(markers.partitions):
                found = self.machine.find(ID)
                assert found is not None
                assert found.state.is_prepared, "it is complete before its last marker"
                self.partitions[one].mark(markers)
                self.send(
                    MarkersWritten(
                        transactional_id=ID, producer=markers.producer, partitions=frozenset({one})
                    )
                )
        assert not list(self.machine.markers())
        for partition in self.partitions.values():
            assert not any(partition.open.values()), "something is never decided"
        self.a_transaction_has_one_end()
        for key, commit in self.promised.items():
            if commit:
                for partition in self.partitions.values():
                    for written in partition.records:
                        if (written.process, written.transaction) == key:
                            assert written.committed


TestCoordination = Coordination.TestCase
TestCoordination.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, database=None
)
