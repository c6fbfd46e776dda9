"""Spans of time: written by people, read by people."""

from __future__ import annotations

import pytest

from moldau.errors import ConfigurationError
from moldau.ops.formatting import format_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("1h", 3_600_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        (" 2H ", 7_200_000),
        ("PT1H", 3_600_000),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT12H", 129_600_000),
        ("P2W", 1_209_600_000),
        ("PT0.5S", 500),
        ("pt10m", 600_000),
    ],
)
def test_durations_are_read_in_both_spellings(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text", ["", "1", "h", "soon", "1y", "P1Y", "P1M", "P", "PT", "-1h", "1h x"]
)
def test_what_is_no_duration_is_answered_with_examples(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no duration; give one like 90s"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (0.04, "0.0s"),
        (4.24, "4.2s"),
        (10.9, "10s"),
        (59.9, "59s"),
        (60, "1m 0s"),
        (312, "5m 12s"),
        (7_500, "2h 5m"),
        (273_600, "3d 4h"),
    ],
)
def test_durations_are_shown_by_their_two_largest_units(seconds: float, expected: str) -> None:
    assert format_duration(seconds) == expected
