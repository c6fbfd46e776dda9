"""Numbers, sizes, times, durations and rates as people write and read them. Rules."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from moldau.errors import UsageError

UNKNOWN = "-"
"""Stands where a number is not known, or not yet."""

_STEP = 1024
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def count_text(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def plural(count: int, noun: str) -> str:
    """`1 partition`, `3 partitions`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(size_bytes: int | None) -> str:
    """Three significant digits are enough to compare: 1.25 MB, 12.5 MB, 125 MB."""
    if size_bytes is None or size_bytes < 0:
        return UNKNOWN
    size, unit = float(size_bytes), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{_three_digits(size)} {_UNITS[unit]}"


def decimal_size_text(size_bytes: float) -> str:
    """In units of a thousand: 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.3g} TB"


def free_text(free_bytes: int | None, total_bytes: int | None) -> str:
    """`12.5 GB (40%)`: what is left of a disk."""
    if free_bytes is None or not total_bytes:
        return UNKNOWN
    return f"{size_text(free_bytes)} ({free_bytes / total_bytes:.0%})"


def rate_text(per_second: float | None) -> str:
    """0 only where nothing happens: what is slow has a rate all the same."""
    if per_second is None:
        return UNKNOWN
    if per_second == 0 or per_second >= 10:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 0.1 else "<0.1"


def bytes_text(per_second: float | None) -> str:
    return UNKNOWN if per_second is None else size_text(round(per_second))


def axis_step(most_bytes: float) -> int:
    """So many bytes between the lines of a chart: a power of two, such that four of them reach the
    top. Steps of a thousand would stand beside odd numbers of kilobytes."""
    step = 1
    while step * 4 < most_bytes:
        step *= 2
    return step


def duration_text(seconds: float | None) -> str:
    """The two largest units: 350 ms, 12 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two(whole // _MINUTE, "min", whole % _MINUTE, "s")
    if whole < _DAY:
        return _two(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "min")
    return _two(whole // _DAY, "d", whole % _DAY // _HOUR, "h")


def time_text(timestamp_ms: int | None) -> str:
    """In UTC, so that what two people read to each other is the same."""
    if timestamp_ms is None or timestamp_ms < 0:
        return UNKNOWN
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"  # producers may send any number
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def _two(first: int, first_unit: str, second: int, second_unit: str) -> str:
    return f"{first} {first_unit} {second} {second_unit}" if second else f"{first} {first_unit}"


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


def show_duration(milliseconds: float) -> str:
    """As people say it: 7 days, 5 minutes, 1.5 seconds."""
    for unit, size in (
        ("day", 86_400_000),
        ("hour", 3_600_000),
        ("minute", 60_000),
        ("second", 1000),
    ):
        if milliseconds >= size:
            number = milliseconds / size
            text = f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
            return f"{text} {unit}{'' if text == '1' else 's'}"
    return f"{milliseconds:.0f} ms"


_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?(?:/s|ps)?\Z", re.IGNORECASE)
_FACTORS: dict[str, int] = {"": 1} | {
    prefix + suffix: base ** (power + 1)
    for power, prefix in enumerate("kmgt")
    for suffix, base in (("", 1000), ("i", 1024))
}


def parse_byte_rate(text: str) -> float:
    """Bytes per second of `200MB/s`, `1.5 GiB/s` or `800k`."""
    found = _RATE.match(text.strip())
    if found is None or not float(found[1]):
        raise UsageError(f"{text!r} is no rate; give one like 200MB/s, 1.5GB/s or 800kB/s")
    return float(found[1]) * _FACTORS[found[2].lower()]


def byte_rate_text(rate: float) -> str:
    """Bytes per second in a unit of their size."""
    for factor, unit in ((1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= factor:
            return f"{rate / factor:,.4g} {unit}"
    return f"{rate:,.4g} B/s"
