"""The audit log: who was refused what, and who changed what. A shell.

Everything goes to the logger `moldau.audit`, as one line for people and, by `JsonLines`, as one
JSON object for machines. Denials are bounded: whoever asks ten thousand times a second for what he
may not have fills no disk with it, and the next line says how many were left out. Changes are told
always. Values that may be secret (settings, passwords) are never part of either.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from typing import Final

from moldau.clock import Clock

AUDIT_LOGGER: Final = "moldau.audit"

DENIALS_PER_SECOND: Final = 10.0
DENIALS_AT_ONCE: Final = 100

LONGEST_TEXT: Final = 256
"""Of a name that a client sent; the rest is cut."""

_log = logging.getLogger(AUDIT_LOGGER)


class AuditLog:
    """Of one broker; owned by its event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = float(DENIALS_AT_ONCE)  # for denials; never more than this
        self._counted_at = clock.monotonic()
        self._left_out = 0

    def denied(
        self, principal: object, host: str, operation: str, resource: str, request: str
    ) -> None:
        """Somebody was refused."""
        if not self._has_room():
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        fields: dict[str, object] = {
            "event": "denied",
            "principal": _cut(str(principal)),
            "host": host,
            "operation": operation,
            "resource": _cut(resource),
            "request": request,
        }
        more = ""
        if left_out:
            fields["left_out_before"] = left_out
            more = f" ({left_out} more denials before it were not logged)"
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

    def changed(
        self, principal: object, host: str, request: str, subject: str, error: str | None = None
    ) -> None:
        """Somebody changed something, or tried to."""
        fields: dict[str, object] = {
            "event": "changed" if error is None else "failed",
            "principal": _cut(str(principal)),
            "host": host,
            "request": request,
            "resource": _cut(subject),
        }
        if error is not None:
            fields["error"] = error
        _log.info(
            "%s: %s from %s, %s %s%s",
            fields["event"],
            _on_one_line(fields["principal"]),
            host,
            request,
            _on_one_line(fields["resource"]),
            "" if error is None else f": {error}",
            extra={"audit": fields},
        )

    def _has_room(self) -> bool:
        now = self._clock.monotonic()
        grown = self._room + (now - self._counted_at) * DENIALS_PER_SECOND
        self._room, self._counted_at = min(grown, float(DENIALS_AT_ONCE)), now
        if self._room < 1.0:
            return False
        self._room -= 1.0
        return True


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
