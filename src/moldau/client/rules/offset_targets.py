"""Where somebody wants to read on in a log, and where that puts a group. Rules: values in and out.

A place is one that a consumer can begin at, or a distance from where the group is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition


@dataclass(frozen=True, slots=True)
class AtOffset:
    """This offset in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """The last `count` offsets of each partition; 0 is the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtBeginning:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time; the end where there is none."""

    timestamp_ms: int


Start = AtOffset | BeforeEnd | AtBeginning | AtTime


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many offsets forward from where the group is, or backward when negative."""

    count: int


Target = Start | ShiftBy


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """A topic, whole or with some of its partitions only."""

    topic: str
    partitions: tuple[int, ...] = ()


Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """One partition: where the group is, where it was to go, and where it will be.

    `after` differs from `wanted` where the log does not reach that far.
    """

    partition: TopicPartition
    before: int | None
    wanted: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a plan is made from. `at_time` is empty unless the target is a time."""

    committed: Offsets
    earliest: Offsets
    latest: Offsets
    at_time: Offsets


def plan_reset(
    target: Target, partitions: Sequence[TopicPartition], ground: Ground
) -> Sequence[PlannedReset]:
    """Where each partition goes; never outside its log, as in Kafka's own tool."""
    planned: list[PlannedReset] = []
    for one in partitions:
        wanted = _find_wanted(target, one, ground)
        planned.append(
            PlannedReset(
                partition=one,
                before=ground.committed.get(one),
                wanted=wanted,
                after=min(max(wanted, ground.earliest[one]), ground.latest[one]),
            )
        )
    return planned


def _find_wanted(target: Target, partition: TopicPartition, ground: Ground) -> int:
    match target:
        case AtBeginning():
            return ground.earliest[partition]
        case BeforeEnd(count):
            return ground.latest[partition] - count
        case AtOffset(offset):
            return offset
        case AtTime():
            found = ground.at_time[partition]
            return ground.latest[partition] if found < 0 else found  # nothing is as late as that
        case ShiftBy(count):
            if partition not in ground.committed:
                raise ConfigurationError(
                    f"the group has no offset in {partition} that could be shifted; "
                    "say where to go with another option"
                )
            return ground.committed[partition] + count
