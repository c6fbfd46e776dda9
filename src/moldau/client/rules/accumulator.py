"""Collects records into batches, one deque per partition, and says which may be sent now. A rule.

A batch may leave when it is full, when it has waited `linger_seconds`, or when somebody is in a
hurry: a flush, a close, a sender that waits for memory. Every record counts against the memory
from `send` until its senders know how it ended.

Not safe for threads: whoever owns it takes turns with a lock. `now` is a monotonic time in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic

from moldau.client.rules.partition_queue import NEVER, PartitionQueue
from moldau.client.rules.producer_batches import MakePromise, P, ProducerBatch
from moldau.client.rules.sequences import ProducerIdentity
from moldau.errors import LeaderNotAvailableError
from moldau.model import TopicPartition
from moldau.records.batch_header import HEADER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a batch is full, old, or too old."""

    batch_bytes: int
    linger_seconds: float
    delivery_seconds: float
    memory_bytes: int
    request_bytes: int
    most_under_way: int
    """Batches of one partition that may be unanswered at once."""
    is_idempotent: bool


@dataclass(slots=True, kw_only=True)
class SendPlan(Generic[P]):
    """What to do now: a request for each broker, and what stands in the way of the rest."""

    requests: dict[int, list[ProducerBatch[P]]] = field(default_factory=dict)
    leaderless: set[TopicPartition] = field(default_factory=set)
    """Partitions with a batch that is ready and has nowhere to go."""
    needs_identity: bool = False
    look_again_at: float = NEVER


FindLeader = Callable[[TopicPartition], int | None]
HasSlot = Callable[[int], bool]


class Accumulator(Generic[P]):
    """All records of one producer that are not confirmed yet."""

    def __init__(self, limits: BatchLimits, make_promise: MakePromise[P]) -> None:
        self.limits = limits
        self.used_bytes = 0
        self.identity: ProducerIdentity | None = None  # as the cluster gave it
        self.hurry_count = 0  # how many are waiting for everything to be sent
        self.make_promise = make_promise
        self._queues: dict[TopicPartition, PartitionQueue[P]] = {}
        self._busy: dict[TopicPartition, PartitionQueue[P]] = {}  # those that are not idle
        # By serial number, oldest first, how many batches are not finished: the halves of one
        # that was divided share its number.
        self._unfinished: dict[int, int] = {}
        self._last_serial = 0

    # Collecting

    def queue_of(self, partition: TopicPartition) -> PartitionQueue[P]:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much more may be collected; when nothing is, anything may."""
        return self.used_bytes + size_bytes <= self.limits.memory_bytes or not self.used_bytes

    def open_batch(self, queue: PartitionQueue[P], now: float) -> ProducerBatch[P]:
        """Begin a batch; the one before it is full."""
        # Busy first: an interrupt (Ctrl-C in `send`) must not leave a batch that nobody looks at.
        self._busy[queue.partition] = queue
        batch = queue.open_batch(self.make_promise(queue.partition), now)
        self._last_serial += 1
        batch.serial = self._last_serial
        self._unfinished[batch.serial] = 1
        return batch

    def close_batch(self, batch: ProducerBatch[P]) -> bool:
        """Let a batch leave before it is full; False when it was closed already."""
        queue = self.queue_of(batch.partition)
        if queue.open is not batch:
            return False
        queue.close_batch()
        return True

    # What is left

    @property
    def last_serial(self) -> int:
        """The number of the batch that was opened last."""
        return self._last_serial

    @property
    def is_empty(self) -> bool:
        return not self._unfinished

    def is_finished_up_to(self, serial: int) -> bool:
        """Whether every batch opened up to that one has come to its end."""
        return next(iter(self._unfinished), serial + 1) > serial

    # Sending

    def plan(self, now: float, find_leader: FindLeader, has_slot: HasSlot) -> SendPlan[P]:
        """Take what may be sent now: at most one request for each broker that has a slot free."""
        plan: SendPlan[P] = SendPlan()
        sizes: dict[int, int] = {}
        linger = 0.0 if self.hurry_count else self.limits.linger_seconds
        for queue in list(self._busy.values()):
            ready_at = queue.ready_at(linger)
            if ready_at > now:
                plan.look_again_at = min(plan.look_again_at, ready_at)
            elif queue.waiting:
                self._plan_queue(queue, plan, sizes, find_leader, has_slot)
        return plan

    def _plan_queue(
        self,
        queue: PartitionQueue[P],
        plan: SendPlan[P],
        sizes: dict[int, int],
        find_leader: FindLeader,
        has_slot: HasSlot,
    ) -> None:
        broker_id = find_leader(queue.partition)
        if broker_id is None:
            plan.leaderless.add(queue.partition)
            queue.waiting[0].last_error = LeaderNotAvailableError(
                f"{queue.partition} has no leader"
            )
        elif self.limits.is_idempotent and not self._may_number(queue):
            plan.needs_identity = True
        elif has_slot(broker_id) and queue.may_send_to(broker_id, self.limits.most_under_way):
            size = sizes.get(broker_id, 0) + queue.waiting[0].size_bytes + HEADER_BYTES
            if broker_id not in sizes or size <= self.limits.request_bytes:
                sizes[broker_id] = size
                batch = queue.take(broker_id, self.identity)
                plan.requests.setdefault(broker_id, []).append(batch)
                self._busy[queue.partition] = self._busy.pop(queue.partition)  # others first now

    def _may_number(self, queue: PartitionQueue[P]) -> bool:
        return self.identity is not None and queue.may_number(self.identity)

    # Coming to an end

    def finish(self, batch: ProducerBatch[P]) -> None:
        """Its senders are about to know how it ended: forget it and free its memory."""
        batch.is_finished = True
        self.used_bytes -= batch.size_bytes
        left = self._unfinished.get(batch.serial, 0) - 1
        if left > 0:
            self._unfinished[batch.serial] = left  # in its old place: the order is what counts
        else:
            self._unfinished.pop(batch.serial, None)
        self.maybe_idle(self.queue_of(batch.partition))

    def divide(self, batch: ProducerBatch[P]) -> tuple[ProducerBatch[P], ...]:
        """Put the halves of a batch in its place; it counts as finished."""
        halves = self.queue_of(batch.partition).put_back_divided(batch, self.make_promise)
        self.used_bytes += sum(half.size_bytes for half in halves)
        self._unfinished[batch.serial] += len(halves)
        self.finish(batch)
        return halves

    def maybe_idle(self, queue: PartitionQueue[P]) -> None:
        if queue.is_idle:
            self._busy.pop(queue.partition, None)

    def take_expired(self, now: float) -> list[ProducerBatch[P]]:
        """Batches whose time is over; the caller finishes them."""
        deadline = now - self.limits.delivery_seconds
        return self._take(queue.take_expired(deadline) for queue in list(self._busy.values()))

    def take_all(self) -> list[ProducerBatch[P]]:
        """Everything, because nothing can be sent any more; the caller finishes them."""
        return self._take(queue.take_all() for queue in list(self._busy.values()))

    def _take(self, parts: Iterable[list[ProducerBatch[P]]]) -> list[ProducerBatch[P]]:
        return [batch for part in parts for batch in part]

    def next_expiry(self) -> float:
        """When the next batch's time is over."""
        oldest = min((queue.oldest_created_at() for queue in self._busy.values()), default=NEVER)
        return oldest + self.limits.delivery_seconds
