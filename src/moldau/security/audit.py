"""The audit log: who was not let in, who was refused what, and who changed what. A shell.

Everything goes to the logger `moldau.audit`, as one line for people and, by `JsonLines`, as one
JSON object for machines. What came to nothing is bounded (denials, refused logins and handshakes,
changes that failed): whoever asks ten thousand times a second for what he may not have fills no
disk with it, and the next line says how many were left out. Changes that were made are told always.
Values that may be secret (settings, passwords) are part of nothing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from typing import Final

from moldau.clock import Clock
from moldau.model import USER, Principal

AUDIT_LOGGER: Final = "moldau.audit"

DENIALS_PER_SECOND: Final = 10.0
DENIALS_AT_ONCE: Final = 100

LONGEST_TEXT: Final = 256
"""Of a name that a client sent; the rest is cut."""

_log = logging.getLogger(AUDIT_LOGGER)


class AuditLog:
    """Of one broker; owned by its event loop."""

    def __init__(self, clock: Clock) -> None:
        # Strangers must not be able to hide what somebody does who is let in.
        self._strangers = _Room(clock)  # refused logins and handshakes
        self._others = _Room(clock)  # denials, and changes that failed

    def denied(
        self, principal: object, host: str, operation: str, resource: str, request: str
    ) -> None:
        """Somebody was refused."""
        if not self._others.take():
            return
        fields: dict[str, object] = {
            "event": "denied",
            "principal": _cut(str(principal)),
            "host": host,
            "operation": operation,
            "resource": _cut(resource),
            "request": request,
        }
        more = self._others.tell_left_out(fields)
        _log.info(
            "denied: %s from %s may not %s %s (%s)%s",
            _on_one_line(fields["principal"]),
            host,
            operation,
            _on_one_line(fields["resource"]),
            request,
            more,
            extra={"audit": fields},
        )

    def login_refused(self, user: str | None, host: str, mechanism: str, reason: str) -> None:
        """Somebody was not let in. `user` is who he says he is, as far as he has said it."""
        if not self._strangers.take():
            return
        fields: dict[str, object] = {
            "event": "login refused",
            "principal": "unknown" if user is None else _cut(str(Principal(USER, user))),
            "host": host,
            "mechanism": _cut(mechanism),
            "reason": _cut(reason),
        }
        more = self._strangers.tell_left_out(fields)
        _log.info(
            "login refused: %s from %s with %s: %s%s",
            _on_one_line(fields["principal"]),
            host,
            _on_one_line(fields["mechanism"]),
            _on_one_line(fields["reason"]),
            more,
            extra={"audit": fields},
        )

    def handshake_failed(self, host: str, listener: str, reason: str) -> None:
        """Somebody did not get through the TLS handshake of a listener."""
        if not self._strangers.take():
            return
        fields: dict[str, object] = {
            "event": "handshake failed",
            "host": host,
            "listener": listener,
            "reason": _cut(reason),
        }
        more = self._strangers.tell_left_out(fields)
        _log.info(
            "handshake failed: %s at the listener %s: %s%s",
            host,
            listener,
            _on_one_line(fields["reason"]),
            more,
            extra={"audit": fields},
        )

    def changed(
        self, principal: object, host: str, request: str, subject: str, error: str | None = None
    ) -> None:
        """Somebody changed something, or tried to."""
        if error is not None and not self._others.take():
            return
        fields: dict[str, object] = {
            "event": "changed" if error is None else "failed",
            "principal": _cut(str(principal)),
            "host": host,
            "request": request,
            "resource": _cut(subject),
        }
        more = ""
        if error is not None:
            fields["error"] = error
            more = self._others.tell_left_out(fields)
        _log.info(
            "%s: %s from %s, %s %s%s%s",
            fields["event"],
            _on_one_line(fields["principal"]),
            host,
            request,
            _on_one_line(fields["resource"]),
            "" if error is None else f": {error}",
            more,
            extra={"audit": fields},
        )


class _Room:
    """For lines about what came to nothing: so many a second, after so many at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = float(DENIALS_AT_ONCE)  # never more than this
        self._counted_at = clock.monotonic()
        self._left_out = 0

    def take(self) -> bool:
        """Whether there is room for one more; it is counted otherwise."""
        now = self._clock.monotonic()
        grown = self._room + (now - self._counted_at) * DENIALS_PER_SECOND
        self._room, self._counted_at = min(grown, float(DENIALS_AT_ONCE)), now
        if self._room < 1.0:
            self._left_out += 1
            return False
        self._room -= 1.0
        return True

    def tell_left_out(self, fields: dict[str, object]) -> str:
        left_out, self._left_out = self._left_out, 0
        if not left_out:
            return ""
        fields["left_out_before"] = left_out
        return f" ({left_out} more refusals before it were not logged)"


class JsonLines(logging.Formatter):
    """One event as one JSON object: `{"time": …, "event": "denied", "principal": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        told = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: object = getattr(record, "audit", None)
        rest = fields if isinstance(fields, dict) else {"message": record.getMessage()}
        return json.dumps({"time": f"{told}.{record.msecs:03.0f}Z", **rest})


def write_audit_file(path: str) -> Callable[[], None]:
    """Append every event to a file as JSON lines, whatever the level of the log is; returns what
    ends it. The file is for its owner alone."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(JsonLines())
    handler.setLevel(logging.INFO)
    former_level, former_propagate = _log.level, _log.propagate
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False  # what is in the file need not be in the broker's log too

    def close() -> None:
        _log.removeHandler(handler)
        _log.setLevel(former_level)
        _log.propagate = former_propagate
        handler.close()

    return close


def _on_one_line(text: object) -> str:
    """A name that a client made up must not look like a line of its own. JSON sees to it by
    itself."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(text))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
