"""TLS handshakes take turns with everything else that the event loop does.

A step of a handshake signs with the private key, which takes up to some milliseconds. When a
thousand clients come at once, all their steps in one turn of the loop would hold up everybody who
is connected already. So each turn takes a few of them, and looks at the other sockets before the
next few. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

STEPS_PER_TURN: Final = 4
"""With an elliptic key a millisecond; with RSA of 4,096 bits some twenty."""


class Handshaking(Protocol):
    def shake_hands(self) -> None:
        """One step; does nothing when the connection is closed."""
        ...


class HandshakeTurns:
    """Those whose next step is due, in the order of coming."""

    __slots__ = ("_due", "_is_scheduled", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: deque[Handshaking] = deque()
        self._is_scheduled = False

    def add(self, connection: Handshaking) -> None:
        """It is not to be added again before its step was done."""
        self._due.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if self._due and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(min(STEPS_PER_TURN, len(self._due))):
                self._due.popleft().shake_hands()
        finally:  # one that fails holds up nobody else
            self._schedule()
