"""The batches of one partition: waiting in a deque, or under way to its leader. A rule.

    send → [waiting: old … new (open)] → [under way] → confirmed
                ↑ retries, to the front ←────┘

What keeps the order:

1. Batches leave from the front only, and one that comes back takes its old place.
2. All batches under way went to one broker, in order.
3. After one came back, nothing leaves until all that are under way have come back, too.
4. Only with idempotence is more than one under way, unless nothing is ever sent again: the broker
   then refuses whatever is behind a batch that it did not take.
5. Nor is more than one under way before the first of an epoch was confirmed: a broker that knows
   nothing of a producer takes any number, even one behind a batch that it has just refused.
6. A batch that was overtaken counts with those that overtook it: brokers remember the last five
   batches of a producer, and it has to be among them for as long as it may come again (SEQ-4).

With idempotence, a batch refused as out of order although none before it is left means that a
number is missing for good: the numbering restarts in a new epoch (`producer_batches`), once nothing
is under way. A batch that was taken and whose answer got lost is recognised by its old number, so
nothing is numbered anew that might have been taken.
"""

from __future__ import annotations

from collections import deque
from typing import Generic

from moldau.client.rules.producer_batches import (
    MakePromise,
    P,
    PartitionNumbers,
    ProducerBatch,
    ProducerIdentity,
    divide,
)
from moldau.model import TopicPartition

NEVER = float("inf")


