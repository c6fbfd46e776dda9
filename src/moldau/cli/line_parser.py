"""From a line of input to a record's key and value. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moldau.errors import ConfigurationError
from moldau.records.record import Headers


class ParsedLine(NamedTuple):
    """What a line says. What it does not say is None: the command decides it then."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Parser(Protocol):
    """Reads lines in one of the forms of `moldau produce`."""

    def parse(self, line: bytes, number: int) -> ParsedLine:
        """`number` counts from 1, for the message about a line that cannot be read."""


class LineParser:
    """Splits lines at a separator, if there is one; a marker stands for "no key" or "no value"."""

    def __init__(self, key_separator: str | None = None, null_marker: str | None = None) -> None:
        self._separator = None if key_separator is None else key_separator.encode()
        self._null_marker = None if null_marker is None else null_marker.encode()

    def parse(self, line: bytes, number: int) -> ParsedLine:
        if self._separator is None:
            return ParsedLine(None, self._unless_null(line))
        key, found, value = line.partition(self._separator)
        if not found:
            raise ConfigurationError(
                f"line {number} has no key separator {self._separator.decode()!r}: "
                f"{first_words(line)}"
            )
        return ParsedLine(self._unless_null(key), self._unless_null(value))

    def _unless_null(self, text: bytes) -> bytes | None:
        return None if text == self._null_marker else text


def first_words(line: bytes) -> str:
    """Enough of a line to recognise it."""
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")
