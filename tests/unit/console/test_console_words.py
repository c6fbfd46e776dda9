"""What a person types: times, places, settings, headers."""

from __future__ import annotations

import pytest

from moldau.client.rules.offsets import AtBeginning, AtOffset, AtTime, BeforeEnd, ShiftBy, Target
from moldau.console.groups import BEGINNING, END, OFFSET, SHIFT, TIME, parse_target
from moldau.console.records import parse_time
from moldau.console.topics import parse_configs, parse_headers
from moldau.errors import ConfigurationError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1600000000000", 1_600_000_000_000),
        ("10m", NOW_MS - 600_000),
        ("2 h ago", NOW_MS - 7_200_000),
        ("90s", NOW_MS - 90_000),
        ("99999d", 0),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, NOW_MS) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "10 fortnights", "9" * 19, "9" * 5000, "9" * 5000 + "d"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no time"):
        parse_time(text, NOW_MS)


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        (BEGINNING, "", AtBeginning()),
        (END, "ignored", BeforeEnd(0)),
        (OFFSET, "1,000", AtOffset(1000)),
        (TIME, "10m", AtTime(NOW_MS - 600_000)),
        (SHIFT, "-5", ShiftBy(-5)),
    ],
)
def test_places(place: str, text: str, expected: Target) -> None:
    assert parse_target(place, text, NOW_MS) == expected


@pytest.mark.parametrize(("place", "text"), [(OFFSET, "-1"), (OFFSET, "x"), (SHIFT, "")])
def test_what_is_no_place_is_refused(place: str, text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_target(place, text, NOW_MS)


def test_settings_and_headers_stand_one_on_a_line() -> None:
    assert parse_configs("\n retention.ms = 5 \ncleanup.policy=a=b\n") == {
        "retention.ms": "5",
        "cleanup.policy": "a=b",
    }
    assert parse_headers("a: 1\na: b: c\nempty:") == [("a", "1"), ("a", "b: c"), ("empty", "")]
    with pytest.raises(ConfigurationError):
        parse_configs("nothing")
    with pytest.raises(ConfigurationError):
        parse_headers(": x")
