"""Sizes and spans of time as people write them in a pipeline file. A rule."""

from __future__ import annotations

import re

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
