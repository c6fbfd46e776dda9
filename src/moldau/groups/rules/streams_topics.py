"""Whether the topics of a topology are there as they must be, how many partitions the internal ones
get, and how many tasks follow from that (KIP-1071). A rule.

A repartition topic gets as many partitions as the largest topic that is read by those who write to
it, unless the application says how many, or it has to have as many as others that are joined with
it. A changelog topic gets as many as its subtopology has tasks. The model is Kafka's
`InternalTopicManager`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from moldau.groups.rules.streams_topology import Subtopology, TopicInfo, Topology

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
