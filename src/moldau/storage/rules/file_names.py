"""What the files and folders of a log directory are called, and what their names mean.

Kafka's names, so that other tools find their way (its `LogFileUtils` and `LocalLog`). A rule:
names in, values out; nothing is opened here.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from moldau.model import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
"""Waits out `file.delete.delay.ms`, then goes."""
CLEANED_SUFFIX = ".cleaned"
"""Being written by compaction; worthless after a crash."""
SWAP_SUFFIX = ".swap"
"""Finished by compaction, about to take the place of what it was made from."""
UNSHARED_SUFFIX = ".unshared"
"""Not Kafka's: a copy of a file that has other names, about to take its place; worthless before."""

LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
LOG_START_OFFSETS_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSETS_FILE = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
SEGMENTS_AT_STOP_FILE = "segments-at-stop"
"""Not Kafka's: what the logs were like at the clean stop (`checkpoint_files`)."""
STORE_DIRECTORY_FILE = "store-directory"
"""Not Kafka's: which log directory of a broker alone has its store."""
LOCK_FILE = ".lock"
ABORTED_TRANSACTIONS_FILE = "aborted-transactions-checkpoint"
"""Not Kafka's: what the transaction indexes of the logs in this folder hold."""
DROPPED_OFFSETS_FILE = "dropped-tombstones-checkpoint"
"""Not Kafka's: behind the last tombstone or end marker that compaction has dropped, by log."""
LOSS_FILE = "possible-loss"
"""Not Kafka's: the logs in this folder may have holes that the cluster was not told of yet."""

LOG_START_OFFSET_FILE = "log-start-offset"
"""Not Kafka's, in the folder of a log: where it begins, if no segment begins there."""
COMPACTION_OFFSETS_FILE = "compaction-offsets"
"""Not Kafka's, in the folder of a log: what its compaction has compared and dropped."""
INCOMPLETE_FILE = "incomplete"
"""Not Kafka's, in the folder of a log: sealed segments of it were lost, and nobody knows yet."""

MAX_FOLDER_NAME_LENGTH = 255

_MAX_PARTITION = (1 << 31) - 1
_MAX_OFFSET = (1 << 63) - 1

_SEGMENT_FILE = re.compile(
    r"(?P<offset>[0-9]{20})(?P<suffix>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<stage>\.deleted|\.cleaned|\.swap|\.unshared)?\Z"
)
_MARKED_FOLDER = re.compile(r"(?P<partition>.+)\.[0-9a-f]{32}-(?P<kind>delete|stray|future)\Z")
_PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")


class SegmentFile(NamedTuple):
    """One of the files that make up a segment."""

    base_offset: int
    suffix: str
    stage: str
    """`.deleted`, `.cleaned`, `.swap` or `.unshared`; empty for a file in use."""


class FolderKind(Enum):
    """What the suffix of a partition's folder says about it."""

    CURRENT = ""
    DELETED = "delete"
    STRAY = "stray"
    FUTURE = "future"


class PartitionFolder(NamedTuple):
    """A folder that holds one replica. The topic of a deleted or stray one may be cut short."""

    partition: TopicPartition
    kind: FolderKind


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Twenty digits, so that names sort as offsets do."""
    return f"{base_offset:020d}{suffix}"


def find_segment_file(name: str) -> SegmentFile | None:
    match = _SEGMENT_FILE.match(name)
    if match is None or int(match["offset"]) > _MAX_OFFSET:
        return None
    return SegmentFile(int(match["offset"]), match["suffix"], match["stage"] or "")


def partition_folder_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def deleted_folder_name(partition: TopicPartition, unique_id: str) -> str:
    """`unique_id` is 32 hexadecimal digits: the name may be deleted again before this is gone."""
    return _capped_folder_name(partition, unique_id, FolderKind.DELETED)


def name_when_deleted(partition: TopicPartition) -> TopicPartition:
    """What the folder of a deleted log tells of whose it was: a long name has lost its end."""
    found = find_partition_folder(deleted_folder_name(partition, "0" * 32))
    return partition if found is None else found.partition


def stray_folder_name(partition: TopicPartition, unique_id: str) -> str:
    return _capped_folder_name(partition, unique_id, FolderKind.STRAY)


def future_folder_name(partition: TopicPartition, unique_id: str) -> str | None:
    """Where a log is copied to that moves between directories; None when its name is too long.

    It is not cut short, as the others are: a start has to know whose log it is.
    """
    name = f"{partition_folder_name(partition)}.{unique_id}-{FolderKind.FUTURE.value}"
    return name if len(name) <= MAX_FOLDER_NAME_LENGTH else None


def find_partition_folder(name: str) -> PartitionFolder | None:
    """What a folder holds; None when it is not one of ours."""
    kind = FolderKind.CURRENT
    marked = _MARKED_FOLDER.match(name)
    if marked is not None:
        name, kind = marked["partition"], FolderKind(marked["kind"])
    match = _PARTITION_FOLDER.match(name)
    if match is None or int(match["partition"]) > _MAX_PARTITION:
        return None
    return PartitionFolder(TopicPartition(match["topic"], int(match["partition"])), kind)


def _capped_folder_name(partition: TopicPartition, unique_id: str, kind: FolderKind) -> str:
    """A long topic name loses its end: file systems stop at 255 characters."""
    ending = f"-{partition.partition}.{unique_id}-{kind.value}"
    return partition.topic[: MAX_FOLDER_NAME_LENGTH - len(ending)] + ending
