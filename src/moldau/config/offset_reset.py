"""Where reading begins when no offset is known: the values of `auto.offset.reset`, of consumers and
of share groups. Rule: values in, values out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from moldau.config.kinds import Kind, OptionType
from moldau.config.option import MINUTE_MS, SECOND_MS


class ResetTo(Enum):
    """Where reading begins when no offset is known, or the known one is gone."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"
    DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A value of `auto.offset.reset`; the duration counts back from now."""

    to: ResetTo
    duration_ms: int = 0

    def __str__(self) -> str:
        return f"by_duration:PT{self.duration_ms / 1000:g}S" if self.duration_ms else self.to.value


_DURATION = r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?\Z"
_UNITS_MS = (24 * 60 * MINUTE_MS, 60 * MINUTE_MS, MINUTE_MS, SECOND_MS)


def parse_offset_reset(text: str) -> OffsetReset:
    word = text.strip()
    if word in ("none", "error"):  # Kafka says none
        return OffsetReset(ResetTo.ERROR)
    if word in ("earliest", "latest"):
        return OffsetReset(ResetTo(word))
    if word.startswith("by_duration:"):
        return OffsetReset(ResetTo.DURATION, _parse_duration_ms(word.partition(":")[2]))
    raise ValueError("is not one of earliest, latest, error, by_duration:PT1H (or another time)")


def _parse_duration_ms(text: str) -> int:
    found = re.match(_DURATION, text, re.IGNORECASE)
    if found is None or not any(found.groups()):
        raise ValueError("has no duration like PT1H30M or P2D behind the colon")
    return round(
        sum(
            float(part) * unit
            for part, unit in zip(found.groups(), _UNITS_MS, strict=True)
            if part is not None
        )
    )


OFFSET_RESET = Kind(OptionType.STRING, parse_offset_reset)
