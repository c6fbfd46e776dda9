"""When a session of a served store is over: not heard of for its time-out. A rule.

The one who looks may be late itself: its process was paused, or the machine slept. What its clients
have sent meanwhile is not read yet, so nobody's silence is known: every session is given the time
that the look was late. A session that lasts longer harms nobody; a lease ends by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOOK_SECONDS: Final = 0.25
"""How often somebody has to look."""

MIN_TIMEOUT_SECONDS: Final = 4 * LOOK_SECONDS
"""A shorter one would be counted too roughly, and is made this one."""


@dataclass(slots=True)
class _Silence:
    timeout_seconds: float
    heard_at: float


class SessionTimeouts:
    """The sessions that are alive, and when each was heard of last."""

    def __init__(self, now: float) -> None:
        self._looked_at = now
        self._sessions: dict[int, _Silence] = {}

    def begin(self, session_id: int, timeout_seconds: float, now: float) -> None:
        timeout = max(timeout_seconds, MIN_TIMEOUT_SECONDS)
        self._sessions[session_id] = _Silence(timeout, now)

    def hear(self, session_id: int, now: float) -> None:
        silence = self._sessions.get(session_id)
        if silence is not None:
            silence.heard_at = max(silence.heard_at, now)

    def end(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def take_expired(self, now: float) -> list[int]:
        """Whose time is over; they are not heard of again."""
        late = now - self._looked_at - LOOK_SECONDS
        self._looked_at = now
        if late > LOOK_SECONDS:
            for silence in self._sessions.values():
                silence.heard_at = min(now, silence.heard_at + late)
        expired = [
            session_id
            for session_id, silence in self._sessions.items()
            if now - silence.heard_at >= silence.timeout_seconds
        ]
        for session_id in expired:
            del self._sessions[session_id]
        return expired
