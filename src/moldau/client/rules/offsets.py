"""Offsets as ListOffsets names them, groups commit them, and people say them. Rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from moldau.errors import ConfigurationError
from moldau.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    TopicPartition,
)


class OffsetSpec(IntEnum):
    """Asks ListOffsets for a place instead of a time; a time is any number from 0 on."""

    LATEST = LATEST_TIMESTAMP
    EARLIEST = EARLIEST_TIMESTAMP
    MAX_TIMESTAMP = MAX_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """An answer of ListOffsets; `offset` is -1 when nothing is as late as the time asked for."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """How far a group has read one partition: the offset that it wants next."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """As whom a consumer commits, and for which group; without a generation, as nobody's member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


# Where reading goes on, and where that puts a group: a place that a consumer can begin at, or a
# distance from where the group is


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


# A bound is an offset, a negative number that counts back from the end, `earliest`, `latest`, or a
# time: the first record that is not older. What a partition does not have (any more, or yet) is not
# read: bounds are moved to where the log begins or ends.


Bound = int | str | datetime
"""One of the above."""

Bounds = Bound | Mapping[int, Bound] | None
"""One for all partitions, or one for each by number; None is the beginning, or the end."""

EARLIEST = "earliest"
LATEST = "latest"
NOT_FOUND = -1
"""What a broker answers where no record is as late as the time asked for."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class OffsetRange(NamedTuple):
    """The offsets from `start_offset` on and before `end_offset`."""

    start_offset: int
    end_offset: int

    @property
    def is_empty(self) -> bool:
        return self.start_offset >= self.end_offset


def bounds_by_partition(
    bounds: Bounds, partitions: Iterable[int], default: str, called: str
) -> dict[int, Bound]:
    """The bound of every partition, checked; `called` is what the caller calls it."""
    wanted = list(partitions)
    if not isinstance(bounds, Mapping):
        bound = default if bounds is None else bounds
        return dict.fromkeys(wanted, _require_bound(bound, called))
    strangers = [number for number in bounds if number not in wanted]
    if strangers:
        raise ConfigurationError(f"{called} names partition {strangers[0]}, which is not read")
    return {number: _require_bound(bounds.get(number, default), called) for number in wanted}


def _require_bound(bound: object, called: str) -> Bound:
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise ConfigurationError(
                f"{called} is {bound} in no time zone; say which, "
                f"for instance datetime(..., tzinfo=timezone.utc)"
            )
        return bound
    if isinstance(bound, int) and not isinstance(bound, bool):
        return bound
    if bound in (EARLIEST, LATEST):
        return str(bound)
    raise ConfigurationError(
        f"{called} is {bound!r}; it can be an offset, a negative number that counts back from the "
        f"end, {EARLIEST!r}, {LATEST!r}, a datetime, or a dictionary of these by partition"
    )


def milliseconds_of(time: datetime) -> int:
    """As Kafka counts; a fraction of a millisecond counts for the next one."""
    # Brokers take negative times for other questions, and no record is that old.
    return max(-int((_EPOCH - time) // _MILLISECOND), 0)


def resolve_bound(bound: Bound, log: OffsetRange, found_offset: int = NOT_FOUND) -> int:
    """The offset in the log that is meant; `found_offset` is what the broker found for a time."""
    earliest, latest = log
    match bound:
        case datetime():
            offset = latest if found_offset == NOT_FOUND else found_offset
        case str():
            offset = earliest if bound == EARLIEST else latest
        case _:
            offset = bound if bound >= 0 else latest + bound
    return min(max(offset, earliest), latest)
