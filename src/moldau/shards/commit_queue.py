"""Answers that wait until what they rest on is committed.

A coordinator writes a record, applies it, and lets the answer go when every in-sync replica has
it. What was asked later waits for what was asked before, so answers keep the order of the log. A
shell, owned by the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from moldau.clock import Clock, Timer
from moldau.errors import ErrorCode

LetGo = Callable[[ErrorCode | None], None]
"""Called once: with None when the log is committed, else with what the client is to be told."""


class CommittedLog(Protocol):
    """How far a log goes, and how far it is there to stay."""

    @property
    def end_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...


class _Held(NamedTuple):
    end_offset: int
    deadline: float
    let_go: LetGo


class CommitQueue:
    """`hold`, then `release` when the log's commitment may have moved; `close` at the end."""

    def __init__(self, log: CommittedLog, clock: Clock, timeout_ms: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._held: deque[_Held] = deque()  # in the order of their offsets
        self._timer: Timer | None = None  # for the first of them

    @property
    def is_committed(self) -> bool:
        """Nothing that was written could still be lost."""
        return self._log.end_offset <= self._log.committed_offset

    def hold(self, let_go: LetGo) -> None:
        """Until everything that is in the log now is committed."""
        timeout_seconds = self._timeout_ms() / 1000
        deadline = self._clock.monotonic() + timeout_seconds
        self._held.append(_Held(self._log.end_offset, deadline, let_go))
        if self._timer is None:
            self._timer = self._clock.call_later(timeout_seconds, self._give_up)

    def release(self) -> None:
        committed = self._log.committed_offset
        while self._held and self._held[0].end_offset <= committed:
            self._held.popleft().let_go(None)

    def _give_up(self) -> None:
        """The replicas do not follow: whoever has waited long enough is told to ask again."""
        self._timer = None
        now = self._clock.monotonic()
        while self._held and self._held[0].deadline <= now:
            self._held.popleft().let_go(ErrorCode.coordinator_not_available)
        if self._held:
            left_seconds = self._held[0].deadline - now
            self._timer = self._clock.call_later(left_seconds, self._give_up)

    def close(self, error: ErrorCode) -> None:
        """Whoever waits is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, deque()
        for one in held:
            one.let_go(error)
