"""The tasks of a streams group, as members are given them (KIP-1071). A rule: values only.

A task is a partition of a subtopology. One member runs it (active); others may keep a copy of its
state (standby), or build one up to take it over (warm-up).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from moldau.groups.rules.assigned_partitions import common, is_within, overlap, together, without

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
