"""The table of producers of one partition: sequences, open transactions, and when to forget.

What a batch means for its producer is decided in `rules.producer_sequences`; this keeps the
results. The table changes only by `apply` and `apply_marker`, on append and when the log is read
back, and by expiry. Beside it stand the questions to transaction coordinators that are under way
(`rules.transaction_verification`). It belongs to the task that owns the log. Files are not its
business: `producer_snapshots` writes the entries and reads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.records.batch_header import BatchHeader
from moldau.records.record_batch import ControlType, EndTransactionMarker
from moldau.storage.rules.producer_sequences import (
    ACCEPTED,
    Accepted,
    Duplicate,
    ProducerEntry,
    apply_batch,
    apply_marker,
    check_epoch,
    check_marker,
    check_sequence,
    find_duplicate,
    is_expired,
)
from moldau.storage.rules.transaction_verification import (
    FIRST_NUMBER,
    MUST_BE_OPEN,
    Verification,
    ask_again,
    check_verified,
    ends_question,
    is_open,
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

    __slots__ = (
        "_completed",
        "_entries",
        "_expiration_ms",
        "_heard_ms",
        "_next_number",
        "_open",
        "_verifications",
        "end_offset",
    )

    def __init__(self, expiration_ms: int, end_offset: int = 0) -> None:
        self._expiration_ms = expiration_ms
        self._entries: dict[int, ProducerEntry] = {}
        # When this broker last heard from a producer, by its clock. Not part of the entries, which
        # are the same on every replica.
        self._heard_ms: dict[int, int] = {}
        # In the order of first offsets: offsets only grow, and `load` sorts.
        self._open: dict[int, int] = {}  # first offset -> producer id
        # First offset and marker's offset of transactions whose end may not be committed yet. Both
        # grow: one that began earlier and ended later than another takes its place.
        self._completed: deque[tuple[int, int]] = deque()
        self._verifications: dict[int, Verification] = {}  # by producer id
        self._next_number = FIRST_NUMBER
        self.end_offset = end_offset

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> Duplicate | Accepted:
        """Decide on a batch; one without a producer id is always accepted.

        One with a producer id and without a sequence comes from a group coordinator.
        """
        if header.producer_id < 0:
            return ACCEPTED
        entry = self._entries.get(header.producer_id)
        if header.base_sequence < 0:
            check_epoch(entry, header)
            return ACCEPTED
        return check_sequence(entry, header)

    def require_verified(self, header: BatchHeader, verification: int) -> None:
        """Raise unless a transactional batch may be appended with what `begin_verification` gave
        for it (TXP-2); one that is in the log already always may come again."""
        entry = self._entries.get(header.producer_id)
        if header.base_sequence >= 0 and find_duplicate(entry, header) is not None:
            return
        check_verified(entry, self._verifications.get(header.producer_id), header, verification)

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int = 0
    ) -> bool:
        """Whether an end marker is to be appended; raises when it comes too late."""
        entry = self._entries.get(header.producer_id)
        return check_marker(entry, header, marker, transaction_version)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, bumps_epochs: bool
    ) -> int:
        """What a transactional batch needs to be appended: the number of a question to its
        coordinator, or `MUST_BE_OPEN` when its transaction is open here already."""
        if is_open(self._entries.get(producer_id), producer_epoch):
            return MUST_BE_OPEN
        wanted = Verification(self._next_number, producer_epoch, sequence, bumps_epochs)
        asked = ask_again(self._verifications.get(producer_id), wanted)
        self._next_number += asked.number == wanted.number
        self._verifications[producer_id] = asked
        return asked.number

    def end_verification(self, producer_id: int, number: int) -> None:
        """The coordinator has not confirmed the question: the next batch asks another one."""
        known = self._verifications.get(producer_id)
        if known is not None and known.number == number:
            del self._verifications[producer_id]

    def apply(self, header: BatchHeader, base_offset: int, heard_ms: int) -> None:
        """Take note of a data batch that is in the log at this offset."""
        self.end_offset = base_offset + header.last_offset_delta + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return
        entry = apply_batch(self._entries.get(producer_id), header, base_offset)
        self._entries[producer_id] = entry
        self._heard_ms[producer_id] = heard_ms
        if entry.transaction_first_offset == base_offset:
            self._open[base_offset] = producer_id
            self._verifications.pop(producer_id, None)

    def apply_marker(
        self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker, heard_ms: int
    ) -> CompletedTransaction | None:
        """Take note of an end marker; None when the transaction had nothing in this partition.

        Whatever was asked about the transaction before is answered by it (TXP-2).
        """
        self.end_offset = base_offset + header.last_offset_delta + 1
        known = self._verifications.get(header.producer_id)
        if known is not None and ends_question(known, header.producer_epoch):
            del self._verifications[header.producer_id]
        before = self._entries.get(header.producer_id)
        self._entries[header.producer_id] = apply_marker(before, header, marker)
        self._heard_ms[header.producer_id] = heard_ms
        if before is None or before.transaction_first_offset is None:
            return None
        first_offset = before.transaction_first_offset
        del self._open[first_offset]
        while self._completed and self._completed[-1][0] > first_offset:
            self._completed.pop()
        self._completed.append((first_offset, base_offset))
        return CompletedTransaction(
            header.producer_id,
            first_offset,
            base_offset,
            marker.control_type is ControlType.ABORT,
            next(iter(self._open), base_offset + 1),
        )

    def is_aborted_by(self, header: BatchHeader, marker: EndTransactionMarker) -> bool:
        """Whether an end marker aborts a transaction that has something in this partition."""
        entry = self._entries.get(header.producer_id)
        is_open = entry is not None and entry.transaction_first_offset is not None
        return is_open and marker.control_type is ControlType.ABORT

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The last stable offset stays below this (TXP-1): a transaction begins here that is still
        open, or whose end marker may yet be lost because it is not below the high watermark."""
        if not self._open and not self._completed:
            return None
        self.note_committed(high_watermark)
        first_open = next(iter(self._open), None)
        if not self._completed:
            return first_open
        first_completed = self._completed[0][0]
        return first_completed if first_open is None else min(first_open, first_completed)

    def note_committed(self, high_watermark: int) -> None:
        """Markers below the high watermark are there to stay."""
        completed = self._completed
        while completed and completed[0][1] < high_watermark:
            completed.popleft()

    def remove_expired(self, expiration_ms: int, now_ms: int) -> int:
        """Forget producers that have been quiet for `producer.id.expiration.ms`, which may have
        changed; say how many."""
        self._expiration_ms = expiration_ms
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if is_expired(entry, self._heard_ms[producer_id], self._expiration_ms, now_ms)
        ]
        for producer_id in expired:
            del self._entries[producer_id], self._heard_ms[producer_id]
        return len(expired)

    def forget_before(self, offset: int) -> None:
        """Forget the batches before an offset, and who has no other; all transactions that began
        there have ended."""
        self._entries = {
            producer_id: entry._replace(batches=batches)
            for producer_id, entry in self._entries.items()
            if (batches := tuple(one for one in entry.batches if one.last_offset >= offset))
            or entry.transaction_first_offset is not None
        }
        self._heard_ms = {producer_id: self._heard_ms[producer_id] for producer_id in self._entries}

    def to_store(self) -> tuple[ProducerEntry, ...]:
        """The entries of a snapshot. It has room for one time: the later one of the last batch's
        timestamp and the time at which the broker heard from the producer."""
        heard_ms = self._heard_ms
        return tuple(
            entry
            if entry.last_timestamp_ms >= heard_ms[producer_id]
            else entry._replace(last_timestamp_ms=heard_ms[producer_id])
            for producer_id, entry in self._entries.items()
        )

    def reset(self, end_offset: int) -> None:
        """Forget everything, before the log is read again from this offset."""
        self.load((), end_offset, now_ms=0)

    def load(self, entries: Iterable[ProducerEntry], end_offset: int, now_ms: int) -> None:
        """Replace everything by a snapshot taken at this offset, without what has expired."""
        self._entries = {
            entry.producer_id: entry
            for entry in entries
            if not is_expired(entry, entry.last_timestamp_ms, self._expiration_ms, now_ms)
        }
        self._heard_ms = {  # a timestamp of the client may lie in the future
            one.producer_id: min(one.last_timestamp_ms, now_ms) for one in self._entries.values()
        }
        self._open = dict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self._entries.values()
                if entry.transaction_first_offset is not None
            )
        )
        self._completed.clear()
        self._verifications.clear()
        self.end_offset = end_offset
