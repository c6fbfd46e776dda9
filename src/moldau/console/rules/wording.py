"""Numbers, sizes, times and rates as people read them. Rules: values in, texts out."""

from __future__ import annotations

from datetime import UTC, datetime

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
