"""Spans of time as people write and read them. Pure."""

from __future__ import annotations

import re

from moldau.errors import UsageError

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NUMBER = r"(\d+(?:\.\d+)?)"
_SHORT_PART = re.compile(_NUMBER + "(ms|[smhdw])")
_SHORT = re.compile(f"(?:{_SHORT_PART.pattern})+")
_ISO = re.compile(
    rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_ISO_UNITS = ("w", "d", "h", "m", "s")

_FIRST_WITHOUT_TENTHS = 10


def parse_duration_ms(text: str) -> int:
    """Milliseconds of `90s`, `1h30m` or `2d`, or of an ISO 8601 duration such as `PT1H30M`.

    Years and months are not taken: they have no fixed length.
    """
    parts = _split(text.strip())
    if not parts:
        raise UsageError(
            f"{text!r} is no duration; give one like 90s, 15m, 1h30m or 2d, or PT1H as in ISO 8601"
        )
    return int(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))


def _split(text: str) -> list[tuple[str, str]]:
    """Numbers and their units; nothing when the text is no duration."""
    if _SHORT.fullmatch(text.lower()):
        return [(number, unit) for number, unit in _SHORT_PART.findall(text.lower())]
    found = _ISO.fullmatch(text.upper())
    if found is None:
        return []
    return [(n, unit) for n, unit in zip(found.groups(), _ISO_UNITS, strict=True) if n is not None]


def format_duration(seconds: float) -> str:
    """The two largest units that count: `4.2s`, `42s`, `5m 12s`, `2h 5m`, `3d 4h`."""
    if 0 < seconds < _FIRST_WITHOUT_TENTHS:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    minutes, left_seconds = divmod(whole, 60)
    hours, left_minutes = divmod(minutes, 60)
    days, left_hours = divmod(hours, 24)
    if days:
        return f"{days}d {left_hours}h"
    if hours:
        return f"{hours}h {left_minutes}m"
    return f"{minutes}m {left_seconds}s" if minutes else f"{left_seconds}s"
