"""The states of a consumer group (KIP-848), as tools see them. A rule."""

from __future__ import annotations

from enum import Enum


class ConsumerGroupState(Enum):
    """Follows from the epochs; nobody sets it. The values are Kafka's names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to ASSIGNING with the first member; to DEAD when it is deleted or its
    last offset expires."""

    ASSIGNING = "Assigning"
    """The group's epoch is ahead of the target's. Moves: to RECONCILING with the next heartbeat of
    a member, which is when targets are computed."""

    RECONCILING = "Reconciling"
    """Some members have not reached their targets yet. Moves: to STABLE with the last one."""

    STABLE = "Stable"
    """Every member has its target. Moves: to ASSIGNING when somebody comes, goes or wants something
    else, or the topics change."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""
