"""What a fetch asks of one partition and what it finds there. Values."""

from __future__ import annotations

from typing import NamedTuple

from moldau.model import BrokerId, Offset
from moldau.storage.files import FileSlice


class PartitionRead(NamedTuple):
    """What a fetch found in one partition."""

    records: FileSlice | None
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted_transactions: tuple[tuple[int, int], ...] | None  # (producer id, first offset)
    diverging_epoch: tuple[int, int] | None  # (epoch, end offset), KIP-595
    end_offset: int = -1  # of the records, where there are any


class FollowedRead(NamedTuple):
    """A follower's fetch of one partition."""

    replica: BrokerId
    broker_epoch: int
    current_leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
