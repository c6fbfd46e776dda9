"""What a query or one of its batches reads: a range of offsets of each partition. A rule.

A range runs to `end_offset`, exclusive. Offsets in it need not all have a record: compaction and
the markers of transactions leave gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from moldau.model import TopicPartition
from moldau.spark.rules.offset_maps import Offsets


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


def clip(wanted: PartitionRange, *, start_offset: int, end_offset: int) -> PartitionRange:
    """The part of a range that lies within these offsets; empty when there is none."""
    start = max(wanted.start_offset, start_offset)
    end = max(start, min(wanted.end_offset, end_offset))
    return wanted._replace(start_offset=start, end_offset=end)


def count_backlog(starts: Offsets, ends: Offsets) -> Mapping[TopicPartition, int]:
    """How many offsets of each partition are still to be read; nothing counts as negative."""
    return {one: max(end - starts.get(one, 0), 0) for one, end in ends.items()}
