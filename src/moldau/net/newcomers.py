"""Connections that have not shown yet that they mean it: a handshake or a login is under way.

Each gets a time, and all together a number: when there are too many, the one that has taken
longest goes. Who floods a port loses his own attempts first, as honest clients are done within
milliseconds. A shell, owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from moldau.clock import Clock, Timer

MOST_NEWCOMERS: Final = 1_000
NEWCOMER_SECONDS: Final = 20.0


class Closable(Protocol):
    @property
    def peer_host(self) -> str: ...

    def close(self, reason: str) -> None: ...


class Newcomers:
    """See the module. `add` when one comes, `discard` when it is known or gone."""

    def __init__(
        self,
        clock: Clock,
        what: str,
        *,
        on_ended: Callable[[str, str], None] | None = None,
        most: int = MOST_NEWCOMERS,
        seconds: float = NEWCOMER_SECONDS,
    ) -> None:
        self._clock = clock
        self._what = what
        self._on_ended = on_ended  # hears of each that was ended: its host, and why
        self._most = most
        self._seconds = seconds
        self._since: dict[Closable, float] = {}  # monotonic seconds; in the order of coming
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Closable) -> None:
        self._since[connection] = self._clock.monotonic()
        if len(self._since) > self._most:
            self._end(next(iter(self._since)), f"too many {self._what}s are under way")
        if self._timer is None:
            self._timer = self._clock.call_later(self._seconds, self._on_time)

    def discard(self, connection: Closable) -> None:
        self._since.pop(connection, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        late = [one for one, since in self._since.items() if now - since >= self._seconds]
        for connection in late:
            self._end(connection, f"the {self._what} took longer than {self._seconds:g} seconds")
        if self._since:
            first = next(iter(self._since.values()))
            pause = max(0.1, first + self._seconds - now)
            self._timer = self._clock.call_later(pause, self._on_time)

    def _end(self, connection: Closable, reason: str) -> None:
        self._since.pop(connection, None)
        connection.close(reason)
        if self._on_ended is not None:
            self._on_ended(connection.peer_host, reason)
