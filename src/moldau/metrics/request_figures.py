"""What is counted of requests: how many of each API, how long they took, and with which errors.

Plain numbers, bumped once for each request. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.metrics.histogram import Histogram

TIMED_ONE_OF: Final = 16
"""Of the requests that are answered at once: reading the clock costs more than counting."""

NOT_TIMED: Final = -1.0


class ApiFigures:
    """The requests of one API.

    Of those that are answered at once the first is timed, and then one of `TIMED_ONE_OF`, which
    stands for those before it. Those that have to wait are timed, all of them.
    Invariant: 0 <= left <= span between two requests.
    """

    __slots__ = ("_durations", "_last_seconds", "_span", "api_key", "errors", "left")

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key
        self.left = 1  # until the next one that is timed; the dispatch counts it down
        self._span = 1  # for how many that one stands
        self._last_seconds = 0.0
        self._durations = Histogram()
        self.errors: dict[int, int] = {}  # by Kafka's code; where an answer has several, each

    def note_timed(self, seconds: float) -> None:
        """A request was answered at once, and timed: `left` is 0."""
        self._last_seconds = seconds
        self._durations.note(seconds, self._span)
        self.left = self._span = TIMED_ONE_OF

    def note_waited(self, seconds: float) -> None:
        """A request had to wait."""
        self._durations.note(seconds)

    def durations(self) -> Histogram:
        """Of all so far; those since the last that was timed are taken to be like it."""
        if self._span > self.left:
            self._durations.note(self._last_seconds, self._span - self.left)
            self._span = self.left
        return self._durations

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


class RequestFigures:
    """The requests of a broker, by API key."""

    def __init__(self) -> None:
        self._by_key: dict[int, ApiFigures] = {}

    def of(self, api_key: int) -> ApiFigures:
        """Always the same for an API."""
        return self._by_key.setdefault(api_key, ApiFigures(api_key))

    def __iter__(self) -> Iterator[ApiFigures]:
        """Of the APIs that somebody has asked for."""
        return (one for one in self._by_key.values() if one.durations().count)


class ConnectionFigures:
    """The connections of one listener. Invariant: closed <= accepted."""

    __slots__ = ("accepted", "closed")

    def __init__(self) -> None:
        self.accepted = 0
        self.closed = 0
