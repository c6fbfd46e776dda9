"""Into how many tasks a batch is cut. A rule.

By default each partition of a topic is one task. `maxRecordsPerPartition` cuts ranges that are
longer; `minPartitions` then cuts the longest until there are so many. A task costs Spark and its
worker some 20 ms, whatever it reads: with `minRecordsPerPartition` several short ranges are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heapreplace
from itertools import pairwise

from moldau.spark.rules.ranges import PartitionRange

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
            part for one in found for part in _cut(one, -(-one.size // max_records_per_partition))
        ]
    if min_partitions is not None and found and len(found) < min_partitions:
        counts = _share_out(found, min_partitions)
        found = [
            part for one, count in zip(found, counts, strict=True) for part in _cut(one, count)
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


def _cut(whole: PartitionRange, count: int) -> Iterator[PartitionRange]:
    """So many parts, as equal as whole numbers allow."""
    count = max(min(count, whole.size), 1)
    edges = [whole.start_offset + whole.size * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield whole._replace(start_offset=start, end_offset=end)


def _share_out(ranges: list[PartitionRange], wanted: int) -> list[int]:
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
