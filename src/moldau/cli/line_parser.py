"""From lines of input to records. Pure.

Lines are read some thousands at a time, and so are they parsed: a step for each line would cost
more than all the rest of `moldau produce`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from moldau.errors import ConfigurationError
from moldau.records.record import Headers

Payload = bytes | None
ParsedRow = tuple[int | None, Payload, Payload, Headers]
"""A record whose line says more than key and value; without a timestamp it gets the present."""


class ParsedLines(NamedTuple):
    """Records of consecutive lines that go to one place, as `Producer.send_many` takes them."""

    values: Sequence[Payload] | Sequence[ParsedRow]
    keys: Sequence[Payload] | None = None
    partition: int | None = None  # None: the command decides


class Parser(Protocol):
    """Reads lines in one of the forms of `moldau produce`."""

    def parse(self, lines: Sequence[bytes], first_number: int) -> Iterator[ParsedLines]:
        """What the lines say. A line that cannot be read is raised after those before it.

        `first_number` counts from 1, for the message about such a line.
        """


class LineParser:
    """Splits lines at a separator, if there is one; a marker stands for "no key" or "no value"."""

    def __init__(
        self,
        key_separator: str | None = None,
        null_marker: str | None = None,
        key: str | None = None,
    ) -> None:
        """A `key` is that of every line; then there is no separator."""
        self._separator = None if key_separator is None else key_separator.encode()
        self._key = None if key is None else key.encode()
        self._null_marker = None if null_marker is None else null_marker.encode()

    def parse(self, lines: Sequence[bytes], first_number: int) -> Iterator[ParsedLines]:
        separator = self._separator
        if separator is None:
            keys_of_all = None if self._key is None else [self._key] * len(lines)
            yield ParsedLines(self._with_nulls(lines), keys_of_all)
            return
        keys, found, values = zip(*[line.partition(separator) for line in lines], strict=True)
        count = found.index(b"") if b"" in found else len(found)
        if count:
            yield ParsedLines(self._with_nulls(values[:count]), self._with_nulls(keys[:count]))
        if count < len(found):
            raise ConfigurationError(
                f"line {first_number + count} has no key separator {separator.decode()!r}: "
                f"{first_words(lines[count])}"
            )

    def _with_nulls(self, texts: Sequence[bytes]) -> Sequence[Payload]:
        marker = self._null_marker
        if marker is None or marker not in texts:
            return texts
        return [None if text == marker else text for text in texts]


def first_words(line: bytes) -> str:
    """Enough of a line to recognise it."""
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")
