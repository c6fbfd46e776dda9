"""A producer's rules against brokers made of rules: no sockets, no clock, any misfortune.

The log applies the broker's own rule for sequences (`storage.rules.producer_state`). A record
is known by its value, the number of its sending.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from moldau.client.producer.rules.built_in_partitioner import RoundRobinPartitioner
from moldau.client.producer.rules.record_accumulator import (
    BATCH_MOVES,
    AskIdentity,
    BatchState,
    Delivered,
    Divided,
    Finish,
    Instruction,
    NotDelivered,
    PartitionAnswer,
    ProducerBatch,
    ProducerIdentity,
    RefreshTopics,
    Send,
)
from moldau.client.producer.rules.sender import ProducerMachine, ProducerSettings, RetryPolicy
from moldau.client.rules.broker_errors import Backoff
from moldau.client.rules.cluster_metadata import (
    Address,
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from moldau.errors import (
    BatchTooLargeError,
    ConnectionLostError,
    InvalidRecordError,
    KafkaError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
)
from moldau.model import TopicPartition
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.record_batch import build_batch
from moldau.storage.rules.producer_state import (
    Duplicate,
    ProducerEntry,
    apply_batch,
    check_sequence,
)

PARTITION = TopicPartition("rivers", 0)
OTHER_PARTITION = TopicPartition("rivers", 1)
RECORD_BYTES = 20
NUMBER = struct.Struct(">i")


def make_cluster(leaders: Mapping[TopicPartition, int]) -> ClusterMetadata:
    """Metadata of one topic, in which these partitions have these leaders; -1 for none."""
    rows = tuple(
        PartitionMetadata(index=partition.partition, leader_id=leader)
        for partition, leader in sorted(leaders.items())
    )
    brokers = {id: Broker(id=id, address=Address("b", id)) for id in leaders.values() if id >= 0}
    topics = {PARTITION.topic: TopicMetadata(name=PARTITION.topic, partitions=rows)}
    return ClusterMetadata(brokers=brokers, topics=topics)


class Promise:
    """What came of a batch, and of its parts."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.outcomes: list[Delivered | NotDelivered | Divided[Promise]] = []

    def outcome_of(self, index: int) -> Delivered | NotDelivered | None:
        if not self.outcomes:
            return None
        (outcome,) = self.outcomes  # never told twice
        if isinstance(outcome, Divided):
            start, part = max((s, id(p), p) for s, p in outcome.parts if s <= index)[::2]
            return part.outcome_of(index - start)
        return outcome


class Shipment(NamedTuple):
    """A batch as it was when it went over the wire."""

    batch: ProducerBatch[Promise]
    header: BatchHeader
    numbers: tuple[int, ...]


