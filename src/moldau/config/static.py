"""What a broker is started with: the lines of `server.properties` and the `--set` flags.

`Static` is an ordinary mapping that also remembers where each value stood, so that a message can
name the line or the flag. Rule: text in, values out; reading the file is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from moldau.config.properties import parse_properties
from moldau.errors import ConfigurationError


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


def given(values: Mapping[str, str], flag: str) -> Static:
    """Settings that other flags stand for: `given({"broker.id": "1"}, "--broker-id")`."""
    return Static({name: _Entry(value, f"{flag}: ") for name, value in values.items()})


def origin_of(static: Mapping[str, str], name: str) -> str:
    """The beginning of a message about a setting; empty when nobody knows where it stood."""
    return static.origin(name) if isinstance(static, Static) and name in static else ""
