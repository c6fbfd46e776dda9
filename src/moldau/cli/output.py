"""Prints for people (tables, by Rich) and for machines (JSON)."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import typer

from moldau.cli.reporting import ERASE_LINE, log_line, reporting, standard_error

# Made once: `json.dumps` with separators makes a new encoder for every call.
_encode_line = json.JSONEncoder(separators=(",", ":")).encode

_PIPE_COLUMNS = 10_000
"""Into a pipe nothing is cut or wrapped, however wide it is."""


def print_document(value: object) -> None:
    """One JSON document for the whole answer."""
    typer.echo(json.dumps(value, indent=2))


def print_line(value: Mapping[str, object]) -> None:
    """One JSON object on one line, of a stream of them."""
    sys.stdout.write(_encode_line(value) + "\n")


def note(text: str) -> None:
    """Say something beside the answer; machines that read stdout do not see it, nor does who asked
    for quiet."""
    if not reporting.is_quiet:
        _say(text, "info")


def warn(text: str) -> None:
    """Say that something went wrong, though the command goes on; quiet or not."""
    _say(text if reporting.is_json else f"moldau: {text}", "warning")


def can_ask() -> bool:
    """Whether somebody sees a question, which goes to stderr, and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask whoever sits at a terminal before something is gone for good; scripts are not asked."""
    if not yes and not as_json and sys.stdin.isatty():
        ask(question)


def ask(question: str) -> None:
    """Go on if the answer is yes. A question that goes to a file would be waited for in vain."""
    if sys.stdin.isatty() and not can_ask():
        raise typer.BadParameter(
            "the question would not be seen, since stderr is no terminal: give --yes",
            param_hint="--yes",
        )
    typer.confirm(question, abort=True, err=True)


def _say(text: str, level: str) -> None:
    standard_error.write_line(log_line(text, level) if reporting.is_json else text)


def print_table(titles: Iterable[str], rows: Sequence[Sequence[str]], *, indent: int = 0) -> None:
    """A table as wide as it needs to be, at most as wide as the terminal.

    A title that begins with `>` is that of numbers, which are aligned to the right; one that begins
    with `~` is that of long texts, which may be cut.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        is_number = title.startswith(">")
        table.add_column(
            title.removeprefix(">").removeprefix("~"),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="ellipsis" if title.startswith("~") else "fold",
        )
    for row in rows:
        table.add_row(*row)
    console = Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else _PIPE_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(Padding(table, (0, 0, 0, indent), expand=False))
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


_FIRST_AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_LOGGED_EVERY_SECONDS = 10.0


class Progress:
    """Shows how many records have gone, how fast, and how much of the input is left."""

    def __init__(
        self, total_bytes: int | None = None, *, has_end: bool, has_prompt: bool = False
    ) -> None:
        """Of work without an end a log says nothing: it would grow for ever. Nor is anything shown
        where a person types at a prompt: it would stand in front of it."""
        self._total_bytes = total_bytes
        self._is_watched = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = math.inf
        if has_prompt or reporting.is_quiet:
            pass
        elif self._is_watched:
            self._next = self._began + _FIRST_AFTER_SECONDS  # short work shows nothing
        elif has_end:
            self._next = self._began + _LOGGED_EVERY_SECONDS
        self._is_shown = False

    def show(self, records: int, size_bytes: int, input_bytes: int = 0) -> None:
        """Show how far it is, if it is time. `input_bytes` is how much of the input was read."""
        now = time.monotonic()
        if now < self._next:
            return
        share = min(input_bytes / self._total_bytes, 1.0) if self._total_bytes else None
        text = describe_progress(records, size_bytes, now - self._began, share)
        if self._is_watched:
            self._next = now + _EVERY_SECONDS
            self._is_shown = True
            sys.stderr.write(ERASE_LINE + text)
        else:
            self._next = now + _LOGGED_EVERY_SECONDS
            sys.stderr.write(f"moldau: {text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()


def describe_progress(records: int, size_bytes: int, seconds: float, share: float | None) -> str:
    """What has gone, how fast, and which share of the input that is."""
    rate = records / seconds if seconds > 0 else 0.0
    text = f"{records:,} records, {size_bytes / 1e6:,.1f} MB, {rate:,.0f} records/s"
    return text if share is None else f"{text}, {share:.0%} of the input"
