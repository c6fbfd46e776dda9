"""Where a person wants a group to go on, from a word and a text. Rules."""

from __future__ import annotations

from moldau.client.rules.offset_targets import (
    AtBeginning,
    AtOffset,
    AtTime,
    BeforeEnd,
    ShiftBy,
    Target,
)
from moldau.console.rules.start_points import parse_time
from moldau.errors import ConfigurationError

BEGINNING, END, OFFSET, TIME, SHIFT = PLACES = (
    "the beginning",
    "the end",
    "an offset",
    "a time",
    "forward or back by",
)

_END_OF_NUMBERS = 1 << 63  # of those that the protocol has room for


def parse_target(place: str, text: str, now_ms: int) -> Target:
    """The text means something for the last three places only."""
    text = text.strip()
    if place == BEGINNING:
        return AtBeginning()
    if place == END:
        return BeforeEnd(0)
    if place == TIME:
        return AtTime(parse_time(text, now_ms))
    try:
        number = int(text.replace(",", ""))
    except ValueError:
        raise ConfigurationError(f"{text!r:.60} is no number") from None
    if abs(number) >= _END_OF_NUMBERS:
        raise ConfigurationError(f"{text:.60} is beyond all offsets")
    if place == SHIFT:
        return ShiftBy(number)
    if number < 0:
        raise ConfigurationError(f"{number} is no offset")
    return AtOffset(number)
