"""What may become of a record in a share group, and a run of offsets that are alike.

    Available     ──acquire──▶ Acquired ──accept──▶ Acknowledged
        ▲                         │
        └──release, lock is over──┤──reject, gap, delivered too often──▶ Archived

The numbers are Kafka's, on the wire and in `__share_group_state`. Values: nothing here decides.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

NO_START_OFFSET: Final = -1
"""In the place of a start offset: none was stored yet, or this write does not change it."""

NO_COUNT: Final = -1
"""In the place of the number of offsets that are done: not known."""


class DeliveryState(IntEnum):
    """The state of a record. Acknowledged and Archived are final."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self >= DeliveryState.ACKNOWLEDGED


class StateBatch(NamedTuple):
    """Offsets that are alike, as they are stored: never Acquired, which is a lock in memory."""

    first_offset: int
    last_offset: int  # inclusive
    delivery_state: DeliveryState
    delivery_count: int


class SharePartitionKey(NamedTuple):
    """One partition in one share group. Its coordinator is that of `group:topic id:partition`."""

    group_id: str
    topic_id: UUID
    partition: int


class StoredShareState(NamedTuple):
    """What the coordinator knows of a share partition.

    Invariant: the batches are in order and do not overlap; gaps between them are Available
    records that were delivered never, or only to those who did not say what became of them.
    """

    state_epoch: int
    start_offset: int  # NO_START_OFFSET before the first write
    state_batches: tuple[StateBatch, ...] = ()


class ShareStateWrite(NamedTuple):
    """What has changed since the last write. Later batches replace earlier ones where they
    overlap; what is before the start offset is forgotten."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # offsets from the start offset on whose delivery is complete
    state_batches: tuple[StateBatch, ...]
