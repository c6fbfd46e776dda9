"""What may become of a record in a share group, and a run of offsets that are alike.

    Available     ──acquire──▶ Acquired ──accept──▶ Acknowledged
        ▲                         │
        └──release, lock is over──┤──reject, gap, delivered too often──▶ Archived

The numbers are Kafka's, on the wire and in `__share_group_state`. Values: nothing here decides.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


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
