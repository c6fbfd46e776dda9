"""Reads the keys of one table of a pipeline file, and collects what is wrong with them. A rule.

Reading goes on after a fault, so that a person sees all of them at once. Each is a message that
names the key, what is wrong with it, and what to do. Sizes and spans of time are as people write
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from moldau.config.option import suggest
from moldau.model import find_topic_name_fault

T = TypeVar("T")
W = TypeVar("W", bound=str)


class Faults:
    """What is wrong with a file, in the order in which it was found."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add(self, key: str, message: str) -> None:
        self.messages.append(f"{key}: {message}")


class Section:
    """One table. Keys that nobody asks for are faults: see `finish`."""

    def __init__(self, values: Mapping[str, object], path: str, faults: Faults) -> None:
        self._values = values
        self._path = path
        self._faults = faults
        self._asked: list[str] = []
        self._faulty: set[str] = set()

    def fault(self, key: str, message: str, *, by: str = "") -> None:
        """`by` is the key that makes a fault of it: while that is wrong itself, nobody knows."""
        if by not in self._faulty:
            self._faulty.add(key)
            self._faults.add(self.path_of(key), message)

    def path_of(self, key: str) -> str:
        return ".".join(part for part in (self._path, key) if part)

    def has(self, key: str) -> bool:
        return key in self._values

    # Values

    def find_text(self, key: str) -> str | None:
        """A text that is not empty, or None."""
        value = self._find_value(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.fault(key, f"{_show_value(value)} is not a text; put it in quotes")
            return None
        return value.strip()

    def require_text(self, key: str, why: str) -> str:
        """A text; a fault and an empty one when it is missing."""
        if not self.has(key):
            self._asked.append(key)
            self.fault(key, f"is missing; {why}")
            return ""
        return self.find_text(key) or ""

    def find_texts(self, key: str) -> tuple[str, ...]:
        """A text, or a list of them."""
        value = self._find_value(key)
        if value is None:
            return ()
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            self.fault(
                key, f"{_show_value(value)} is not a text, nor a list of texts; put each in quotes"
            )
            return ()
        if not found:
            self.fault(key, "names nothing; put something in it, or remove it")
        return tuple(found)

    def flag(self, key: str, default: bool) -> bool:
        value = self._find_value(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.fault(
            key,
            f"{_show_value(value)} is neither true nor false; write one of them, without quotes",
        )
        return default

    def number(self, key: str, default: int, lowest: int) -> int:
        value = self._find_value(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            self.fault(
                key, f"{_show_value(value)} is not a whole number of {lowest} or more; write one"
            )
            return default
        return value

    def choice(self, key: str, default: W, allowed: Sequence[W]) -> W:
        value = self._find_value(key)
        if value is None:
            return default
        for one in allowed:
            if value == one:
                return one
        hint = suggest(value, allowed) if isinstance(value, str) else ""
        self.fault(
            key, f"{_show_value(value)} is not one of {', '.join(allowed)}{hint or '; choose one'}"
        )
        return default

    def parsed(self, key: str, default: T, parse: Callable[[str], T]) -> T:
        """A text or number that `parse` reads; it raises ValueError with the message."""
        value = self._find_value(key)
        if value is None:
            return default
        try:
            return parse(str(value))
        except ValueError as fault:
            self.fault(key, str(fault))
            return default

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """A table of texts, numbers and booleans, as texts, in its order."""
        return tuple(_flatten(self._table(key)))

    # Tables

    def section(self, key: str) -> Section | None:
        """A table, or None where there is none."""
        table = self._table(key)
        return Section(table, self.path_of(key), self._faults) if self.has(key) else None

    def sections(self, key: str) -> list[tuple[str, Section]]:
        """The tables `[key.NAME]`, by their names and in their order."""
        found: list[tuple[str, Section]] = []
        for name, value in self._table(key).items():
            path = self.path_of(f"{key}.{name}")
            if isinstance(value, dict):
                found.append((name, Section(value, path, self._faults)))
            else:
                self._faults.add(path, f"{_show_value(value)} is not a table; write [{path}]")
        return found

    def finish(self) -> None:
        """Report keys that mean nothing here."""
        for key in self._values:
            if key not in self._asked:
                hint = suggest(key, self._asked)
                known = ", ".join(sorted(self._asked))
                self.fault(key, f"there is no such key{hint or f'; there are {known}'}")

    def _find_value(self, key: str) -> object:
        self._asked.append(key)
        return self._values.get(key)

    def _table(self, key: str) -> Mapping[str, object]:
        value = self._find_value(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fault(key, f"{_show_value(value)} is not a table; write [{self.path_of(key)}]")
            return {}
        return value


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dots in TOML's keys make tables of tables: put them together again."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, "true" if value else "false"
        else:
            yield prefix + name, str(value)


def _show_value(value: object) -> str:
    return "this" if isinstance(value, dict | list) else repr(value)


# Names


def check_topic(section: Section, key: str, topic: str) -> None:
    """A fault where no broker would take the name."""
    fault = find_topic_name_fault(topic)
    if fault is not None:
        section.fault(key, fault)


def check_known(section: Section, key: str, name: str, known: Sequence[str]) -> None:
    """A fault where the name was not declared before."""
    if name not in known:
        declared = ", ".join(known) or "none"
        hint = suggest(name, known) or f"; declared above it: {declared}"
        section.fault(key, f"there is no source or transform {name!r}{hint}")


# Sizes and spans of time

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_UNIT_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_SECOND_MS = 1000


def parse_size_bytes(text: str) -> int:
    """Bytes of `128MB`, `64 KiB` or `1000`; a B alone counts in thousands, an iB in 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size; give one like 128MB or 64KiB")
    number, unit = float(found[1]), found[2].lower()
    base = 1024 if "i" in unit else 1000
    return int(number * base ** _POWERS[unit.rstrip("b").rstrip("i")])


def parse_span_ms(text: str) -> int:
    """Milliseconds of `30s`, `10 minutes` or `1h`."""
    found = _SPAN.fullmatch(text.strip())
    unit = None if found is None else _find_unit_ms(found[2].lower())
    if found is None or unit is None:
        raise ValueError(f"{text!r} is no span of time; give one like 30s, 10 minutes or 1h")
    return int(float(found[1]) * unit)


def spark_interval(span_ms: int) -> str:
    """A span as Spark writes its intervals."""
    whole, rest = divmod(span_ms, _SECOND_MS)
    return f"{span_ms} milliseconds" if rest else f"{whole} seconds"


def _find_unit_ms(unit: str) -> int | None:
    return _UNIT_MS.get(unit) or _UNIT_MS.get(unit.removesuffix("s"))
