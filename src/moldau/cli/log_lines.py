"""How a broker's log reads: one line an event, quiet unless asked.

    03:24:09.120 warning storage.log_store  the log directory /data is offline: No space left

Time of day, level, room and module, sentence. Warnings and errors go to standard error;
`MOLDAU_LOG=info` (or `debug`) shows more.
"""

from __future__ import annotations

import logging
import os
import sys
import time

LEVEL_VARIABLE = "MOLDAU_LOG"
_LEVELS = ("debug", "info", "warning", "error")


class LineFormatter(logging.Formatter):
    """One event as one line; a traceback, if there is one, follows indented."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        where = record.name.removeprefix("moldau.")
        line = (
            f"{clock}.{record.msecs:03.0f} {record.levelname.lower():<7} {where}  "
            f"{record.getMessage()}"
        )
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {row}" for row in trace.splitlines())
        return line


def set_up_logging() -> None:
    """Send Moldau's log to standard error; the level comes from the environment."""
    level = os.environ.get(LEVEL_VARIABLE, "warning").lower()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper() if level in _LEVELS else "WARNING")
    if level not in _LEVELS:
        logging.getLogger("moldau").warning(
            "%s=%s is not one of %s", LEVEL_VARIABLE, level, ", ".join(_LEVELS)
        )
