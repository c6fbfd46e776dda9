"""A producer's rules against brokers made of rules: no sockets, no clock, any misfortune.

The log applies the broker's own rule for sequences (`storage.rules.producer_sequences`). A record
is known by its value, the number of its sending.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from moldau.client.rules.accumulator import Accumulator, BatchLimits
from moldau.client.rules.batch_delivery import (
    BatchDelivery,
    Delivered,
    Divided,
    Finished,
    NotDelivered,
    PartitionAnswer,
)
from moldau.client.rules.producer_batches import ProducerBatch
from moldau.client.rules.retries import Backoff
from moldau.client.rules.sequences import ProducerIdentity
from moldau.client.rules.verdicts import RetryPolicy
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
from moldau.records.batch_builder import build_batch
from moldau.records.batch_header import BatchHeader, read_header
from moldau.storage.rules.producer_sequences import (
    Duplicate,
    ProducerEntry,
    apply_batch,
    check_sequence,
)

PARTITION = TopicPartition("rivers", 0)
OTHER_PARTITION = TopicPartition("rivers", 1)
RECORD_BYTES = 20
NUMBER = struct.Struct(">i")


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
        limits = BatchLimits(
            batch_bytes=RECORD_BYTES * records_per_batch,
            linger_seconds=0.0,
            delivery_seconds=delivery_seconds,
            memory_bytes=1 << 20,
            request_bytes=1 << 20,
            most_under_way=most_under_way if is_idempotent else 1,
            is_idempotent=is_idempotent,
        )
        self.now = 0.0
        self.accumulator: Accumulator[Promise] = Accumulator(limits, Promise)
        self.delivery = BatchDelivery(
            self.accumulator,
            RetryPolicy(retries=retries, is_idempotent=is_idempotent),
            Backoff(first_seconds=0.1, max_seconds=1.0, jitter=0.0),
            lambda: 0.5,
        )
        self.logs = {PARTITION: PartitionLog(), OTHER_PARTITION: PartitionLog()}
        self.leaders = dict.fromkeys(self.logs, 1)
        self.wires: dict[int, deque[list[Shipment]]] = {1: deque(), 2: deque()}
        self.stragglers: deque[list[Shipment]] = deque()  # cut off, but still on their way
        self.sent: dict[TopicPartition, list[tuple[Promise, int]]] = {p: [] for p in self.logs}
        self.next_producer_id = 7
        self.first_epoch = epoch
        self.refresh_count = 0

    # The user

    def send(self, count: int = 1, partition: TopicPartition = PARTITION) -> None:
        for _ in range(count):
            number = len(self.sent[partition])
            queue = self.accumulator.queue_of(partition)
            batch = queue.open
            if batch is None or batch.size_bytes + RECORD_BYTES > self._batch_bytes:
                batch = self.accumulator.open_batch(queue, self.now)
            index = batch.add((0, None, NUMBER.pack(number), ()), RECORD_BYTES)
            self.accumulator.used_bytes += RECORD_BYTES
            self.sent[partition].append((batch.promise, index))

    @property
    def _batch_bytes(self) -> int:
        return self.accumulator.limits.batch_bytes

    # The shell

    def pump(self) -> int:
        """Send what may be sent; how many requests that were."""
        count = 0
        while True:
            plan = self.delivery.plan(self.now, self.leaders.get, self._has_slot)
            if plan.needs_identity:
                self.accumulator.identity = ProducerIdentity(
                    self.next_producer_id, self.first_epoch
                )
                self.next_producer_id += 1
                continue
            for broker_id, batches in plan.requests.items():
                self.wires[broker_id].append([self._ship(batch) for batch in batches])
                count += 1
            if not plan.requests:
                return count

    def _has_slot(self, broker_id: int) -> bool:
        return len(self.wires[broker_id]) < 5

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

    def _settle(self, shipment: Shipment, answer: PartitionAnswer) -> None:
        result = self.delivery.on_answer(shipment.batch, answer, self.now)
        self.refresh_count += result.refresh_metadata
        self._tell(result.finished)

    def _tell(self, finished: list[Finished[Promise]]) -> None:
        for one in finished:
            one.batch.promise.outcomes.append(one.outcome)

    # The brokers and the network

    def answer(self, broker_id: int = 1, mishap: Mishap = take) -> None:
        """A broker answers its oldest request."""
        if not self.wires[broker_id]:
            return
        for shipment in self.wires[broker_id].popleft():
            partition = shipment.batch.partition
            is_leader = self.leaders[partition] == broker_id
            act = mishap if is_leader or mishap is refuse_for_good else refuse_as_follower
            self._settle(shipment, act(self.logs[partition], shipment))

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
        for request in requests:
            for shipment in request:
                self._settle(shipment, PartitionAnswer(ConnectionLostError("cut")))

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
        self._tell(self.delivery.expire(self.now))

    def finish(self) -> None:
        """Good weather until everything has come to its end."""
        for _ in range(10_000):
            if self.accumulator.is_empty and not any(self.wires.values()):
                return
            self.pump()
            for broker_id in self.wires:
                while self.wires[broker_id]:
                    self.answer(broker_id)
            self.wait(1.0)
        raise AssertionError(f"it does not come to an end: {self.accumulator.used_bytes} bytes")

    # The account

    def outcomes(self, partition: TopicPartition = PARTITION) -> list[Delivered | NotDelivered]:
        found = [promise.outcome_of(index) for promise, index in self.sent[partition]]
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
