"""The nouns that every room shares. Values only: standard library, no decisions, no I/O."""

from moldau.model.identifiers import (
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)

__all__ = (
    "BrokerId",
    "LeaderEpoch",
    "Offset",
    "ProducerEpoch",
    "ProducerId",
    "TopicId",
    "TopicPartition",
)
