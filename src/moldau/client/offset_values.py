"""What ListOffsets is asked and answers, what is committed for a group, and as whom. Values.

Apart from those of administration (`admin_values`), since every consumer and producer loads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from moldau.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """How far a group has read one partition: the offset that it wants next."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """As whom a consumer commits, and for which group; without a generation, as nobody's member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
