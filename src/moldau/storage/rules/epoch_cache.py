"""Where each leader epoch begins in a log: what OffsetForLeaderEpoch and truncation ask.

The rules are those of Kafka's `LeaderEpochFileCache`. Invariant: epochs and start offsets both grow
strictly from entry to entry; a new entry removes those that would break this. A cache is immutable;
a change gives another one, and the same one when nothing changed, so the shell sees whether there
is something to write. A rule: values in, values out.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from moldau.errors import InvariantViolation

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch: the epoch it is about, and where that one ends."""

    epoch: int
    end_offset: int


UNDEFINED_END = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class EpochCache:
    """The epochs of one log."""

    __slots__ = ("entries", "latest_epoch")

    def __init__(self, entries: tuple[EpochStart, ...] = ()) -> None:
        self.entries = entries
        self.latest_epoch: int | None = entries[-1].epoch if entries else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochCache) and other.entries == self.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"EpochCache({self.entries!r})"

    def assign(self, epoch: int, start_offset: int) -> EpochCache:
        """Note that an epoch begins at an offset; an epoch keeps the first start it was given."""
        if epoch < 0 or start_offset < 0:
            raise InvariantViolation(f"leader epoch {epoch} cannot begin at {start_offset}")
        if self.entries:
            latest = self.entries[-1]
            if epoch == latest.epoch and start_offset >= latest.start_offset:
                return self
        kept = tuple(
            entry
            for entry in self.entries
            if entry.epoch < epoch and entry.start_offset < start_offset
        )
        return EpochCache((*kept, EpochStart(epoch, start_offset)))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest known epoch up to the asked one, and the offset at which it ends."""
        if epoch == UNDEFINED_EPOCH or self.latest_epoch is None or epoch > self.latest_epoch:
            return UNDEFINED_END
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        higher = bisect_right(self.entries, epoch, key=_epoch_of)
        # Before the first known epoch its data is gone: a follower starts where ours begins.
        known = self.entries[higher - 1].epoch if higher else epoch
        return EpochEnd(known, self.entries[higher].start_offset)

    def find_epoch_at(self, offset: int) -> int | None:
        """The epoch in which the record at an offset was written."""
        higher = bisect_right(self.entries, offset, key=_start_of)
        return self.entries[higher - 1].epoch if higher else None

    def truncate_from_end(self, end_offset: int) -> EpochCache:
        """Forget the epochs that begin at or after the new end of the log."""
        kept = tuple(entry for entry in self.entries if entry.start_offset < end_offset)
        return self if len(kept) == len(self.entries) else EpochCache(kept)

    def truncate_from_start(self, start_offset: int) -> EpochCache:
        """Forget the epochs before the new start of the log; the one that goes on begins there."""
        higher = bisect_right(self.entries, start_offset, key=_start_of)
        if not higher:
            return self
        first = EpochStart(self.entries[higher - 1].epoch, start_offset)
        return self if first == self.entries[0] else EpochCache((first, *self.entries[higher:]))


def _epoch_of(entry: EpochStart) -> int:
    return entry.epoch


def _start_of(entry: EpochStart) -> int:
    return entry.start_offset
