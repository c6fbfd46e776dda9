"""Partitions of topics by the topics' ids, as members of consumer groups are given them, and the
algebra of such values. It serves whatever has numbers under keys: the tasks of streams groups are
the partitions of subtopologies. A rule.

Values: nothing here changes what it was given. A topic without partitions is not in a value.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

K = TypeVar("K")

AssignedPartitions: TypeAlias = Mapping[UUID, frozenset[int]]

NO_PARTITIONS: Final[AssignedPartitions] = MappingProxyType({})

AssignmentEpochs: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""The epoch in which each partition was assigned to the member that has it (KIP-1251)."""


def partitions_of(pairs: Iterable[tuple[K, int]]) -> Mapping[K, frozenset[int]]:
    """From single partitions."""
    found: dict[K, set[int]] = {}
    for topic_id, partition in pairs:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(some) for topic_id, some in found.items()}


def assigned_in(epoch: int, partitions: AssignedPartitions) -> AssignmentEpochs:
    """All of them in the same epoch."""
    return {topic_id: dict.fromkeys(some, epoch) for topic_id, some in partitions.items()}


def only_topics(partitions: AssignedPartitions, topic_ids: Container[UUID]) -> AssignedPartitions:
    return {topic_id: some for topic_id, some in partitions.items() if topic_id in topic_ids}


def common(
    some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """What is in both."""
    return {
        topic_id: both
        for topic_id, partitions in some.items()
        if (both := partitions & others.get(topic_id, frozenset()))
    }


def without(
    some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """What is in the first alone."""
    return {
        topic_id: rest
        for topic_id, partitions in some.items()
        if (rest := partitions - others.get(topic_id, frozenset()))
    }


def together(
    some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]
) -> Mapping[K, frozenset[int]]:
    """What is in either."""
    joined = dict(some)
    for topic_id, partitions in others.items():
        joined[topic_id] = joined.get(topic_id, frozenset()) | partitions
    return joined


def overlap(some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]) -> bool:
    return any(
        not partitions.isdisjoint(others.get(topic_id, ())) for topic_id, partitions in some.items()
    )


def is_within(some: Mapping[K, frozenset[int]], others: Mapping[K, frozenset[int]]) -> bool:
    """Whether everything of the first is in the second, too."""
    return all(
        partitions <= others.get(topic_id, frozenset()) for topic_id, partitions in some.items()
    )
