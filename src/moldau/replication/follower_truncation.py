"""Brings a follower's log to where it and the leader's agree, so that a power loss undoes nothing.

The log is cut off where the histories part, thrown away where the leader's begins later, or begun
anew in front of a batch. Each time `truncating` of the partition is held until the checkpoints know
of it: nobody leads with a log before, and nothing is appended to it.

A shell, owned by the task of a `ReplicaFetcher`. `rules.truncation` says how far to go back,
`follower` changes the log.
"""

from __future__ import annotations

from typing import Protocol

from moldau.model import Offset
from moldau.records.batch_header import walk_headers
from moldau.replication.follower import FollowPosition
from moldau.replication.leader_link import LogBounds
from moldau.replication.partition import Partition
from moldau.replication.rules.truncation import find_cut, find_earlier_start
from moldau.storage.log import Log


class Truncations(Protocol):
    """Keeps a power loss from undoing half of a truncation; `storage.checkpoints` does."""

    async def prepare_truncation(self, log: Log, offset: int) -> None:
        """Return when no checkpoint vouches for what lies behind an offset."""
        ...

    async def complete_truncation(self, log: Log) -> None:
        """Return when a truncation is on disk; nothing is appended before."""
        ...


class FollowerTruncation:
    """See the module. What is told of a position is done only while the log is there."""

    def __init__(self, truncations: Truncations) -> None:
        self._truncations = truncations

    async def cut_off(self, partition: Partition, offset: int) -> None:
        """Take away what is at an offset and behind it."""
        async with partition.truncating:
            await self._truncate(partition, offset)

    async def go_back(
        self, partition: Partition, position: FollowPosition, diverging_epoch: tuple[int, int]
    ) -> None:
        """The leader's history is another one from the end of an epoch on."""
        async with partition.truncating:
            if partition.follower.is_at(position):
                await self._truncate(
                    partition, partition.follower.find_divergence(*diverging_epoch)
                )

    async def come_into_range(
        self, partition: Partition, position: FollowPosition, bounds: LogBounds
    ) -> bool:
        """Our log ends before the leader's begins, or behind its end (an unclean election).

        False when it does neither any more.
        """
        async with partition.truncating:
            if not partition.follower.is_at(position):
                return True
            if position.offset < bounds.log_start_offset:
                partition.follower.start_anew(bounds.log_start_offset)
                await self._truncations.complete_truncation(partition.log)
            elif position.offset > bounds.log_end_offset:
                await self._truncate(partition, bounds.log_end_offset)
            else:
                return False
        return True

    async def make_room(
        self, partition: Partition, position: FollowPosition, records: memoryview
    ) -> FollowPosition:
        """Let a batch fit in whose middle the leader's log begins, and an empty one here."""
        _, first = next(walk_headers(records), (0, None))
        if first is None:
            return position
        start = find_earlier_start(
            position.log_start_offset, position.offset, first.base_offset, first.next_offset - 1
        )
        if start is None:
            return position
        async with partition.truncating:
            if not partition.follower.is_at(position):
                return position
            partition.follower.start_anew(start)
            await self._truncations.complete_truncation(partition.log)
        return position._replace(offset=start, log_start_offset=start)

    async def finish(self, partition: Partition) -> None:
        """Who truncated the log was interrupted."""
        async with partition.truncating:
            await self._truncations.complete_truncation(partition.log)

    async def _truncate(self, partition: Partition, offset: int) -> None:
        """Hold `truncating`: the log may get another owner while the disk works."""
        position, log = partition.follower.position(), partition.log
        try:
            prepared = None
            while prepared is None or _cut_of(log, offset) < prepared:
                # Compaction may get further while the disk works, and then all of it goes, too.
                prepared = _cut_of(log, offset)
                await self._truncations.prepare_truncation(log, prepared)
            if partition.follower.is_at(position):
                partition.follower.truncate(offset)
        finally:
            partition.log.flushing.withdraw_truncation()
        await self._truncations.complete_truncation(partition.log)


def _cut_of(log: Log, offset: int) -> Offset:
    return find_cut(offset, log.log_start_offset, log.cleaned_offset, log.compared_offset)
