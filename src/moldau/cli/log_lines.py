"""How a broker's log reads, and what commands say while they wait: quiet unless asked.

    03:24:09.120 warning storage.log_store  the log directory /data is offline: No space left

Time of day, level, room and module, message. Warnings and errors go to standard error; `-v`
(`--log-level`, or `MOLDAU_LOG`) shows more. `--log-format json` (or `MOLDAU_LOG_FORMAT`) makes an
object of each line, with the date, for those who collect logs:

    {"time": "2026-11-16T03:24:09.120Z", "level": "warning", "logger": "moldau.storage.log_store",
     "message": "the log directory /data is offline: No space left"}

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

from moldau.cli.reporting import LEVEL_VARIABLE, LEVELS, reporting, standard_error

ERASE_LINE = "\r\x1b[K"


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


class JsonFormatter(logging.Formatter):
    """One event as one JSON object on one line, a traceback included."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        import json

        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        document: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._name:
            document["process"] = self._name
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


class StandardErrorHandler(logging.Handler):
    """Sends events to standard error; what cannot be written is counted."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            standard_error.write_line(self.format(record))
        except Exception:  # noqa: BLE001 as in every handler: a wrong call of the log is no failure
            self.handleError(record)


def set_up_logging(name: str = "") -> None:
    """Send Moldau's log to standard error, as the command line or the environment says.

    A name stands in every line, where several processes write to one place.
    """
    standard_error.process_name = name
    handler = StandardErrorHandler()
    handler.setFormatter(JsonFormatter(name) if reporting.is_json else LineFormatter(name))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(reporting.level.upper())
    asked = os.environ.get(LEVEL_VARIABLE, "warning").lower()
    if asked not in LEVELS:
        logging.getLogger("moldau").warning(
            "%s=%s is not one of %s", LEVEL_VARIABLE, asked, ", ".join(LEVELS)
        )


@contextlib.contextmanager
def warnings_shown() -> Iterator[None]:
    """Let a command say on standard error what its client waits for, and more where that is
    asked for."""
    handler = StandardErrorHandler()
    handler.setFormatter(JsonFormatter() if reporting.is_json else CommandFormatter())
    # What was not delivered is told by the command itself, at its end.
    handler.addFilter(lambda record: record.name != "moldau.producer")
    logger = logging.getLogger("moldau")
    former_level = logger.level
    logger.setLevel(reporting.level.upper())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(former_level)
