"""The topology of a Kafka Streams application as its members tell it (KIP-1071): what each of its
parts reads, writes and remembers. A rule: values only.

A subtopology is a part that is connected by itself; between two of them stands a repartition topic.
Its tasks are numbered as the partitions that it reads: task 1_2 of a group is partition 2 of every
topic that subtopology 1 reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class TopicInfo(NamedTuple):
    """An internal topic, as the application wants it."""

    name: str
    partition_count: int = 0  # 0: as many as follow from the topics that are read
    replication_factor: int = 0  # 0: the brokers' default
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that need the same number of partitions, by their places in the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_regexes: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """What one part of the application reads, writes and remembers."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_regexes: tuple[str, ...] = ()
    changelog_topics: tuple[TopicInfo, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def read_topics(self) -> tuple[str, ...]:
        """All that its tasks read, whoever made the topics."""
        return (*self.source_topics, *(one.name for one in self.repartition_sources))

    @property
    def internal_topics(self) -> tuple[TopicInfo, ...]:
        """Those that the coordinator has made for it."""
        return (*self.repartition_sources, *self.changelog_topics)

    @property
    def all_topics(self) -> tuple[str, ...]:
        """Every name in it."""
        changelogs = (one.name for one in self.changelog_topics)
        return (*self.read_topics, *self.repartition_sinks, *changelogs)

    def copartitioned(self) -> Iterator[frozenset[str]]:
        """The names of each copartition group."""
        for group in self.copartition_groups:
            sources = (self.source_topics[place] for place in group.source_topics)
            repartitions = (
                self.repartition_sources[place].name for place in group.repartition_sources
            )
            yield frozenset((*sources, *repartitions))


class Topology(NamedTuple):
    """The whole application. The epoch is the application's own count of its changes."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    @property
    def required_topics(self) -> frozenset[str]:
        """Those that must be there before anybody gets tasks."""
        return frozenset(
            name
            for one in self.subtopologies
            for name in (*one.read_topics, *(topic.name for topic in one.changelog_topics))
        )

    @property
    def all_topics(self) -> frozenset[str]:
        return frozenset(name for one in self.subtopologies for name in one.all_topics)


def find_topology_fault(topology: Topology) -> str | None:
    """What makes no sense whatever topics there are."""
    ids = [one.subtopology_id for one in topology.subtopologies]
    if len(set(ids)) < len(ids):
        return "a subtopology is in the topology twice"
    for one in topology.subtopologies:
        fault = _find_subtopology_fault(one)
        if fault is not None:
            return f"subtopology {one.subtopology_id!r}: {fault}"
    return None


def _find_subtopology_fault(subtopology: Subtopology) -> str | None:
    if not subtopology.read_topics:
        return "it reads no topic"
    for topic in subtopology.changelog_topics:
        if topic.partition_count != 0:
            return (
                f"changelog topic {topic.name!r} must leave its number of partitions open, and has "
                f"{topic.partition_count}"
            )
    for topic in subtopology.internal_topics:
        if topic.partition_count < 0 or topic.replication_factor < -1:
            return f"topic {topic.name!r} has a number of partitions or replicas below 0"
    for group in subtopology.copartition_groups:
        if not _are_places(group.source_topics, len(subtopology.source_topics)):
            return "a copartition group names a source topic that is not there"
        if not _are_places(group.repartition_sources, len(subtopology.repartition_sources)):
            return "a copartition group names a repartition topic that is not there"
    return None


def _are_places(places: tuple[int, ...], count: int) -> bool:
    return all(0 <= place < count for place in places)
