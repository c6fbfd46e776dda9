"""How a broker's log reads, and what commands say while they wait: quiet unless asked.

    03:24:09.120 warning storage.log_store  the log directory /data is offline: No space left

Time of day, level, room and module, message. Warnings and errors go to standard error;
`MOLDAU_LOG=info` (or `debug`) shows more.

A command that talks to brokers shows the warnings of its client in the same words as its failures:

    moldau: no broker answers at 127.0.0.1:9092 (Connection refused); trying again
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator

LEVEL_VARIABLE = "MOLDAU_LOG"
ERASE_LINE = "\r\x1b[K"
_LEVELS = ("debug", "info", "warning", "error")


class LineFormatter(logging.Formatter):
    """One event as one line; a traceback, if there is one, follows indented."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = f"{name}  " if name else ""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        where = record.name.removeprefix("moldau.")
        line = (
            f"{clock}.{record.msecs:03.0f} {record.levelname.lower():<7} {self._name}{where}  "
            f"{record.getMessage()}"
        )
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {row}" for row in trace.splitlines())
        return line


class CommandFormatter(logging.Formatter):
    """A warning as one line of a command."""

    def format(self, record: logging.LogRecord) -> str:
        erase = ERASE_LINE if sys.stderr.isatty() else ""  # progress may be shown there
        return f"{erase}moldau: {super().format(record)}"


def set_up_logging(name: str = "") -> None:
    """Send Moldau's log to standard error; the level comes from the environment.

    A name stands in every line, where several processes write to one place.
    """
    level = os.environ.get(LEVEL_VARIABLE, "warning").lower()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(name))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(_read_level())
    if level not in _LEVELS:
        logging.getLogger("moldau").warning(
            "%s=%s is not one of %s", LEVEL_VARIABLE, level, ", ".join(_LEVELS)
        )


@contextlib.contextmanager
def warnings_shown() -> Iterator[None]:
    """Let a command say on standard error what its client waits for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(CommandFormatter())
    handler.setLevel(_read_level())
    # What was not delivered is told by the command itself, at its end.
    handler.addFilter(lambda record: record.name != "moldau.producer")
    logger = logging.getLogger("moldau")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _read_level() -> str:
    level = os.environ.get(LEVEL_VARIABLE, "warning").lower()
    return level.upper() if level in _LEVELS else "WARNING"
