"""Partitions of topics by the topics' ids, as members of consumer groups are given them. A rule.

Values: nothing here changes what it was given. A topic without partitions is not in a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

AssignedPartitions: TypeAlias = Mapping[UUID, frozenset[int]]

NO_PARTITIONS: Final[AssignedPartitions] = MappingProxyType({})


def partitions_of(pairs: Iterable[tuple[UUID, int]]) -> AssignedPartitions:
    """From single partitions."""
    found: dict[UUID, set[int]] = {}
    for topic_id, partition in pairs:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(some) for topic_id, some in found.items()}


def common(some: AssignedPartitions, others: AssignedPartitions) -> AssignedPartitions:
    """What is in both."""
    return {
        topic_id: both
        for topic_id, partitions in some.items()
        if (both := partitions & others.get(topic_id, frozenset()))
    }


def without(some: AssignedPartitions, others: AssignedPartitions) -> AssignedPartitions:
    """What is in the first alone."""
    return {
        topic_id: rest
        for topic_id, partitions in some.items()
        if (rest := partitions - others.get(topic_id, frozenset()))
    }


def together(some: AssignedPartitions, others: AssignedPartitions) -> AssignedPartitions:
    """What is in either."""
    joined = dict(some)
    for topic_id, partitions in others.items():
        joined[topic_id] = joined.get(topic_id, frozenset()) | partitions
    return joined


def overlap(some: AssignedPartitions, others: AssignedPartitions) -> bool:
    return any(
        not partitions.isdisjoint(others.get(topic_id, ())) for topic_id, partitions in some.items()
    )


def is_within(some: AssignedPartitions, others: AssignedPartitions) -> bool:
    """Whether everything of the first is in the second, too."""
    return all(
        partitions <= others.get(topic_id, frozenset()) for topic_id, partitions in some.items()
    )
