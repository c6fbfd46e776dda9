"""What ListOffsets is asked and answers. Values; apart from those of administration
(`admin_values`), since every consumer loads them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from moldau.model.protocol_numbers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP


class OffsetSpec(IntEnum):
    """Asks ListOffsets for a place instead of a time; a time is any number from 0 on."""

    LATEST = LATEST_TIMESTAMP
    EARLIEST = EARLIEST_TIMESTAMP
    MAX_TIMESTAMP = MAX_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """An answer of ListOffsets; `offset` is -1 when nothing is as late as the time asked for."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1
