"""What is counted of requests: how many of each API, how long they took, and with which errors.

Plain numbers, bumped once for each request. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.metrics.histogram import Histogram


class ApiFigures:
    """The requests of one API."""

    __slots__ = ("api_key", "durations", "errors")

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key
        self.durations = Histogram()
        self.errors: dict[int, int] = {}  # by Kafka's code; where an answer has several, each

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


class RequestFigures:
    """The requests of a broker, by API key."""

    def __init__(self) -> None:
        self._by_key: dict[int, ApiFigures] = {}

    def __iter__(self) -> Iterator[ApiFigures]:
        return iter(self._by_key.values())

    def of(self, api_key: int) -> ApiFigures:
        found = self._by_key.get(api_key)
        if found is None:
            found = self._by_key[api_key] = ApiFigures(api_key)
        return found


class ConnectionFigures:
    """The connections of one listener. Invariant: closed <= accepted."""

    __slots__ = ("accepted", "closed")

    def __init__(self) -> None:
        self.accepted = 0
        self.closed = 0
