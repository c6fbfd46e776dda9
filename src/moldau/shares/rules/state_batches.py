"""How the stored state of a share partition is put together from what was written. A rule.

Where two batches speak of the same offset, the one that is further counts: the larger number of
deliveries, and among those the later state. As with Kafka's coordinator, so a write that comes
again, or comes late, takes nothing back.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from moldau.shares.port import NO_START_OFFSET
from moldau.shares.rules.delivery_state import StateBatch


def combine(
    stored: Iterable[StateBatch], written: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Both together, from the start offset on: in order, without overlaps, and neighbours that are
    alike as one (SHS-1)."""
    pieces = sorted(_clip((*stored, *written), start_offset))
    ends = sorted({one.first_offset for one in pieces} | {one.last_offset + 1 for one in pieces})
    combined: list[StateBatch] = []
    open_batches: list[StateBatch] = []
    following = 0
    for first_offset, end_offset in pairwise(ends):
        while following < len(pieces) and pieces[following].first_offset <= first_offset:
            open_batches.append(pieces[following])
            following += 1
        open_batches = [one for one in open_batches if one.last_offset >= first_offset]
        if open_batches:
            furthest = max(open_batches, key=_progress)
            _append(
                combined,
                furthest._replace(first_offset=first_offset, last_offset=end_offset - 1),
            )
    return tuple(combined)


def _clip(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    if start_offset == NO_START_OFFSET:
        return batches
    return (
        one._replace(first_offset=max(one.first_offset, start_offset))
        for one in batches
        if one.last_offset >= start_offset
    )


def _progress(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    if combined:
        last = combined[-1]
        touches = last.last_offset + 1 == batch.first_offset
        if touches and _progress(last) == _progress(batch):
            combined[-1] = last._replace(last_offset=batch.last_offset)
            return
    combined.append(batch)
