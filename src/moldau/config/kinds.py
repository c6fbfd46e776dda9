"""How an option's text becomes a value, and back: Kafka's config types.

A `Kind` reads one type; a `Rule` narrows it (a range, a choice of words). Both report a fault as
the end of a message that begins with `name=value`, e.g. "is not a whole number". Rule: values in,
values out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

V_co = TypeVar("V_co", covariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+\Z")
_DECIMAL_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z"


class OptionType(IntEnum):
    """The codes that DescribeConfigs puts on the wire."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Kind(Generic[V_co]):
    """Reads the text of one type; `parse` raises ValueError with the end of a message."""

    type: OptionType
    parse: Callable[[str], V_co]

    def tidy(self, text: str) -> str:
        """The text as Kafka prints it back: trimmed, numbers and lists in their plain form."""
        if self.type is OptionType.LIST:
            return ",".join(split_list(text))
        if self.type in (OptionType.STRING, OptionType.CLASS, OptionType.PASSWORD):
            return text.strip()
        return to_text(self.parse(text))


@dataclass(frozen=True, slots=True)
class Rule(Generic[V_contra]):
    """A limit on the values of a kind, with its words for the reference page."""

    words: str
    find_fault: Callable[[V_contra], str | None]


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list, trimmed; an empty text has none."""
    stripped = text.strip()
    return tuple(item.strip() for item in stripped.split(",")) if stripped else ()


def to_text(value: object) -> str:
    """A value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{item}" for key, item in value.items())
    return str(value)


def _double_text(value: float) -> str:
    # Java writes the exponent as E308, Python as e+308.
    return repr(value).replace("e+", "E").replace("e", "E")


def _parse_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return word == "true"


def _whole_number(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        stripped = text.strip()
        # int() alone would also take 1_000 and digits of other scripts, which Kafka refuses.
        if not _WHOLE_NUMBER.match(stripped):
            raise ValueError("is not a whole number")
        value = int(stripped)
        if not -limit <= value < limit:
            raise ValueError(f"does not fit into {bits} bits")
        return value

    return parse


def _parse_double(text: str) -> float:
    stripped = text.strip()
    if not re.match(_DECIMAL_NUMBER, stripped):
        raise ValueError("is not a number")
    return float(stripped)


def _parse_list(text: str) -> tuple[str, ...]:
    items = split_list(text)
    if "" in items:
        raise ValueError("has an empty item between two commas")
    return items


def _parse_set(text: str) -> frozenset[str]:
    return frozenset(_parse_list(text))


BOOLEAN = Kind(OptionType.BOOLEAN, _parse_boolean)
SHORT = Kind(OptionType.SHORT, _whole_number(16))
INT = Kind(OptionType.INT, _whole_number(32))
LONG = Kind(OptionType.LONG, _whole_number(64))
DOUBLE = Kind(OptionType.DOUBLE, _parse_double)
STRING = Kind(OptionType.STRING, str.strip)
CLASS = Kind(OptionType.CLASS, str.strip)
PASSWORD = Kind(OptionType.PASSWORD, str.strip)
LIST = Kind(OptionType.LIST, _parse_list)
SET = Kind(OptionType.LIST, _parse_set)


def at_least(lowest: float) -> Rule[float]:
    """From `lowest` upwards."""
    fault = f"is less than {lowest}"
    return Rule(f"at least {lowest}", lambda value: fault if value < lowest else None)


def between(lowest: float, highest: float) -> Rule[float]:
    """From `lowest` to `highest`, both included."""
    fault = f"is not between {lowest} and {highest}"
    return Rule(
        f"{lowest} to {highest}",
        lambda value: None if lowest <= value <= highest else fault,
    )


def one_of(*words: str) -> Rule[str]:
    """One of these words, spelled exactly so."""
    fault = f"is not one of {', '.join(words)}"
    return Rule(" or ".join(words), lambda value: None if value in words else fault)


def any_of(*words: str) -> Rule[Collection[str]]:
    """A list made of these words."""

    def find_fault(value: Iterable[str]) -> str | None:
        strange = sorted(set(value) - set(words))
        return f"names {strange[0]}, which is not one of {', '.join(words)}" if strange else None

    return Rule("a list of " + ", ".join(words), find_fault)
