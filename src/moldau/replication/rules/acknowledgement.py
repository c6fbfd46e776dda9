"""When a batch that was appended with acks=all may be acknowledged (REP-3). A rule."""

from __future__ import annotations

from enum import Enum, auto


class Acknowledgement(Enum):
    """What can be said to the producer."""

    PENDING = auto()
    """Not every in-sync replica has it yet."""
    COMMITTED = auto()
    TOO_FEW = auto()
    """It is committed, by fewer replicas than `min.insync.replicas` asks for."""
    LEADER_CHANGED = auto()
    """Somebody else led meanwhile, or does now, and says whether the batch stays."""


def decide_acknowledgement(
    *,
    leads_epoch: bool,
    high_watermark: int,
    end_offset: int,
    smallest_isr_size: int,
    min_in_sync: int,
) -> Acknowledgement:
    """`leads_epoch`: this broker leads since the epoch in which it appended, without a break."""
    if not leads_epoch:
        return Acknowledgement.LEADER_CHANGED
    if high_watermark < end_offset:
        return Acknowledgement.PENDING
    if smallest_isr_size < min_in_sync:
        return Acknowledgement.TOO_FEW
    return Acknowledgement.COMMITTED
