"""Which batches of a producer have not come to their end, and who waits for that. A rule.

Batches are numbered in the order in which they are opened. A flush waits for all that were opened
before it, and for none that comes later.
"""

from __future__ import annotations

from collections.abc import Iterator


class UnfinishedBatches:
    """By serial number; the halves of a batch that was divided share its number."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # of batches that are not finished, oldest number first
        self._last_serial = 0
        self._flushes: dict[int, int] = {}  # by flush: the serial number that it waits for
        self._last_flush = 0

    @property
    def is_empty(self) -> bool:
        return not self._counts

    def open(self) -> int:
        """The number of a new batch."""
        self._last_serial += 1
        self._counts[self._last_serial] = 1
        return self._last_serial

    def divide(self, serial: int, count: int) -> None:
        """So many more have this number."""
        self._counts[serial] += count

    def finish(self, serial: int) -> None:
        left = self._counts.get(serial, 0) - 1
        if left > 0:
            self._counts[serial] = left  # in its old place: the order is what counts
        else:
            self._counts.pop(serial, None)

    def begin_flush(self) -> int | None:
        """Wait for all that was opened so far; None if that has come to its end."""
        if self._is_finished_up_to(self._last_serial):
            return None
        self._last_flush += 1
        self._flushes[self._last_flush] = self._last_serial
        return self._last_flush

    def forget_flush(self, flush_id: int) -> None:
        """Nobody waits for it any more."""
        self._flushes.pop(flush_id, None)

    def end_flushes(self) -> Iterator[int]:
        """The flushes that have waited long enough."""
        for flush_id, serial in tuple(self._flushes.items()):
            if self._is_finished_up_to(serial):
                del self._flushes[flush_id]
                yield flush_id

    def _is_finished_up_to(self, serial: int) -> bool:
        return next(iter(self._counts), serial + 1) > serial
