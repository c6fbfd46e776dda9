r"""Java's `.properties` format: text in, names and values with their line numbers out.

Comments begin with `#` or `!`; a backslash at the end of a line continues it; the name ends at
the first `=`, `:` or white space; `\t \n \r \f` and `\uXXXX` are escapes, and a backslash before
any other character means that character. What the names mean is not this module's matter.
Rule: values in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLANK = " \t\f"
_LINE_ENDS = r"\r\n|\r|\n"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS = r"[0-9a-fA-F]{4}"


class Property(NamedTuple):
    """One setting; `line_number` counts from 1 and is where the setting begins."""

    name: str
    value: str
    line_number: int


def parse_properties(text: str) -> list[Property]:
    """Read a whole file; ValueError says `line N: …` when an escape is damaged."""
    properties = []
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        try:
            properties.append(_parse_line(line, number))
        except ValueError as fault:
            raise ValueError(f"line {number}: {fault}") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined; comments and blank lines left out."""
    pending: str | None = None
    start = 0
    for number, raw in enumerate(re.split(_LINE_ENDS, text), 1):
        line = raw.lstrip(_BLANK)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, start = "", number
        if _is_continued(line):
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = None
    if pending is not None:
        yield start, pending


def _is_continued(line: str) -> bool:
    """An odd number of backslashes at the end: the last one is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _parse_line(line: str, number: int) -> Property:
    end = _find_name_end(line)
    rest = line[end:].lstrip(_BLANK)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANK)
    return Property(_unescape(line[:end]), _unescape(rest), number)


def _find_name_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANK:
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (slash := text.find("\\", position)) != -1:
        parts.append(text[position:slash])
        character, position = _read_escape(text, slash + 1)
        parts.append(character)
    parts.append(text[position:])
    # Java's strings are UTF-16, so a character beyond \uFFFF arrives as two escapes.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_escape(text: str, position: int) -> tuple[str, int]:
    """The character of the escape whose letter stands at `position`, and where the text goes on."""
    letter = text[position : position + 1]
    if letter != "u":
        return _CONTROLS.get(letter, letter), position + 1
    digits = re.match(_HEX_DIGITS, text[position + 1 : position + 5])
    if digits is None:
        raise ValueError("\\u must be followed by four hexadecimal digits")
    return chr(int(digits.group(), 16)), position + 5
