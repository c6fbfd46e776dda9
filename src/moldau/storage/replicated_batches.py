"""Checks what a leader sent before a follower writes any of it: whole, sound and in order.

A rule: bytes in, headers or an error out.
"""

from __future__ import annotations

from moldau.errors import CorruptBatchError
from moldau.model import TopicPartition
from moldau.records.batch_header import CURRENT_MAGIC, BatchHeader, crc_matches, walk_headers


def check_replicated(
    records: memoryview,
    next_offset: int,
    topic_partition: TopicPartition,
    newest_epoch: int | None = None,
) -> list[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches; one that is cut short at the end is left out.

    Offsets grow from `next_offset` on. Gaps are what compaction leaves, overlaps are a fault.
    A batch of a later epoch than the leader's own was copied by it after it had stopped to lead,
    over what it was about to send: what lies before it may differ from ours.
    """
    batches = list(walk_headers(records))
    for position, header in batches:
        batch = records[position : position + header.size_bytes]
        if header.magic != CURRENT_MAGIC or not crc_matches(batch, header):
            raise CorruptBatchError(
                f"the leader of {topic_partition} sent a damaged batch "
                f"at offset {header.base_offset}"
            )
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatchError(
                f"the leader of {topic_partition} sent a batch at offset "
                f"{header.base_offset}, {next_offset} is next"
            )
        if newest_epoch is not None and header.leader_epoch > newest_epoch:
            raise CorruptBatchError(
                f"the leader of {topic_partition} in epoch {newest_epoch} sent a batch of epoch "
                f"{header.leader_epoch} at offset {header.base_offset}"
            )
        next_offset = header.next_offset
    return batches