class PartitionLog:
    """What the brokers hold of one partition."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.entries: dict[int, ProducerEntry] = {}
        self.largest_batch = 1_000

    def append(self, shipment: Shipment) -> int:
        """The offset; raises what a broker would answer."""
        if len(shipment.numbers) > self.largest_batch:
            raise BatchTooLargeError("too large")
        header = shipment.header
        if header.has_producer:
            found = check_sequence(self.entries.get(header.producer_id), header)
            if isinstance(found, Duplicate):
                return found.first_offset
        offset = len(self.numbers)
        self.numbers += shipment.numbers
        if header.has_producer:
            entry = self.entries.get(header.producer_id)
            self.entries[header.producer_id] = apply_batch(entry, header, offset)
        return offset


Mishap = Callable[[PartitionLog, Shipment], PartitionAnswer]


def take(log: PartitionLog, shipment: Shipment) -> PartitionAnswer:
    try:
        return PartitionAnswer(base_offset=log.append(shipment))
    except KafkaError as error:
        return PartitionAnswer(error)


def refuse_for_now(log: PartitionLog, shipment: Shipment) -> PartitionAnswer:
    return PartitionAnswer(NotEnoughReplicasError("for now"))


def refuse_as_follower(log: PartitionLog, shipment: Shipment) -> PartitionAnswer:
    return PartitionAnswer(NotLeaderError("not any more"))


def take_and_complain(log: PartitionLog, shipment: Shipment) -> PartitionAnswer:
    answer = take(log, shipment)
    return answer if answer.error else PartitionAnswer(NotEnoughReplicasAfterAppendError("late"))


def refuse_for_good(log: PartitionLog, shipment: Shipment) -> PartitionAnswer:
    return PartitionAnswer(InvalidRecordError("nonsense"))


MISHAPS: tuple[Mishap, ...] = (
    refuse_for_now,
    refuse_as_follower,
    take_and_complain,
    refuse_for_good,
)


class ProducerStory:
    """One producer, two brokers, and everything that was sent."""

    def __init__(
        self,
        *,
        is_idempotent: bool = True,
        most_under_way: int = 5,
        retries: int = 1_000_000,
        records_per_batch: int = 2,
        delivery_seconds: float = 100.0,
        epoch: int = 0,
    ) -> None:
        self.now = 0.0
        self.machine: ProducerMachine[Promise] = ProducerMachine(
            ProducerSettings(
                batch_bytes=RECORD_BYTES * records_per_batch,
                linger_seconds=0.0,
                delivery_seconds=delivery_seconds,
                memory_bytes=1 << 20,
                request_bytes=1 << 20,
                most_under_way=most_under_way if is_idempotent else 1,
                most_in_flight=5,
                metadata_max_age_seconds=1e9,
                is_idempotent=is_idempotent,
            ),
            RetryPolicy(retries=retries, is_idempotent=is_idempotent),
            Backoff(first_seconds=0.1, max_seconds=1.0, jitter=0.0),
            lambda: 0.5,
            make_result=Promise,
            make_partitioner=RoundRobinPartitioner,
        )
        self.states: dict[ProducerBatch[Promise], BatchState] = {}  # as they were last seen
        self.logs = {PARTITION: PartitionLog(), OTHER_PARTITION: PartitionLog()}
        self.leaders = dict.fromkeys(self.logs, 1)
        self.wires: dict[int, deque[list[Shipment]]] = {1: deque(), 2: deque()}
        self.stragglers: deque[list[Shipment]] = deque()  # cut off, but still on their way
        self.sent: dict[TopicPartition, list[tuple[Promise, int]]] = {p: [] for p in self.logs}
        self.next_producer_id = 7
        self.first_epoch = epoch
        self.refresh_count = 0
        self.machine.learn_topic(make_cluster(self.leaders).topics[PARTITION.topic])

    # The user

    def send(self, count: int = 1, partition: TopicPartition = PARTITION) -> None:
        for _ in range(count):
            number = len(self.sent[partition])
            queue = self.machine.queue_of(partition)
            batch = queue.open
            if batch is None or batch.size_bytes + RECORD_BYTES > self._batch_bytes:
                batch = self.machine.open_batch(queue, self.now)
                self.states[batch] = BatchState.OPEN
            index = batch.add((0, None, NUMBER.pack(number), ()), RECORD_BYTES)
            self.machine.used_bytes += RECORD_BYTES
            self.sent[partition].append((batch.result, index))

    @property
    def _batch_bytes(self) -> int:
        return self.machine.settings.batch_bytes

    # The shell

    def pump(self) -> int:
        """Send what may be sent; how many requests that were."""
        count = 0
        while True:
            turn = self.machine.end_turn(self.now, make_cluster(self.leaders))
            self._check_moves()
            count += sum(isinstance(one, Send) for one in turn.instructions)
            if not self._perform(turn.instructions):
                return count

    def _perform(self, instructions: Sequence[Instruction[Promise]]) -> bool:
        """Whether another turn follows at once."""
        for one in instructions:
            match one:
                case Send(broker_id, batches):
                    self.wires[broker_id].append([self._ship(batch) for batch in batches])
                case Finish(batch, outcome):
                    batch.result.outcomes.append(outcome)
                case AskIdentity():
                    identity = ProducerIdentity(self.next_producer_id, self.first_epoch)
                    self.machine.identity_given(identity)
                    self.next_producer_id += 1
                    return True
                case RefreshTopics():
                    self.refresh_count += 1
                    topics = make_cluster(self.leaders).topics.values()
                    self.machine.topics_refreshed(list(topics), self.now)
                case _:
                    pass
        return False

    def _check_moves(self) -> None:
        """No batch goes where the table does not send it."""
        for queue in map(self.machine.queue_of, self.logs):
            for batch in (*queue.waiting, *queue.under_way):  # halves, too
                self.states.setdefault(batch, BatchState.WAITING)
        for batch, before in self.states.items():
            now = self.machine.state_of(batch)
            # Between two looks it may have gone further than one move.
            assert now is before or now in _reachable(before), (batch, before, now)
            self.states[batch] = now

    def _ship(self, batch: ProducerBatch[Promise]) -> Shipment:
        identity = batch.identity or ProducerIdentity(-1, -1)
        encoded = build_batch(
            batch.rows,
            producer_id=identity.id,
            producer_epoch=identity.epoch,
            base_sequence=-1 if batch.base_sequence is None else batch.base_sequence,
        )
        numbers = tuple(NUMBER.unpack(row[-2] or b"")[0] for row in batch.rows)
        return Shipment(batch, read_header(encoded), numbers)

    def _give_back(
        self, broker_id: int, answers: list[tuple[ProducerBatch[Promise], PartitionAnswer]]
    ) -> None:
        self.machine.answered(broker_id, answers, self.now)
        self._check_moves()

    # The brokers and the network

    def answer(self, broker_id: int = 1, mishap: Mishap = take) -> None:
        """A broker answers its oldest request."""
        if not self.wires[broker_id]:
            return
        answers = []
        for shipment in self.wires[broker_id].popleft():
            partition = shipment.batch.partition
            is_leader = self.leaders[partition] == broker_id
            act = mishap if is_leader or mishap is refuse_for_good else refuse_as_follower
            answers.append((shipment.batch, act(self.logs[partition], shipment)))
        self._give_back(broker_id, answers)

    def cut(
        self, broker_id: int = 1, *, arrived: int = 0, straggling: int = 0, unsent: int = 0
    ) -> None:
        """The connection is lost. Of its requests so many were worked on, their answers got lost;
        so many more are still somewhere in a buffer; the rest never left, and so many of the last
        ones will do so over the next connection."""
        wire = self.wires[broker_id]
        requests = [wire.popleft() for _ in range(len(wire) - unsent)]
        for request in requests[:arrived]:
            self._append_silently(broker_id, request)
        self.stragglers += requests[arrived : arrived + straggling]
        lost = PartitionAnswer(ConnectionLostError("cut"))
        for request in requests:
            self._give_back(broker_id, [(shipment.batch, lost) for shipment in request])

    def straggle(self, broker_id: int = 1) -> None:
        """The oldest request of a connection that is long gone reaches its broker after all."""
        if self.stragglers:
            self._append_silently(broker_id, self.stragglers.popleft())

    def _append_silently(self, broker_id: int, request: list[Shipment]) -> None:
        for shipment in request:
            partition = shipment.batch.partition
            if self.leaders[partition] == broker_id:
                take(self.logs[partition], shipment)

    def move_leader(self, partition: TopicPartition = PARTITION) -> None:
        self.leaders[partition] = 3 - self.leaders[partition]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pump()

    def finish(self) -> None:
        """Good weather until everything has come to its end."""
        for _ in range(10_000):
            if self.machine.is_empty and not any(self.wires.values()):
                return
            self.pump()
            for broker_id in self.wires:
                while self.wires[broker_id]:
                    self.answer(broker_id)
            self.wait(1.0)
        raise AssertionError(f"it does not come to an end: {self.machine.used_bytes} bytes")

    # The account

    def outcomes(self, partition: TopicPartition = PARTITION) -> list[Delivered | NotDelivered]:
        self.pump()
        found = [result.outcome_of(index) for result, index in self.sent[partition]]
        assert None not in found, "somebody still waits"
        return found  # type: ignore[return-value]

    def delivered(self, partition: TopicPartition = PARTITION) -> list[int]:
        return [
            number
            for number, outcome in enumerate(self.outcomes(partition))
            if isinstance(outcome, Delivered)
        ]

    def numbers(self, partition: TopicPartition = PARTITION) -> list[int]:
        """What is in the log."""
        return self.logs[partition].numbers


def _reachable(state: BatchState) -> frozenset[BatchState]:
    found = frozenset({state})
    while (more := found.union(*(BATCH_MOVES[one] for one in found))) != found:
        found = more
    return found
