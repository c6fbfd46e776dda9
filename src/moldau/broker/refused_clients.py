"""Says who was not let in, now and then: whoever guesses must not fill the disk. The audit log has
more of them. A shell, owned by the event loop.
"""

from __future__ import annotations

import logging
from typing import Final

from moldau.clock import Clock
from moldau.security.audit import AuditLog

_log = logging.getLogger("moldau.broker.requests")

_SECONDS_BETWEEN_WARNINGS: Final = 5.0


class RefusedClients:
    """Of all listeners of one broker."""

    def __init__(self, clock: Clock, audit: AuditLog) -> None:
        self._clock = clock
        self._audit = audit
        self._quiet_until = float("-inf")  # monotonic seconds
        self._untold = 0

    def note_login(self, host: str, user: str | None, mechanism: str, reason: str) -> None:
        self._audit.login_refused(user, host, mechanism, reason)
        self._warn(f"a login from {host}", reason)

    def note_handshake(self, host: str, listener: str, reason: str) -> None:
        self._audit.handshake_failed(host, listener, reason)
        self._warn(f"a connection from {host} to the listener {listener}", reason)

    def _warn(self, what: str, reason: str) -> None:
        now = self._clock.monotonic()
        if now < self._quiet_until:
            self._untold += 1
            return
        self._quiet_until = now + _SECONDS_BETWEEN_WARNINGS
        more = f"; {self._untold} more were refused before it" if self._untold else ""
        self._untold = 0
        _log.warning("refused %s: %s%s", what, reason, more)
