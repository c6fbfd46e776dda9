"""Settings that a broker is started with: `.properties` files, `--set` flags, and secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from moldau.errors import ConfigurationError

# Comments begin with `#` or `!`; a backslash at the end of a line continues it; the name ends at
# the first `=`, `:` or white space; `\t \n \r \f` and `\uXXXX` are escapes, and a backslash before
# any other character means that character. What the names mean is not this module's matter.
# Rule: values in, values out.


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


# What a broker is started with: the lines of `server.properties` and the `--set` flags.
#
# `Static` is an ordinary mapping that also remembers where each value stood, so that a message can
# name the line or the flag. Rule: text in, values out; reading the file is the caller's.


class _Entry(NamedTuple):
    value: str
    origin: str


class Static(Mapping[str, str]):
    """Static settings by name; `origin(name)` begins a message about one of them."""

    def __init__(self, entries: Mapping[str, _Entry]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> str:
        return self._entries[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        # Names only: values may be passwords.
        return f"Static({', '.join(self._entries)})"

    def origin(self, name: str) -> str:
        """`server.properties line 12: ` or `--set `."""
        return self._entries[name].origin

    def mapped(self, change: Callable[[str, str], str]) -> Static:
        """The same settings, where they stood, with other values."""
        return Static(
            {
                name: _Entry(change(name, entry.value), entry.origin)
                for name, entry in self._entries.items()
            }
        )

    def __or__(self, other: Static) -> Static:
        """Both; the other's values win."""
        return Static(self._entries | other._entries)


def load_properties(text: str, source_name: str) -> Static:
    """Read the text of a properties file; of a name that stands twice the last line counts."""
    try:
        lines = parse_properties(text)
    except ValueError as fault:
        raise ConfigurationError(f"{source_name} {fault}") from None
    return Static(
        {
            line.name: _Entry(line.value, f"{source_name} line {line.line_number}: ")
            for line in lines
        }
    )


def load_settings(settings: Iterable[str]) -> Static:
    """Read the `key=value` of `--set` on a command line."""
    entries: dict[str, _Entry] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"--set {setting} must have the form key=value")
        entries[name.strip()] = _Entry(value.strip(), "--set ")
    return Static(entries)


def load_flags(values: Mapping[str, str], flag: str) -> Static:
    """Settings that other flags stand for: `given({"broker.id": "1"}, "--broker-id")`."""
    return Static({name: _Entry(value, f"{flag}: ") for name, value in values.items()})


def origin_of(static: Mapping[str, str], name: str) -> str:
    """The beginning of a message about a setting; empty when nobody knows where it stood."""
    return static.origin(name) if isinstance(static, Static) and name in static else ""


# Secrets that stand elsewhere than in a properties file (KIP-297's spelling).
#
# `${env:NAME}` is a variable of the environment, `${file:/path}` the content of a file, and
# `${file:/path:key}` a line of a properties file; so passwords are in no command line and in no
# file that many can read.


_REFERENCE = r"\$\{(?P<provider>env|file):(?P<path>[^}:]+)(?::(?P<key>[^}]+))?\}"


def expand_secrets(settings: Static) -> Static:
    """The settings with what their references stand for. Raises ConfigurationError."""
    return settings.mapped(lambda name, text: expand_secret(settings.origin(name) + name, text))


def expand_secret(name: str, text: str) -> str:
    """The same for one setting, which stands in no file of properties."""
    return re.sub(_REFERENCE, lambda found: _look_up(name, found), text) if "${" in text else text


def _look_up(name: str, found: re.Match[str]) -> str:
    path = found["path"]
    if found["provider"] == "env":
        if path not in os.environ:
            raise ConfigurationError(f"{name}: the environment has no variable {path}")
        return os.environ[path]
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigurationError(f"{name}: {path} cannot be read: {error.strerror}") from None
    if found["key"] is None:
        return text.strip()
    lines = {line.name: line.value for line in parse_properties(text)}
    if found["key"] not in lines:
        raise ConfigurationError(f"{name}: {path} has no {found['key']}")
    return lines[found["key"]]
