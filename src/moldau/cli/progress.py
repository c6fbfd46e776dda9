"""A line on the terminal that shows that long work goes on; nothing where nobody looks."""

from __future__ import annotations

import sys
import time

_FIRST_AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_ERASE_LINE = "\r\x1b[K"


class Progress:
    """Shows how many records have gone, how fast, and how much of the input is left."""

    def __init__(self, total_bytes: int | None = None) -> None:
        self._total_bytes = total_bytes
        self._is_watched = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _FIRST_AFTER_SECONDS  # short work shows nothing
        self._is_shown = False

    def show(self, records: int, size_bytes: int, input_bytes: int) -> None:
        """Renew the line, if it is time. `input_bytes` is how much of the input has been read."""
        now = time.monotonic()
        if not self._is_watched or now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        self._is_shown = True
        share = min(input_bytes / self._total_bytes, 1.0) if self._total_bytes else None
        text = describe_progress(records, size_bytes, now - self._began, share)
        sys.stderr.write(_ERASE_LINE + text)
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write(_ERASE_LINE)
            sys.stderr.flush()


def describe_progress(records: int, size_bytes: int, seconds: float, share: float | None) -> str:
    """What has gone, how fast, and which share of the input that is."""
    rate = records / seconds if seconds > 0 else 0.0
    text = f"{records:,} records, {size_bytes / 1e6:,.1f} MB, {rate:,.0f} records/s"
    return text if share is None else f"{text}, {share:.0%} of the input"
