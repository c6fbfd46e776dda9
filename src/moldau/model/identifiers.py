"""Identifiers as nominal types, so that a leader epoch is never passed where an offset is meant."""

from __future__ import annotations

from typing import NewType
from uuid import UUID

from moldau.light_classes import NamedTuple

Offset = NewType("Offset", int)
"""A record's place in its partition. Never negative; -1 means "unknown" on the wire only."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition; grows by one with each election."""

BrokerId = NewType("BrokerId", int)

ProducerId = NewType("ProducerId", int)
"""Names an idempotent producer; -1 for a producer that is not idempotent."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""Fences the older of two producers with one id."""

TopicId = NewType("TopicId", UUID)
"""Outlives the name: a topic deleted and made again has another id."""


class TopicPartition(NamedTuple):
    """One partition of one topic. A named tuple because it is the key of every hot dictionary."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
