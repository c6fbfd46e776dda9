"""Which offsets a page of the message browser reads, and where the next one goes on. Rules.

Browsing goes forward from positions, or backward from ends; a page is what several partitions have
there, merged by time and cut. A partition of which something was cut off goes on where it was cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.read_bounds import OffsetRange
from moldau.model import TopicPartition

MAX_PARTITIONS = 100
"""Read for one page. Of a topic with more, people choose one."""

_RECORDS_AT_ONCE = 1000

Ranges = Mapping[TopicPartition, OffsetRange]
Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a page begins: forward from positions, or backward from them (they are exclusive)."""

    is_backward: bool
    positions: Positions


def choose_partitions(bounds: Ranges) -> tuple[TopicPartition, ...]:
    """Those that have something; the first so many."""
    return tuple(one for one, log in bounds.items() if not log.is_empty)[:MAX_PARTITIONS]


def newest(bounds: Ranges) -> Cursor:
    return Cursor(is_backward=True, positions={one: log[1] for one, log in bounds.items()})


def forward_from(positions: Positions, bounds: Ranges) -> Cursor:
    """From these offsets on, each moved into its log."""
    return Cursor(
        is_backward=False,
        positions={
            one: min(max(positions.get(one, log[0]), log[0]), log[1]) for one, log in bounds.items()
        },
    )


def plan_page(cursor: Cursor, bounds: Ranges, count: int) -> Ranges:
    """What to fetch of each partition; those that have nothing more there are left out."""
    if not cursor.positions:
        return {}
    share = max(1, min(count, _RECORDS_AT_ONCE // len(cursor.positions)))
    planned: dict[TopicPartition, OffsetRange] = {}
    for partition, position in cursor.positions.items():
        start, end = bounds[partition]
        wanted = (
            OffsetRange(max(start, position - share), min(position, end))
            if cursor.is_backward
            else OffsetRange(max(start, position), min(end, position + share))
        )
        if not wanted.is_empty:
            planned[partition] = wanted
    return planned


def merge(found: Sequence[ConsumerRecord], cursor: Cursor, count: int) -> list[ConsumerRecord]:
    """By time; within a partition by offset, whatever its timestamps say."""
    by_partition: dict[int, list[ConsumerRecord]] = {}
    for record in sorted(found, key=lambda one: one.offset, reverse=cursor.is_backward):
        by_partition.setdefault(record.partition, []).append(record)
    merged: list[ConsumerRecord] = []
    heads = dict.fromkeys(by_partition, 0)  # of each, the index of what comes next
    choose = max if cursor.is_backward else min
    while heads and len(merged) < count:
        best = choose(heads, key=lambda one: (by_partition[one][heads[one]].timestamp_ms, -one))
        merged.append(by_partition[best][heads[best]])
        heads[best] += 1
        if heads[best] == len(by_partition[best]):
            del heads[best]
    return merged


def next_cursor(
    cursor: Cursor,
    planned: Ranges,
    found: Sequence[ConsumerRecord],
    shown: Sequence[ConsumerRecord],
) -> Cursor:
    """Behind what was shown; where nothing was found, behind what was read."""
    positions = dict(cursor.positions)
    found_in = {record.partition for record in found}
    for partition, wanted in planned.items():
        if partition.partition not in found_in:
            positions[partition] = wanted[0] if cursor.is_backward else wanted[1]
        offsets = [one.offset for one in shown if one.partition == partition.partition]
        if offsets:
            positions[partition] = min(offsets) if cursor.is_backward else max(offsets) + 1
    return Cursor(is_backward=cursor.is_backward, positions=positions)


def has_more(cursor: Cursor, bounds: Ranges) -> bool:
    return any(
        position > bounds[one][0] if cursor.is_backward else position < bounds[one][1]
        for one, position in cursor.positions.items()
    )


def count_offsets(ranges: Ranges) -> int:
    return sum(max(0, end - start) for start, end in ranges.values())


SEARCH_WINDOW = 20_000
"""Offsets that a search for the newest reads at a time: forward, as logs are read, from window to
window backward."""


def plan_search(left: Ranges, *, newest_first: bool) -> tuple[TopicPartition, OffsetRange] | None:
    """What a search reads next. Forward: partition after partition. For the newest: the partition
    of which most is left, so that all come back from their ends about together."""
    open_ones = {one: log for one, log in left.items() if not log.is_empty}
    if not open_ones:
        return None
    if not newest_first:
        return next(iter(open_ones.items()))
    partition = max(open_ones, key=lambda one: (count_offsets({one: open_ones[one]}), one))
    start, end = open_ones[partition]
    return partition, OffsetRange(max(start, end - SEARCH_WINDOW), end)


def rest_of(cursor: Cursor, bounds: Ranges) -> Ranges:
    """From a cursor that goes forward to the ends: what a search reads."""
    return {one: OffsetRange(at, bounds[one].end_offset) for one, at in cursor.positions.items()}
