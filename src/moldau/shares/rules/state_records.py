"""What `__share_group_state` says about share partitions: the values in its records.

A snapshot is all that is known of a share partition; an update is what has changed since the one
before. How they look in bytes is `shares.share_state_log`'s business. A rule: values only.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from moldau.model import format_uuid
from moldau.shares.rules.delivery_state import (
    NO_COUNT,
    NO_START_OFFSET,
    SharePartitionKey,
    StateBatch,
)

NO_OFFSET: Final = -1
"""Of a record that is not in the log yet."""


def coordinator_key(key: SharePartitionKey) -> str:
    """What decides which partition of `__share_group_state` it belongs to; Kafka's text."""
    return f"{key.group_id}:{format_uuid(key.topic_id)}:{key.partition}"


class ShareState(NamedTuple):
    """All that is known of a share partition.

    Invariant (SHS-1): the batches are in order, do not overlap and begin at or after the start
    offset.
    """

    snapshot_epoch: int = 0  # grows with every snapshot
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COUNT
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    batches: tuple[StateBatch, ...] = ()


class ShareUpdate(NamedTuple):
    """What has changed since the snapshot and the updates before it."""

    snapshot_epoch: int
    leader_epoch: int  # -1: as before
    start_offset: int  # NO_START_OFFSET: as before
    delivery_complete_count: int  # NO_COUNT: as before
    batches: tuple[StateBatch, ...]


class SnapshotRecord(NamedTuple):
    """All of a share partition, or its end (None)."""

    key: SharePartitionKey
    value: ShareState | None
    offset: int = NO_OFFSET


class UpdateRecord(NamedTuple):
    """A change. None is a tombstone that Kafka's tools may have left."""

    key: SharePartitionKey
    value: ShareUpdate | None
    offset: int = NO_OFFSET


ShareStateRecord: TypeAlias = SnapshotRecord | UpdateRecord