class PartitionQueue(Generic[P]):
    """One partition. Not safe for threads: `Accumulator`'s owner takes turns."""

    __slots__ = (
        "_broker_id",
        "_is_recovering",
        "_needs_restart",
        "_not_before",
        "_numbers",
        "next_number",
        "open",
        "partition",
        "under_way",
        "waiting",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch[P]] = deque()  # oldest first
        self.open: ProducerBatch[P] | None = None  # the last one waiting, if it takes records
        self.under_way: list[ProducerBatch[P]] = []  # oldest first
        self.next_number = 0  # records in closed batches, ever
        self._broker_id: int | None = None  # where those under way went
        self._is_recovering = False  # one came back: rule 3
        self._needs_restart = False  # a number is missing for good
        self._not_before = 0.0
        self._numbers = PartitionNumbers()

    @property
    def identity(self) -> ProducerIdentity | None:
        """As whom its batches are numbered; None until the first one was."""
        return self._numbers.identity

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.under_way

    # Collecting

    def open_batch(self, promise: P, now: float) -> ProducerBatch[P]:
        """Close the open batch, if there is one, and begin another."""
        self.close_batch()
        self.open = ProducerBatch(self.partition, promise, self.next_number, now)
        self.waiting.append(self.open)
        return self.open

    def close_batch(self) -> None:
        if self.open is not None:
            self.next_number = self.open.end_number
            self.open = None

    # Sending

    def ready_at(self, linger_seconds: float) -> float:
        """From when on the oldest batch may be sent, as far as time matters."""
        if not self.waiting:
            return NEVER
        oldest = self.waiting[0]
        if oldest is not self.open:
            return self._not_before
        return max(self._not_before, oldest.created_at + linger_seconds)

    def may_send_to(self, broker_id: int, most_under_way: int) -> bool:
        """Whether the order allows the oldest batch to leave for this broker."""
        if not self.under_way:
            return True
        since_oldest = len(self.under_way) + self.under_way[0].overtaken_by
        return (
            not self._is_recovering
            and since_oldest < most_under_way
            and self._numbers.allow_more
            and self._broker_id == broker_id
        )

    def may_number(self, newest: ProducerIdentity) -> bool:
        """Whether this identity is good for the next batch; if not, a new one is needed."""
        return not self._needs_restart or self._numbers.may_restart(newest)

    def take(
        self, broker_id: int, newest: ProducerIdentity | None, *, follows: bool = False
    ) -> ProducerBatch[P]:
        """The oldest batch, to be sent to this broker; numbered when there is an identity.

        One that `follows` has the identity that it is told, and no epoch of its own.
        """
        if follows and newest is not None:
            self._numbers.follow(newest)
        if self._needs_restart and newest is not None:
            self._numbers.restart(self._numbered(), newest)
            self._needs_restart = False
        batch = self.waiting.popleft()
        if batch is self.open:
            self.close_batch()
        if newest is not None and batch.identity is None:
            self._numbers.number(batch, newest)
        batch.attempts += 1
        self._broker_id = broker_id
        self.under_way.append(batch)
        return batch

    def _numbered(self) -> list[ProducerBatch[P]]:
        return [batch for batch in self.waiting if batch.identity is not None]

    # Coming back

    def is_oldest(self, batch: ProducerBatch[P]) -> bool:
        """Whether every batch before this one has come to its end."""
        number = batch.first_number
        older_waits = bool(self.waiting) and self.waiting[0].first_number < number
        return not older_waits and self.under_way[0] is batch

    def finish(self, batch: ProducerBatch[P], *, is_confirmed: bool) -> None:
        """It came back for the last time: confirmed, refused or given up."""
        self.under_way.remove(batch)
        if is_confirmed:
            self._numbers.on_confirmed(batch)
        self._note_overtaking(batch)
        self._maybe_recovered()

    def _note_overtaking(self, batch: ProducerBatch[P]) -> None:
        """Those before it that have not come to their end are one batch further back now.

        One that was refused counts as well: an earlier attempt of it may have been written.
        """
        for line in (self.under_way, self.waiting):
            for other in line:
                if other.first_number > batch.first_number:
                    break
                other.overtaken_by += 1

    def put_back(self, batch: ProducerBatch[P], not_before: float) -> None:
        """It came back to be sent again."""
        self._return(batch, (batch,))
        self._not_before = max(self._not_before, not_before)

    def put_back_divided(
        self, batch: ProducerBatch[P], make_promise: MakePromise[P]
    ) -> tuple[ProducerBatch[P], ProducerBatch[P]]:
        """It came back because it is too large: its halves take its place."""
        halves = divide(batch, make_promise)
        self._return(batch, halves)
        return halves

    def demand_restart(self) -> None:
        """A number is missing for good; takes effect when nothing is under way."""
        self._needs_restart = True
        self._is_recovering = bool(self.under_way)

    def _return(self, batch: ProducerBatch[P], parts: tuple[ProducerBatch[P], ...]) -> None:
        self.under_way.remove(batch)
        place = 0
        for other in self.waiting:
            if other.first_number > batch.first_number:
                break
            place += 1
        for offset, part in enumerate(parts):
            self.waiting.insert(place + offset, part)
        self._is_recovering = True
        self._maybe_recovered()

    def _maybe_recovered(self) -> None:
        if not self.under_way:
            self._is_recovering = False

    # Giving up

    def take_expired(self, created_before: float) -> list[ProducerBatch[P]]:
        """Batches made at that time or earlier: those waiting are gone, those under way are
        abandoned but keep their place, since the broker may still take them."""
        expired: list[ProducerBatch[P]] = []
        for batch in self.under_way:
            if batch.created_at <= created_before and not batch.is_abandoned:
                batch.is_abandoned = True
                expired.append(batch)
        while self.waiting and self.waiting[0].created_at <= created_before:
            expired.append(self._pop_oldest())
        return expired

    def take_waiting(self) -> list[ProducerBatch[P]]:
        """Those that are not under way, because they need not be sent any more."""
        taken = list(self.waiting)
        self.close_batch()
        self.waiting.clear()
        return taken

    def take_all(self) -> list[ProducerBatch[P]]:
        """Everything, because nothing can be sent any more."""
        return self.take_expired(NEVER)

    def oldest_created_at(self) -> float:
        """When the oldest batch that somebody still waits for was made."""
        for batch in self.under_way:
            if not batch.is_abandoned:
                return batch.created_at
        return self.waiting[0].created_at if self.waiting else NEVER

    def _pop_oldest(self) -> ProducerBatch[P]:
        batch = self.waiting.popleft()
        if batch is self.open:
            self.close_batch()
        return batch
