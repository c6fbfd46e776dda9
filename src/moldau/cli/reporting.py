"""How a command speaks beside its answer, and how a broker's log reads."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import typer
import typer.core

# `-v`, `-q`, `--log-level` and `--log-format` may stand before the command or behind it, and count
# for the whole process, as a log does; so this is the one place that remembers them. The
# environment (`MOLDAU_LOG`, `MOLDAU_LOG_FORMAT`) counts where the command line says nothing.


LEVEL_VARIABLE: Final = "MOLDAU_LOG"
FORMAT_VARIABLE: Final = "MOLDAU_LOG_FORMAT"
LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
_BY_COUNT_OF_V: Final = ("warning", "info", "debug")


class Reporting:
    """What was asked for. None: what the environment says, or else the default."""

    def __init__(self) -> None:
        self.asked_level: str | None = None
        self.asked_format: str | None = None
        self.errors_as_json = False

    @property
    def level(self) -> str:
        return self.asked_level or _from_environment(LEVEL_VARIABLE, LEVELS, "warning")

    @property
    def is_json(self) -> bool:
        return (self.asked_format or _from_environment(FORMAT_VARIABLE, FORMATS, "text")) == "json"

    @property
    def is_quiet(self) -> bool:
        return self.level == "error"

    def read_form_of_errors(self, arguments: Sequence[str]) -> None:
        """A command line is about to be read. Its errors are JSON if its answer is, and that has to
        be known before anything of it can be wrong."""
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        self.asked_level = self.asked_format = None
        self.errors_as_json = "--json" in options

    def repeated(self) -> list[str]:
        """The options that let a child speak in the same way."""
        level = [] if self.asked_level is None else ["--log-level", self.asked_level]
        return level + ([] if self.asked_format is None else ["--log-format", self.asked_format])


reporting = Reporting()


class StandardError:
    """Lines on standard error. A line that cannot be written (a full disk, a closed pipe) is
    dropped and counted. The first line that can be written again follows the number of those that
    are missing.

    Lines go past the buffer of `sys.stderr`, which would keep a part of what cannot be written.
    """

    def __init__(self) -> None:
        self.process_name = ""  # of one among several that write to the same place
        self._dropped_lines = 0
        self._reason = ""  # why the last one was dropped
        self._is_cut = False  # the last line was written in part
        self._lock = threading.RLock()  # a signal's handler may say something, too

    def write_line(self, text: str) -> None:
        with self._lock:
            try:
                if self._dropped_lines:
                    self._write(self._missing_lines())
                    self._dropped_lines = 0
                self._write(text)
            except OSError as error:
                self._dropped_lines += 1
                self._reason = error.strerror or str(error)

    def _missing_lines(self) -> str:
        name = f"{self.process_name}: " if self.process_name else ""
        noun = "line" if self._dropped_lines == 1 else "lines"
        text = (
            f"{name}{self._dropped_lines} {noun} of the log are missing here: standard error could "
            f"not be written ({self._reason})"
        )
        return log_line(text, "warning") if reporting.is_json else f"moldau: {text}"

    def _write(self, line: str) -> None:
        stream = sys.stderr
        if stream is None:  # closed when the process was started
            return
        stream.flush()
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # it leads to memory
            stream.write(f"{line}\n")
            return
        text = f"\n{line}\n" if self._is_cut else f"{line}\n"
        left = memoryview(text.encode(stream.encoding or "utf-8", "backslashreplace"))
        while left:
            written = os.write(descriptor, left)
            left = left[written:]
            self._is_cut = bool(left)


standard_error = StandardError()


def _from_environment(variable: str, known: Sequence[str], otherwise: str) -> str:
    asked = os.environ.get(variable, otherwise).lower()
    return asked if asked in known else otherwise


def make_options() -> list[typer.core.TyperOption]:
    """For every command, and for the words before it."""

    return [
        typer.core.TyperOption(
            param_decls=["--verbose", "-v"],
            count=True,
            type=int,
            default=0,
            expose_value=False,
            callback=_take_verbose,
            help="Say more on standard error; -vv says all.",
        ),
        typer.core.TyperOption(
            param_decls=["--quiet", "-q"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_take_quiet,
            help="Say nothing but answers and errors.",
        ),
        typer.core.TyperOption(
            param_decls=["--log-level"],
            metavar="LEVEL",
            expose_value=False,
            callback=_take_level,
            help=f"{', '.join(LEVELS)}; or {LEVEL_VARIABLE}.",
        ),
        typer.core.TyperOption(
            param_decls=["--log-format"],
            metavar="FORMAT",
            expose_value=False,
            callback=_take_format,
            help="text, or json: an object a line, with date and time.",
        ),
    ]


def _take_verbose(context: object, parameter: object, value: int) -> None:
    if value:
        reporting.asked_level = _BY_COUNT_OF_V[min(value, 2)]


def _take_quiet(context: object, parameter: object, value: bool) -> None:
    if value:
        reporting.asked_level = "error"


def _take_level(context: object, parameter: object, value: str | None) -> None:
    if value is not None:
        reporting.asked_level = _require(value, LEVELS, "--log-level")


def _take_format(context: object, parameter: object, value: str | None) -> None:
    if value is not None:
        reporting.asked_format = _require(value, FORMATS, "--log-format")


def _require(text: str, known: Sequence[str], option: str) -> str:
    if text.lower() not in known:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}", param_hint=option)
    return text.lower()


def say_failure(
    message: str, *, kind: str, code: str | None = None, remedy: str | None = None
) -> None:
    """Why the command fails, on standard error: for people, or as one object on one line."""
    if reporting.errors_as_json:
        document = {"type": kind, "code": code, "message": message, "remedy": remedy}
        standard_error.write_line(json.dumps({"error": document}))
        return
    text = message if remedy is None else f"{message}; {remedy}"
    standard_error.write_line(log_line(text, "error") if reporting.is_json else f"moldau: {text}")


def log_line(text: str, level: str) -> str:
    """What a command itself says, as a line of a log in JSON."""

    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": now, "level": level, "logger": "moldau.cli", "message": text}
    return json.dumps(line, ensure_ascii=False)


# How a broker's log reads, and what commands say while they wait: quiet unless asked.
#
#     03:24:09.120 warning storage.log_store  the log directory /data is offline: No space left
#
# Time of day, level, room and module, message. Warnings and errors go to standard error; `-v`
# (`--log-level`, or `MOLDAU_LOG`) shows more. `--log-format json` (or `MOLDAU_LOG_FORMAT`) makes an
# object of each line, with the date, for those who collect logs:
#
#     {"time": "2026-11-16T03:24:09.120Z", "level": "warning", "logger": "moldau.storage",
#      "message": "the log directory /data is offline: No space left"}
#
# A command that talks to brokers shows the warnings of its client in the same words as its
# failures:
#
#     moldau: no broker answers at 127.0.0.1:9092 (Connection refused); trying again


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
