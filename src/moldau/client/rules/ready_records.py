"""Records that have come and wait to be taken by the program. A rule.

None is given that is not locked for this client any more, as far as it can know: its lock is over
by our own clock, the session with its broker was lost, or its partition is not ours any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.client.rules.acquired_records import AcquiredRecord, RecordStage


class Taken(NamedTuple):
    """What the program gets, and what it does not get because its lock is over."""

    records: list[AcquiredRecord]
    expired: list[AcquiredRecord]


class ReadyRecords:
    """In the order in which they came."""

    def __init__(self, now: float) -> None:
        self._records: deque[AcquiredRecord] = deque()
        self.moved_at = now  # when records came last, or were taken

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[AcquiredRecord]:
        return iter(self._records)

    def add(self, records: Iterable[AcquiredRecord], now: float) -> None:
        self._records += records
        self.moved_at = now

    def take(self, limit: int, now: float) -> Taken:
        """As many as there are, up to the limit: RUNNING from now on."""
        taken = Taken([], [])
        ready = self._records
        while ready and len(taken.records) < limit:
            record = ready.popleft()
            if record.stage is not RecordStage.READY:
                continue
            if record.deadline <= now:  # somebody else has it, or will
                record.move(RecordStage.LOST)
                taken.expired.append(record)
                continue
            record.move(RecordStage.RUNNING)
            taken.records.append(record)
        if taken.records:
            self.moved_at = now
        return taken

    def keep_ready(self) -> None:
        """Forget those that were lost, or given back."""
        self._records = deque(one for one in self._records if one.stage is RecordStage.READY)

    def clear(self) -> None:
        self._records.clear()
