"""The topology of a Kafka Streams application as its members tell it (KIP-1071): what each of its
parts reads, writes and remembers. A rule: values only.

A subtopology is a part that is connected by itself; between two of them stands a repartition topic.
Its tasks are numbered as the partitions that it reads: task 1_2 of a group is partition 2 of every
topic that subtopology 1 reads.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinators.groups.rules.assigned_partitions import (
    common,
    is_within,
    overlap,
    together,
    without,
)


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


# The tasks of a streams group, as members are given them (KIP-1071). A rule: values only.
#
# A task is a partition of a subtopology. One member runs it (active); others may keep a copy of its
# state (standby), or build one up to take it over (warm-up).


TaskSet: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by the id of their subtopology."""

TaskId: TypeAlias = tuple[str, int]

_NOTHING: Final[TaskSet] = MappingProxyType({})


class TaskKind(Enum):
    """What a member does with a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


class Tasks(NamedTuple):
    """What somebody has, or is to get."""

    active: TaskSet = _NOTHING
    standby: TaskSet = _NOTHING
    warmup: TaskSet = _NOTHING

    def of_kind(self, kind: TaskKind) -> TaskSet:
        match kind:
            case TaskKind.ACTIVE:
                return self.active
            case TaskKind.STANDBY:
                return self.standby
            case TaskKind.WARMUP:
                return self.warmup

    @property
    def is_empty(self) -> bool:
        return not any(self)

    def each(self) -> Iterator[tuple[TaskKind, TaskId]]:
        for kind in TaskKind:
            for subtopology_id, partitions in self.of_kind(kind).items():
                for partition in partitions:
                    yield kind, (subtopology_id, partition)

    def common_with(self, others: Tasks) -> Tasks:
        return Tasks(*(common(*pair) for pair in zip(self, others, strict=True)))

    def without(self, others: Tasks) -> Tasks:
        return Tasks(*(without(*pair) for pair in zip(self, others, strict=True)))

    def together_with(self, others: Tasks) -> Tasks:
        return Tasks(*(together(*pair) for pair in zip(self, others, strict=True)))

    def overlaps(self, others: Tasks) -> bool:
        return any(overlap(*pair) for pair in zip(self, others, strict=True))

    def is_within(self, others: Tasks) -> bool:
        return all(is_within(*pair) for pair in zip(self, others, strict=True))


NO_TASKS: Final = Tasks()


# A repartition topic gets as many partitions as the largest topic that is read by those who write
# to it, unless the application says how many, or it has to have as many as others that are joined
# with it. A changelog topic gets as many as its subtopology has tasks. The model is Kafka's
# `InternalTopicManager`.


_MOST_NAMED = 3
"""Topics that a message names; of more it tells the number."""

MOST_TASKS = 20_000
"""Of one application; Kafka has no bound. They are assigned in slices, but each member is given its
tasks in one step, and nobody else is served while one member gets all of them: some 20 ms. Without
it a short topology that reads one large topic many times could fill the memory."""


class StreamsStatus(IntEnum):
    """What a member is told beside its tasks; Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class StatusNote(NamedTuple):
    """A status, and a message for people."""

    status: StreamsStatus
    detail: str


