"""What shows that long work goes on: a line on the terminal that is renewed, or one now and then
in a log. It goes to stderr: stdout is for data.
"""

from __future__ import annotations

import math
import sys
import time

from moldau.cli.log_lines import ERASE_LINE
from moldau.cli.reporting import reporting

_FIRST_AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_LOGGED_EVERY_SECONDS = 10.0


class Progress:
    """Shows how many records have gone, how fast, and how much of the input is left."""

    def __init__(
        self, total_bytes: int | None = None, *, has_end: bool, has_prompt: bool = False
    ) -> None:
        """Of work without an end a log says nothing: it would grow for ever. Nor is anything shown
        where a person types at a prompt: it would stand in front of it."""
        self._total_bytes = total_bytes
        self._is_watched = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = math.inf
        if has_prompt or reporting.is_quiet:
            pass
        elif self._is_watched:
            self._next = self._began + _FIRST_AFTER_SECONDS  # short work shows nothing
        elif has_end:
            self._next = self._began + _LOGGED_EVERY_SECONDS
        self._is_shown = False

    def show(self, records: int, size_bytes: int, input_bytes: int = 0) -> None:
        """Show how far it is, if it is time. `input_bytes` is how much of the input was read."""
        now = time.monotonic()
        if now < self._next:
            return
        share = min(input_bytes / self._total_bytes, 1.0) if self._total_bytes else None
        text = describe_progress(records, size_bytes, now - self._began, share)
        if self._is_watched:
            self._next = now + _EVERY_SECONDS
            self._is_shown = True
            sys.stderr.write(ERASE_LINE + text)
        else:
            self._next = now + _LOGGED_EVERY_SECONDS
            sys.stderr.write(f"moldau: {text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()


def describe_progress(records: int, size_bytes: int, seconds: float, share: float | None) -> str:
    """What has gone, how fast, and which share of the input that is."""
    rate = records / seconds if seconds > 0 else 0.0
    text = f"{records:,} records, {size_bytes / 1e6:,.1f} MB, {rate:,.0f} records/s"
    return text if share is None else f"{text}, {share:.0%} of the input"
