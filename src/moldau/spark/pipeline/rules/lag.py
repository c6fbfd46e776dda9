"""How far the queries of a pipeline are behind the ends of the topics that they read. A rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moldau.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition of one query. `position` is None while nothing of it has been read."""

    topic: str
    partition: int
    position: int | None
    start_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        """Records that are still to be read, of those that are still there."""
        begin = self.start_offset if self.position is None else self.position
        return max(self.end_offset - max(begin, self.start_offset), 0)


def partition_lags(
    positions: Mapping[str, Mapping[int, int]],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> tuple[PartitionLag, ...]:
    """Every partition that there is, in order; `bounds` are where each begins and ends."""
    return tuple(
        PartitionLag(
            topic=partition.topic,
            partition=partition.partition,
            position=positions.get(partition.topic, {}).get(partition.partition),
            start_offset=start,
            end_offset=end,
        )
        for partition, (start, end) in sorted(bounds.items())
    )


def total_lag(partitions: Iterable[PartitionLag]) -> int:
    return sum(one.lag for one in partitions)
