"""Reads the words of `moldau start` where they are plain, and starts the broker, without Typer.

To load Typer and to read one command line with it takes a fifth of a start. Most starts are a few
options with values, one of each: those are read here. Whatever else there is (help, a mistake, a
file that cannot be read, an option that is not listed) is left to Typer, which then says all that
is to be said. `cli.start` declares the options; a test holds this table against it, and compares
what both make of the same words.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from moldau.cli.exit_codes import run_to_the_end

FLAGS: Mapping[str, str] = {
    "--adopt-topics": "adopt_topics",
    "--insecure": "insecure",
    "--no-console": "no_console",
}
TEXTS: Mapping[str, str] = {
    "--listen": "listen",
    "--zookeeper": "zookeeper",
    "--metrics": "metrics",
    "--console": "console",
}
CONFIG, DATA_DIR, BROKER_ID, SET = "--config", "--data-dir", "--broker-id", "--set"
_MOST_DIGITS = 9


def read_plain_start(words: Sequence[str]) -> dict[str, object] | None:
    """The arguments of `run_start`; None where Typer has to look at the command line."""
    if words[:1] != ["start"]:
        return None
    given: dict[str, object] = {}
    sets: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.partition("=")
        argument: object
        if name in FLAGS:
            parameter, argument = FLAGS[name], None if equals else True
        else:
            value = value if equals else next(rest, "")
            if not value or value.startswith("-"):
                return None
            if name == SET:
                sets.append(value)
                continue
            parameter, argument = name[2:].replace("-", "_"), _read(name, value)
        if argument is None or parameter in given:
            return None
        given[parameter] = argument
    if "console" in given and "no_console" in given:
        return None
    return given | ({"to_set": sets} if sets else {})


def _read(name: str, value: str) -> object:
    """The value of an option as `run_start` takes it; None: Typer knows what to say of it."""
    if name in TEXTS:
        return value
    if name == BROKER_ID:
        is_number = value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else None
    if name not in (CONFIG, DATA_DIR):
        return None
    from pathlib import Path

    path = Path(value)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path if name == DATA_DIR else None
    except (OSError, ValueError):  # not ours to look at, or no path at all
        return None
    is_usual = stat.S_ISREG(mode) if name == CONFIG else stat.S_ISDIR(mode)
    return path if is_usual and os.access(path, os.R_OK) else None


def run_plain_start(given: Mapping[str, object]) -> int:
    """The exit code."""
    from moldau.cli.start_run import run_start

    return run_to_the_end(lambda: run_start(**given))  # type: ignore[arg-type]
