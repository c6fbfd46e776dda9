"""Ranges of offsets: what a batch reads, how much of it, in which tasks, and what it has lost.

A range runs to `end_offset`, exclusive. Offsets in it need not all have a record: compaction and
the markers of transactions leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from moldau.model import TopicPartition
from moldau.spark.rules.offsets import Offsets


class PartitionRange(NamedTuple):
    """The offsets of one partition from `start_offset` on and before `end_offset`."""

    partition: TopicPartition
    start_offset: int
    end_offset: int
    topic_id: UUID | None = None
    """The topic that the offsets are of; None reads whichever has the name."""

    @property
    def size(self) -> int:
        """How many offsets it has, which is how many records at most."""
        return max(self.end_offset - self.start_offset, 0)

    @property
    def is_empty(self) -> bool:
        return self.start_offset >= self.end_offset

    def __str__(self) -> str:
        return f"{self.partition} [{self.start_offset}, {self.end_offset})"


class BatchRanges(NamedTuple):
    """What one batch of a streaming query reads, and what is odd about it."""

    ranges: tuple[PartitionRange, ...]
    added: frozenset[TopicPartition]
    """Partitions that the batch before did not have; they are read from their beginning."""
    gone: frozenset[TopicPartition]
    """Partitions that the batch before had, and this one has not."""
    rewound: frozenset[TopicPartition]
    """Partitions that end before where they were read to: another log bears their name now."""


def ranges_between(starts: Offsets, ends: Offsets) -> tuple[PartitionRange, ...]:
    """The ranges that are not empty, of partitions that have a start and an end."""
    both = sorted(starts.keys() & ends.keys())
    found = (PartitionRange(one, starts[one], ends[one]) for one in both)
    return tuple(one for one in found if not one.is_empty)


def plan_batch(starts: Offsets, ends: Offsets, earliest: Offsets) -> BatchRanges:
    """What to read between two offsets of a query.

    The same offsets give the same ranges whenever they are asked for, as far as the logs still
    begin where they began: Spark asks again when a batch is repeated.
    """
    added = frozenset(ends.keys() - starts.keys())
    gone = frozenset(starts.keys() - ends.keys())
    rewound = frozenset(one for one in ends.keys() & starts.keys() if ends[one] < starts[one])
    begins = {
        one: earliest.get(one, 0) if one in added or one in rewound else starts[one] for one in ends
    }
    return BatchRanges(ranges_between(begins, ends), added, gone, rewound)


def clip_range(wanted: PartitionRange, *, start_offset: int, end_offset: int) -> PartitionRange:
    """The part of a range that lies within these offsets; empty when there is none."""
    start = max(wanted.start_offset, start_offset)
    end = max(start, min(wanted.end_offset, end_offset))
    return wanted._replace(start_offset=start, end_offset=end)


def count_backlog(starts: Offsets, ends: Offsets) -> Mapping[TopicPartition, int]:
    """How many offsets of each partition are still to be read; nothing counts as negative."""
    return {one: max(end - starts.get(one, 0), 0) for one, end in ends.items()}


# How much of what is there one batch of a streaming query takes. Offsets are counted, not records:
# gaps count, too, since their number is not known before they are read.


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """The options of this name; None where they are not set."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60 * 1000
    max_bytes: int | None = None


def may_wait_for_more(
    starts: Offsets, ends: Offsets, limits: TriggerLimits, waited_ms: float | None
) -> bool:
    """Whether there is too little for a batch, and time to wait for more.

    `waited_ms` is None before the first batch of a run: that one does not wait.
    """
    if limits.min_offsets is None or waited_ms is None or waited_ms >= limits.max_delay_ms:
        return False
    return sum(count_backlog(starts, ends).values()) < limits.min_offsets


