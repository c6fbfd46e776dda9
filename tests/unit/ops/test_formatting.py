"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.ops.formatting import duration_text, plural, rate_text, size_text, time_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "-"),
        (-1, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KB"),
        (1024, "1.00 KB"),
        (1_310_720, "1.25 MB"),
        (13_107_200, "12.5 MB"),
        (131_072_000, "125 MB"),
        (1 << 60, "1024 PB"),
    ],
)
def test_sizes_have_three_digits(size: int | None, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.35, "350 ms"),
        (59.9, "59 s"),
        (200, "3 min 20 s"),
        (7200, "2 h"),
        (7500, "2 h 5 min"),
        (356_400, "4 d 3 h"),
    ],
)
def test_durations_have_two_units(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "-"), (0, "0"), (0.01, "<0.1"), (2.5, "2.5"), (1234.4, "1,234")],
)
def test_a_slow_rate_is_not_nothing(rate: float | None, text: str) -> None:
    assert rate_text(rate) == text


def test_counts_agree_with_their_nouns() -> None:
    assert plural(1, "partition") == "1 partition"
    assert plural(2000, "partition") == "2,000 partitions"


def test_times_are_in_utc() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert time_text(-1) == "-"


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_any_number_that_a_producer_sends_is_shown(timestamp_ms: int) -> None:
    assert time_text(timestamp_ms)
