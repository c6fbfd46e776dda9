"""The table of producers of one partition: sequences, open transactions, and when to forget.

What a batch means for its producer is decided in `rules.producer_sequences`; this keeps the
results. The table changes only by `apply` and `apply_marker`, on append and when the log is read
back, and by expiry. It belongs to the task that owns the log. Files are not its business:
`producer_snapshots` writes the entries and reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.records.batch_header import BatchHeader
from moldau.records.control_records import ControlType, EndTransactionMarker
from moldau.storage.rules.producer_sequences import (
    ACCEPTED,
    Accepted,
    Duplicate,
    ProducerEntry,
    apply_batch,
    apply_marker,
    check_marker,
    check_sequence,
    is_expired,
)


class CompletedTransaction(NamedTuple):
    """A transaction that has just ended, as the transaction index records it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's own offset."""
    aborted: bool
    last_stable_offset: int
    """Where the next undecided transaction begins, or the offset after the marker."""


class ProducerState:
    """Producers by id. Invariant: `end_offset` is the end of what has been applied."""

    __slots__ = ("_completed", "_entries", "_expiration_ms", "_open", "end_offset")

    def __init__(self, expiration_ms: int, end_offset: int = 0) -> None:
        self._expiration_ms = expiration_ms
        self._entries: dict[int, ProducerEntry] = {}
        # Both in the order of first offsets: offsets only grow, and `load` sorts.
        self._open: dict[int, int] = {}  # first offset -> producer id
        self._completed: dict[int, int] = {}  # first offset -> marker's offset
        self.end_offset = end_offset

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> Duplicate | Accepted:
        """Decide on a client's batch; one without a producer id is always accepted."""
        if header.producer_id < 0:
            return ACCEPTED
        return check_sequence(self._entries.get(header.producer_id), header)

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        check_marker(self._entries.get(header.producer_id), header, marker)

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Take note of a data batch that is in the log at this offset."""
        self.end_offset = base_offset + header.last_offset_delta + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return
        entry = apply_batch(self._entries.get(producer_id), header, base_offset)
        self._entries[producer_id] = entry
        if entry.transaction_first_offset == base_offset:
            self._open[base_offset] = producer_id

    def apply_marker(
        self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker
    ) -> CompletedTransaction | None:
        """Take note of an end marker; None when the transaction had nothing in this partition."""
        self.end_offset = base_offset + header.last_offset_delta + 1
        before = self._entries.get(header.producer_id)
        self._entries[header.producer_id] = apply_marker(before, header, marker)
        if before is None or before.transaction_first_offset is None:
            return None
        first_offset = before.transaction_first_offset
        del self._open[first_offset]
        self._completed[first_offset] = base_offset
        return CompletedTransaction(
            header.producer_id,
            first_offset,
            base_offset,
            marker.control_type is ControlType.ABORT,
            next(iter(self._open), base_offset + 1),
        )

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self._open), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The last stable offset stays below this: a transaction begins here that is still open, or
        whose end marker may yet be lost because it is not below the high watermark."""
        if not self._open and not self._completed:
            return None
        self._forget_completed_below(high_watermark)
        first_open = next(iter(self._open), None)
        first_completed = min(self._completed, default=None)
        if first_open is None or first_completed is None:
            return first_completed if first_open is None else first_open
        return min(first_open, first_completed)

    def remove_expired(self, expiration_ms: int, now_ms: int) -> int:
        """Forget producers that have been quiet for `producer.id.expiration.ms`, which may have
        changed; say how many."""
        self._expiration_ms = expiration_ms
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if is_expired(entry, self._expiration_ms, now_ms)
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def reset(self, end_offset: int) -> None:
        """Forget everything, before the log is read again from this offset."""
        self.load((), end_offset, now_ms=0)

    def load(self, entries: Iterable[ProducerEntry], end_offset: int, now_ms: int) -> None:
        """Replace everything by a snapshot taken at this offset, without what has expired."""
        self._entries = {
            entry.producer_id: entry
            for entry in entries
            if not is_expired(entry, self._expiration_ms, now_ms)
        }
        self._open = dict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self._entries.values()
                if entry.transaction_first_offset is not None
            )
        )
        self._completed = {}
        self.end_offset = end_offset

    def _forget_completed_below(self, high_watermark: int) -> None:
        for first_offset, marker_offset in list(self._completed.items()):
            if marker_offset < high_watermark:
                del self._completed[first_offset]