def limit_ends(
    starts: Offsets,
    ends: Offsets,
    limits: TriggerLimits,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Where a batch ends: at the ends given, or earlier by the limits.

    Every partition of `ends` is in the answer. One that is new and gets nothing this time is left
    at its beginning, which is where `starts` has it.
    """
    backlog = count_backlog(starts, ends)
    if limits.max_offsets is not None:
        backlog = share_out(backlog, limits.max_offsets)
    if limits.max_bytes is not None:
        backlog = limit_bytes(backlog, limits.max_bytes, bytes_per_offset)
    return {
        one: starts.get(one, 0) + backlog[one] if end > starts.get(one, 0) else end
        for one, end in ends.items()
    }


def share_out(backlog: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Share a number of offsets over partitions by their backlog.

    The shares add up to the limit, or to the whole backlog where that is less. Each partition with
    a backlog gets one at least, as far as the limit reaches, so that none waits for ever.
    """
    waiting = {one: size for one, size in backlog.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return dict(backlog)
    by_size = sorted(waiting, key=lambda one: (-waiting[one], one))
    shares = dict.fromkeys(backlog, 0)
    shares.update(dict.fromkeys(by_size[:limit], 1))
    left = limit - min(limit, len(by_size))
    rest = total - len(by_size)
    remainders: list[tuple[int, TopicPartition]] = []
    given = 0
    for one in by_size if left else ():
        share, remainder = divmod((waiting[one] - 1) * left, rest)
        shares[one] += share
        given += share
        remainders.append((remainder, one))
    for _, one in sorted(remainders, key=lambda row: (-row[0], row[1]))[: left - given]:
        shares[one] += 1
    return shares


def limit_bytes(
    backlog: Mapping[TopicPartition, int],
    max_bytes: int,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Shrink the shares until they have about so many bytes, by the mean size of an offset.

    Never to nothing: a record that is larger than the limit has to be read some day.
    """
    estimate = sum(size * bytes_per_offset.get(one, 0.0) for one, size in backlog.items())
    if estimate <= max_bytes:
        return dict(backlog)
    total = sum(backlog.values())
    return share_out(backlog, max(int(total * max_bytes / estimate), 1))


# Into how many tasks a batch is cut. By default each partition of a topic is one task.
# `maxRecordsPerPartition` cuts ranges that are longer; `minPartitions` then cuts the longest until
# there are so many. A task costs Spark and its worker some 20 ms, whatever it reads: with
# `minRecordsPerPartition` several short ranges are one.


Task = tuple[PartitionRange, ...]
"""What one task reads, range by range."""


def plan_tasks(
    ranges: Iterable[PartitionRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[PartitionRange]:
    """Ranges that together are the ones given, in order; none is read by more than one task."""
    found = [one for one in ranges if not one.is_empty]
    if max_records_per_partition is not None:
        found = [
            part
            for one in found
            for part in _cut_range(one, -(-one.size // max_records_per_partition))
        ]
    if min_partitions is not None and found and len(found) < min_partitions:
        counts = _count_parts(found, min_partitions)
        found = [
            part
            for one, count in zip(found, counts, strict=True)
            for part in _cut_range(one, count)
        ]
    return sorted(found)


def pack_tasks(
    ranges: Sequence[PartitionRange],
    *,
    min_records_per_partition: int | None = None,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[Task]:
    """The same ranges in the same order, neighbours together until a task has so many offsets; as
    far as the other two limits, which they keep to, allow it."""
    least = min_records_per_partition or 0
    most = max_records_per_partition or sum(one.size for one in ranges)
    spare = len(ranges) - (min_partitions or 1)  # tasks that there need not be
    packed: list[list[PartitionRange]] = []
    size = 0  # of the last task
    for one in ranges:
        if packed and spare > 0 and size < least and size + one.size <= most:
            packed[-1].append(one)
            size += one.size
            spare -= 1
        else:
            packed.append([one])
            size = one.size
    return [tuple(some) for some in packed]


def _cut_range(whole: PartitionRange, count: int) -> Iterator[PartitionRange]:
    """So many parts, as equal as whole numbers allow."""
    count = max(min(count, whole.size), 1)
    edges = [whole.start_offset + whole.size * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield whole._replace(start_offset=start, end_offset=end)


def _count_parts(ranges: list[PartitionRange], wanted: int) -> list[int]:
    """Into how many parts each range is cut, so that the longest part is as short as can be."""
    counts = [1] * len(ranges)
    longest = [(-float(one.size), index) for index, one in enumerate(ranges)]
    heapify(longest)
    for _ in range(min(wanted, sum(one.size for one in ranges)) - len(ranges)):
        index = longest[0][1]
        size = ranges[index].size
        if counts[index] >= size:
            break  # the longest part is a single offset, and so are all others
        counts[index] += 1
        heapreplace(longest, (-size / counts[index], index))
    return counts


# Whether records are gone that a query was to read. Offsets without a record are no loss:
# compaction removes records that a later one replaces, and transactions leave markers. Records that
# were deleted before they were read are lost. Only the beginning of the log tells the two apart.

DATA_LOSS_ADVICE = (
    "Some records may never be seen by this query. If that is acceptable, set the option "
    "failOnDataLoss to false, and reading goes on with what is there"
)


def find_deleted(ranges: Iterable[PartitionRange], earliest: Offsets) -> list[str]:
    """A message about each range of which the beginning is gone."""
    return [
        f"{one.partition} is to be read from offset {one.start_offset}, but its log begins at "
        f"{earliest[one.partition]} by now"
        for one in ranges
        if earliest.get(one.partition, 0) > one.start_offset
    ]


def find_beyond(ranges: Iterable[PartitionRange], latest: Offsets) -> list[str]:
    """A message about each range that goes beyond the end of its log."""
    return [
        f"{one.partition} is to be read up to offset {one.end_offset}, but its log ends at "
        f"{latest[one.partition]}"
        for one in ranges
        if one.partition in latest and latest[one.partition] < one.end_offset
    ]


def find_starts_beyond(starts: Offsets, latest: Offsets) -> list[str]:
    """A message about each partition that is to be read from behind the end of its log."""
    return [
        f"{partition} is to be read from offset {start}, but its log ends at {latest[partition]}"
        for partition, start in starts.items()
        if partition in latest and latest[partition] < start
    ]


def describe_recreated(topics: Iterable[str]) -> list[str]:
    """A message about each topic that is another one than the query has read so far."""
    return [
        f"the topic {topic} was deleted and recreated: records of the old topic that the query had "
        "not read are lost, and the new topic is to be read from its beginning"
        for topic in sorted(topics)
    ]


def find_losses(batch: BatchRanges, earliest: Offsets) -> list[str]:
    """A message about everything that a batch of a streaming query misses."""
    messages = [f"{one} is not there any more" for one in sorted(batch.gone)]
    messages += [
        f"{one} ends before the offset that it was read to: it was deleted and made again, or cut"
        for one in sorted(batch.rewound)
    ]
    messages += [
        f"{one} is new, but its log begins at {earliest[one]} already"
        for one in sorted(batch.added)
        if earliest.get(one, 0) > 0
    ]
    known = (one for one in batch.ranges if one.partition not in batch.added | batch.rewound)
    return messages + find_deleted(known, earliest)


def keep_existing(
    ranges: Iterable[PartitionRange], earliest: Offsets, latest: Offsets
) -> list[PartitionRange]:
    """The ranges without what their logs do not have, as a query that does not fail reads them."""
    clipped = (
        clip_range(
            one,
            start_offset=earliest.get(one.partition, 0),
            end_offset=latest.get(one.partition, one.end_offset),
        )
        for one in ranges
    )
    return [one for one in clipped if not one.is_empty]
