"""How an idempotent producer numbers its records, so that brokers recognise what comes again.

Every record of a partition has a number that follows the one before. A broker refuses a batch that
leaves a gap (OUT_OF_ORDER_SEQUENCE_NUMBER), and answers one that it has already with the offset it
got (KIP-98). When a batch was given up, the gap stays for ever; the producer then begins a new
epoch in that partition, numbered from 0, which brokers accept at any time (KIP-360).

Each partition has its own epoch: brokers keep these numbers per partition, and a gap in one is no
reason to disturb the others. Rules: values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from moldau.client.rules.producer_batches import ProducerBatch

MAX_SEQUENCE = 0x7FFFFFFF
MAX_EPOCH = 0x7FFF


class ProducerIdentity(NamedTuple):
    """Who the brokers take us for."""

    id: int
    epoch: int


def add_to_sequence(sequence: int, count: int) -> int:
    """The number so many records further on; 0 follows 2^31-1."""
    return (sequence + count) & MAX_SEQUENCE


class PartitionNumbers:
    """The numbering of one partition: which identity, and which number is next."""

    __slots__ = ("_is_known", "identity", "next_sequence")

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None  # None until the first batch
        self.next_sequence = 0
        self._is_known = False  # whether the broker has confirmed a batch of this identity

    @property
    def allow_more(self) -> bool:
        """Whether a gap would be noticed, so that several batches may be under way at once."""
        return self._is_known or self.identity is None

    def on_confirmed(self, batch: ProducerBatch[Any]) -> None:
        if batch.identity == self.identity:
            self._is_known = True

    def number(self, batch: ProducerBatch[Any], newest: ProducerIdentity) -> None:
        """Give a batch the next numbers. `newest` is what the cluster told us we are."""
        if self.identity is None:
            self.identity = newest
        batch.number(self.identity, self.next_sequence)
        self.next_sequence = add_to_sequence(self.next_sequence, len(batch))

    def may_restart(self, newest: ProducerIdentity) -> bool:
        """Whether a new epoch can begin; when they are used up, a new producer id is needed."""
        identity = self.identity
        return identity is None or identity.epoch < MAX_EPOCH or newest.id != identity.id

    def restart(self, batches: Iterable[ProducerBatch[Any]], newest: ProducerIdentity) -> None:
        """Begin a new epoch and number these batches anew, from 0."""
        if self.identity is None or self.identity.id != newest.id:
            self.identity = newest
        else:
            self.identity = ProducerIdentity(newest.id, self.identity.epoch + 1)
        self.next_sequence = 0
        self._is_known = False
        for batch in batches:
            self.number(batch, newest)
