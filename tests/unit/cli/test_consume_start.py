"""Where to begin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from moldau.cli.offset_target import choose_start, parse_offset, parse_timestamp
from moldau.client.rules.offsets import AtBeginning, AtOffset, AtTime, BeforeEnd, Start
from moldau.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", AtBeginning()),
        ("latest", BeforeEnd(0)),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("-5", BeforeEnd(5)),
    ],
)
def test_offsets_are_numbers_or_words(text: str, expected: Start) -> None:
    assert parse_offset(text) == expected


@pytest.mark.parametrize("text", ["", "-", "soon", "1.5", "--5", "5-", "²"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no offset"):
        parse_offset(text)


def test_a_time_is_milliseconds_or_iso() -> None:
    moment = int(datetime(2030, 1, 31, 12, 0, tzinfo=UTC).timestamp() * 1000)
    assert parse_timestamp("1700000000000") == 1700000000000
    assert parse_timestamp("2030-01-31T12:00:00+00:00") == moment
    assert parse_timestamp("2030-01-31T13:00:00+01:00") == moment


def test_a_time_without_a_zone_is_this_machines() -> None:
    local = datetime(2030, 1, 31, 12, 0).astimezone()
    assert parse_timestamp("2030-01-31T12:00") == int(local.timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "2030-13-01", "-1"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no time"):
        parse_timestamp(text)


def test_without_a_word_only_new_records_are_read() -> None:
    assert choose_start(None, None, False) == BeforeEnd(0)
    assert choose_start(None, None, True) == AtBeginning()
    assert choose_start(None, "7", False) == AtTime(7)


def test_two_places_to_begin_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="choose one"):
        choose_start("1", None, True)
    with pytest.raises(ConfigurationError, match="choose one"):
        choose_start("1", "7", False)
