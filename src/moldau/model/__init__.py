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
from moldau.model.principal import ANONYMOUS, Principal

__all__ = (
    "ANONYMOUS",
    "BrokerId",
    "LeaderEpoch",
    "Offset",
    "Principal",
    "ProducerEpoch",
    "ProducerId",
    "TopicId",
    "TopicPartition",
)
