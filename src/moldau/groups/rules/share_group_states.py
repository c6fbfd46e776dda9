"""The states of a share group (KIP-932), as tools see them. A rule."""

from __future__ import annotations

from enum import Enum


class ShareGroupState(Enum):
    """Follows from its members; nobody sets it. The values are Kafka's names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to STABLE with the first member; to DEAD when it is deleted."""

    STABLE = "Stable"
    """It has members. Moves: to EMPTY with the last one."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""
