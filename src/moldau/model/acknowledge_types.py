"""What takers of a share group say of records, and brokers hear. Values only."""

from __future__ import annotations

from enum import IntEnum


class AcknowledgeType(IntEnum):
    """What is said of a record that was delivered; the numbers are Kafka's."""

    GAP = 0
    """There is no record at this offset: compacted away, or a marker of a transaction."""

    ACCEPT = 1
    """Dealt with: never delivered again."""

    RELEASE = 2
    """Not dealt with: delivered again, to anybody, unless that was done too often already."""

    REJECT = 3
    """Cannot be dealt with: never delivered again."""

    RENEW = 4
    """Still being dealt with: the lock begins anew (KIP-1222)."""
