"""Whether an offset of a group that a client was told of is there to stay. A rule over logs.

A commit that was acknowledged, and an offset that was shown, is in the log of everybody in sync
with the group's partition of the offsets topic (GRP-8), at that moment and ever after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from moldau.coordinators.runtime.internal_topic import partition_for
from moldau.errors import MoldauError
from moldau.groups.offsets_log import decode
from moldau.groups.rules.records import OffsetRecord
from moldau.model import GROUP_OFFSETS_TOPIC, TopicPartition
from moldau.records.record_batch import records_of
from moldau.testing.cluster_history import ClusterHistory, StoredBatch
from moldau.testing.cluster_observer import ClusterObserver


class CommittedOffsets:
    """Looks up what clients were told. `read_log` reads from the disk of a broker."""

    def __init__(
        self,
        history: ClusterHistory,
        observer: ClusterObserver,
        read_log: Callable[[int, TopicPartition], Sequence[StoredBatch]],
    ) -> None:
        self._history = history
        self._observer = observer
        self._read_log = read_log

    def require(self, group: str, partition: TopicPartition, offset: int, told: str) -> None:
        """A client was `told` of this offset, or that it is committed."""
        count = sum(1 for each in self._observer.states if each.topic == GROUP_OFFSETS_TOPIC)
        if offset < 0 or not count:
            return
        place = TopicPartition(GROUP_OFFSETS_TOPIC, partition_for(group, count))
        state = self._observer.states.get(place)
        well = [] if state is None else self._observer.those_who_kept(state.in_sync)
        if not well:
            return
        end_offset = find_commit(self._read_log(well[0], place), group, partition, offset)
        if end_offset is None:
            self._history.report(
                "GRP-8",
                f"offset {offset} of {group} in {partition} was {told}, and is not in the log "
                f"of broker {well[0]}, which is in sync in {place}",
            )
        else:
            self._history.promise(place, end_offset)  # so all who are in sync have to have it


def find_commit(
    batches: Sequence[StoredBatch], group: str, partition: TopicPartition, offset: int
) -> int | None:
    """The end of the first batch with a commit of this offset, or of a later one: they grow."""
    end_offset: int | None = None
    name = group.encode()
    for batch in reversed(batches):
        if name not in batch.content:  # offsets are not compressed here: quick, and mostly enough
            continue
        committed = _committed_in(batch, group, partition)
        if committed is None:
            continue
        if committed < offset:
            break
        end_offset = batch.end_offset
    return end_offset


@lru_cache(maxsize=4096)
def _committed_in(batch: StoredBatch, group: str, partition: TopicPartition) -> int | None:
    for record in records_of(batch.content):
        try:
            found = decode(record.key, record.value)
        except MoldauError:
            continue
        if (
            isinstance(found, OffsetRecord)
            and (found.group_id, found.topic, found.partition) == (group, *partition)
            and found.committed is not None
        ):
            return found.committed.offset
    return None
