"""Which logs a directory had and has no more: somebody has removed their folders. A rule.

Checkpoints speak of every log in a directory, and of one that is deleted or moved they are told
soon after. So where one says that a log had records, and there is no folder of it, nor one that is
about to be deleted, its records are gone though nobody asked for it (LOG-14). An empty log that is
gone has lost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from moldau.model import TopicPartition
from moldau.storage.rules.file_names import name_when_deleted


def find_missed(
    recovery_points: Mapping[TopicPartition, int],
    high_watermarks: Mapping[TopicPartition, int],
    present: Collection[TopicPartition],
    deleted: Collection[TopicPartition],
) -> frozenset[TopicPartition]:
    """Those that had records by these checkpoints, without those that are there or were about to be
    deleted, as the names of folders tell."""
    had_records = {
        key
        for offsets in (recovery_points, high_watermarks)
        for key, offset in offsets.items()
        if offset > 0
    }
    return frozenset(
        key for key in had_records.difference(present) if name_when_deleted(key) not in deleted
    )
