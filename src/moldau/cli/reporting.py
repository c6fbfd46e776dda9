"""How a command speaks beside its answer: how much of it, in which form, and of what failed.

`-v`, `-q`, `--log-level` and `--log-format` may stand before the command or behind it, and count
for the whole process, as a log does; so this is the one place that remembers them. The environment
(`MOLDAU_LOG`, `MOLDAU_LOG_FORMAT`) counts where the command line says nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer.core

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

    def begin(self, arguments: Sequence[str]) -> None:
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
    import typer.core

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
        import typer

        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}", param_hint=option)
    return text.lower()


def say_failure(
    message: str, *, kind: str, code: str | None = None, remedy: str | None = None
) -> None:
    """Why the command fails, on standard error: for people, or as one object on one line."""
    if reporting.errors_as_json:
        import json

        document = {"type": kind, "code": code, "message": message, "remedy": remedy}
        standard_error.write_line(json.dumps({"error": document}))
        return
    text = message if remedy is None else f"{message}; {remedy}"
    standard_error.write_line(log_line(text, "error") if reporting.is_json else f"moldau: {text}")


def log_line(text: str, level: str) -> str:
    """What a command itself says, as a line of a log in JSON."""
    import json
    from datetime import UTC, datetime

    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": now, "level": level, "logger": "moldau.cli", "message": text}
    return json.dumps(line, ensure_ascii=False)
