"""Reads what a person typed about a new topic or record. Rules: texts in, values out."""

from __future__ import annotations

from moldau.errors import ConfigurationError


def parse_configs(text: str) -> dict[str, str]:
    """`name=value`, one on a line; empty lines do not count."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"{line!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found


def parse_headers(text: str) -> list[tuple[str, str]]:
    """`name: value`, one on a line; a name may come several times."""
    found: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigurationError(f"{line!r} is not of the form name: value")
        found.append((name.strip(), value.strip()))
    return found
