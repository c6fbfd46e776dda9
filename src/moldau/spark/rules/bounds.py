"""Where reading begins and ends, as the options say it, and the offsets that are meant. A rule.

The shell asks the cluster for the numbers that a bound needs; what comes of them is decided here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.spark.rules.offset_maps import EARLIEST_OFFSET, LATEST_OFFSET, Offsets


class NamedBound(Enum):
    """A bound that is the same for every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """An offset for each partition; -2 is the earliest, -1 the latest."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimes:
    """The first record that is not older: one time for each partition, or one for all."""

    times_ms: Offsets | int
    if_none_latest: bool = True
    """Whether the end is meant where every record is older; otherwise that is an error."""


Bound = NamedBound | AtOffsets | AtTimes


def times_for(
    bound: AtTimes, partitions: Collection[TopicPartition], called: str
) -> dict[TopicPartition, int]:
    """The time of each partition."""
    if isinstance(bound.times_ms, int):
        return dict.fromkeys(partitions, bound.times_ms)
    require_every_partition(bound.times_ms, partitions, called)
    return {partition: bound.times_ms[partition] for partition in partitions}


def require_every_partition(
    given: Collection[TopicPartition], partitions: Collection[TopicPartition], called: str
) -> None:
    """An option that speaks of single partitions has to speak of each, and of no other."""
    missing = sorted(set(partitions) - set(given))
    strange = sorted(set(given) - set(partitions))
    if missing:
        raise ConfigurationError(
            f"{called} names no offset for {_names(missing)}; it must name one for every partition"
        )
    if strange:
        raise ConfigurationError(f"{called} names {_names(strange)}, which is not read")


def place_offsets(
    bound: AtOffsets, earliest: Offsets, latest: Offsets
) -> dict[TopicPartition, int]:
    """The offsets meant, with -2 and -1 resolved."""
    meant = {EARLIEST_OFFSET: earliest, LATEST_OFFSET: latest}
    return {
        partition: meant[offset][partition] if offset in meant else offset
        for partition, offset in bound.offsets.items()
    }


def place_group(committed: Offsets, earliest: Offsets) -> dict[TopicPartition, int]:
    """Where a group goes on; from the beginning where it has committed nothing."""
    return {partition: committed.get(partition, first) for partition, first in earliest.items()}


def place_times(
    found: Offsets, latest: Offsets, bound: AtTimes, called: str
) -> dict[TopicPartition, int]:
    """What the brokers found for times; `found` has no partition in which all is older."""
    older = sorted(set(latest) - set(found))
    if older and not bound.if_none_latest:
        raise ConfigurationError(
            f"{called}: {_names(older)} has no record at or after the time asked for; with "
            f"startingOffsetsByTimestampStrategy=latest reading begins at the end there"
        )
    return {partition: found.get(partition, end) for partition, end in latest.items()}


def _names(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:5]))
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"