class CreatableTopic(NamedTuple):
    """A topic that is to be made for an application."""

    name: str
    partition_count: int
    replication_factor: int  # 0: the brokers' default
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """A topology with the topics of one image of the cluster."""

    fault: StatusNote | None = None  # None: its tasks can be given to members
    partition_counts: Mapping[str, int] = field(default_factory=dict)  # of internal topics
    task_counts: Mapping[str, int] = field(default_factory=dict)  # by subtopology
    stateful: frozenset[str] = frozenset()  # subtopologies that remember something
    missing: tuple[CreatableTopic, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.fault is None


class InvalidTopologyError(Exception):
    """No topics could make this topology work."""


class _Misfit(Exception):
    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.note = StatusNote(status, detail)


def configure(topology: Topology, existing: Mapping[str, int]) -> ConfiguredTopology:
    """`existing` has the partition counts of the topics that there are. Raises
    `InvalidTopologyError`."""
    try:
        return _configure(topology, existing)
    except _Misfit as misfit:
        return ConfiguredTopology(fault=misfit.note)


def _configure(topology: Topology, existing: Mapping[str, int]) -> ConfiguredTopology:
    _check_sources(topology, existing)
    counts = _Counts(topology, existing)
    counts.decide_repartition_topics()
    counts.enforce_copartitioning()
    task_counts = counts.count_tasks()
    missing = counts.find_missing()
    fault = None
    if missing:
        names = _summarize([one.name for one in missing])
        detail = f"Internal topics are missing: {names}"
        fault = StatusNote(StreamsStatus.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(
        fault=fault,
        partition_counts=counts.decided,
        task_counts=task_counts,
        stateful=frozenset(
            one.subtopology_id for one in topology.subtopologies if one.changelog_topics
        ),
        missing=missing,
    )


def _check_sources(topology: Topology, existing: Mapping[str, int]) -> None:
    wanted = {name for one in topology.subtopologies for name in one.source_topics}
    missing = sorted(wanted - existing.keys())
    if missing:
        detail = f"Source topics {_summarize(missing)} are missing."
        raise _Misfit(StreamsStatus.MISSING_SOURCE_TOPICS, detail)


class _Counts:
    """The numbers of partitions, as they are decided one after the other."""

    def __init__(self, topology: Topology, existing: Mapping[str, int]) -> None:
        self._subtopologies = topology.subtopologies
        self._existing = existing
        repartitions = [topic for one in self._subtopologies for topic in one.repartition_sources]
        self._fixed = {one.name: one.partition_count for one in repartitions if one.partition_count}
        self._repartitions = frozenset(one.name for one in repartitions)
        self.decided: dict[str, int] = {}

    def _find(self, topic: str) -> int | None:
        return self._existing.get(topic, self.decided.get(topic))

    # Repartition topics

    def decide_repartition_topics(self) -> None:
        self.decided.update(self._fixed)
        self._decide_in_rounds()
        if not self._repartitions <= self.decided.keys():
            raise InvalidTopologyError(
                "the number of partitions cannot be told of all repartition topics: one is written "
                "by nobody, or they depend on each other in a loop"
            )

    def _decide_in_rounds(self) -> None:
        """As Kafka: all subtopologies in their order, again and again for as long as that decides
        something. Only those are looked at that can decide by now, each once: a long chain that is
        told from its end would take as many rounds as it is long."""
        readers: dict[str, list[int]] = {}
        for place, one in enumerate(self._subtopologies):
            for topic in one.repartition_sources:
                readers.setdefault(topic.name, []).append(place)
        ready = [
            place
            for place, one in enumerate(self._subtopologies)
            if self._largest_source(one) is not None
        ]
        found = set(ready)
        while ready:
            this_round, ready = ready, []
            heapq.heapify(this_round)
            while this_round:
                place = heapq.heappop(this_round)
                for name in self._decide_sinks(self._subtopologies[place]):
                    for reader in readers.get(name, ()):
                        if reader not in found:
                            found.add(reader)
                            if reader > place:
                                heapq.heappush(this_round, reader)
                            else:
                                ready.append(reader)

    def _decide_sinks(self, subtopology: Subtopology) -> list[str]:
        """The topics that it writes to and that were not decided before."""
        undecided = [name for name in subtopology.repartition_sinks if name not in self.decided]
        count = self._largest_source(subtopology) if undecided else None
        if count is None:
            return []
        self.decided.update(dict.fromkeys(undecided, count))
        return undecided

    def _largest_source(self, subtopology: Subtopology) -> int | None:
        repartitions = [self.decided.get(one.name) for one in subtopology.repartition_sources]
        sources = [self._find(name) for name in subtopology.source_topics]
        return max((one for one in (*repartitions, *sources) if one is not None), default=None)

    # Copartitioning

    def enforce_copartitioning(self) -> None:
        for one in self._subtopologies:
            for names in one.copartitioned():
                if names:
                    self._enforce(names)

    def _enforce(self, names: frozenset[str]) -> None:
        counts = {name: self._find(name) or 0 for name in sorted(names)}
        sources = {name: count for name, count in counts.items() if name not in self._repartitions}
        fixed = {name: self._fixed[name] for name in counts if name in self._fixed}
        count = _same(sources or fixed) if sources or fixed else max(counts.values())
        for name, own in fixed.items():
            if own != count:
                raise _Misfit(
                    StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{own}] of repartition topic [{name}] doesn't match "
                    f"number of partitions [{count}] of the source topic.",
                )
        self.decided.update(dict.fromkeys(counts.keys() & self._repartitions, count))

    # Tasks, and what they need

    def count_tasks(self) -> dict[str, int]:
        tasks = {}
        for one in self._subtopologies:
            count = max(self._find(name) or 0 for name in one.read_topics)
            tasks[one.subtopology_id] = count
            self.decided.update((topic.name, count) for topic in one.changelog_topics)
        if sum(tasks.values()) > MOST_TASKS:
            raise InvalidTopologyError(
                f"the topology has {sum(tasks.values())} tasks, and {MOST_TASKS} is the most"
            )
        return tasks

    def find_missing(self) -> tuple[CreatableTopic, ...]:
        wanted: dict[str, TopicInfo] = {}
        for one in self._subtopologies:
            wanted.update((topic.name, topic) for topic in one.internal_topics)
        for name in sorted(wanted.keys() & self._existing.keys()):
            if self._existing[name] != self.decided[name]:
                raise _Misfit(
                    StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has different number of partitions: expected "
                    f"{self.decided[name]}, found {self._existing[name]}",
                )
        return tuple(
            CreatableTopic(
                name, self.decided[name], wanted[name].replication_factor, wanted[name].configs
            )
            for name in sorted(wanted.keys() - self._existing.keys())
        )


def _same(counts: Mapping[str, int]) -> int:
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name}={count}" for name, count in counts.items())
        raise _Misfit(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{told}}}]",
        )
    return next(iter(counts.values()))


def _summarize(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} additional topics" if more > 0 else shown
