"""How the stored state of a share partition is put together from what was written. A rule.

Where two batches speak of the same offset, the one that is further counts: the larger number of
deliveries, and among those the later state. As with Kafka's coordinator, so a write that comes
again, or comes late, takes nothing back.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from moldau.shares.rules.delivery_state import NO_START_OFFSET, StateBatch


def combine(
    stored: Sequence[StateBatch], written: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Both together, from the start offset on: in order, without overlaps, and neighbours that are
    alike as one (SHS-1). What is stored is so already, and copied where nothing was written."""
    kept = _from(stored, start_offset)
    combined: list[StateBatch] = []
    position = reach = 0  # what is kept before `position` is in `combined`
    overlapping: list[StateBatch] = []  # kept from there to `reach`, and written
    for batch in _put_in_order(_clip(written, start_offset)):
        if overlapping and kept[reach - 1].last_offset < batch.first_offset:
            _extend(combined, _put_in_order(overlapping))
            position, overlapping = reach, []
        if not overlapping:
            reach = _first_reaching(kept, batch.first_offset, position)
            _extend(combined, kept[position:reach])
            position = reach
        end = bisect_right(kept, (batch.last_offset, math.inf), reach)
        if end > reach or overlapping:
            overlapping += (*kept[reach:end], batch)
            reach = end
        else:
            _append(combined, batch)
    _extend(combined, _put_in_order(overlapping))
    _extend(combined, kept[reach:])
    return tuple(combined)


def _first_reaching(kept: Sequence[StateBatch], offset: int, position: int) -> int:
    """The first batch from a position on that ends at an offset or behind."""
    found = bisect_right(kept, (offset, math.inf), position)
    return found - 1 if found > position and kept[found - 1].last_offset >= offset else found


def _put_in_order(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Of any batches, which may overlap."""
    pieces = sorted(batches)
    if all(one.last_offset < other.first_offset for one, other in pairwise(pieces)):
        return _joined(pieces)
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
    return combined


def _joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    combined: list[StateBatch] = []
    for batch in batches:
        _append(combined, batch)
    return combined


def _from(stored: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    """What is in order, from an offset on."""
    begin = max(0, bisect_right(stored, (start_offset, math.inf)) - 1)
    return (*_clip(stored[begin : begin + 1], start_offset), *stored[begin + 1 :])


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
        if touches and last[2:] == batch[2:]:
            combined[-1] = last._replace(last_offset=batch.last_offset)
            return
    combined.append(batch)


def _extend(combined: list[StateBatch], batches: Sequence[StateBatch]) -> None:
    """Go on with batches that are in order: only where both meet they may be alike."""
    if batches:
        _append(combined, batches[0])
        combined += batches[1:]
