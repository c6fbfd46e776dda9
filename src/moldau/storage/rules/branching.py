"""What of a log goes into a branch of it. A rule.

A branch ends at an offset up to which all is committed and every transaction has ended. Segments
that lie before it as a whole are shared; of the one that holds it the batches before it are copied;
and what is written to the branch goes into a new segment, so that no shared one is appended to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.storage.rules.epoch_cache import EpochCache


class BranchPlan(NamedTuple):
    """Numbers of segments, and where the branch begins and ends."""

    shared: range
    copied: int | None
    """The one of which a part is copied."""
    start_offset: int
    end_offset: int


def plan_branch(
    base_offsets: Sequence[int], start_offset: int, end_offset: int, stable_offset: int
) -> BranchPlan:
    """Segments by their base offsets, ascending; the log has them up to `end_offset`.

    What is before its start is left out; `stable_offset` is where the branch ends.
    """
    end = max(start_offset, min(stable_offset, end_offset))
    ends = (*base_offsets[1:], end_offset)
    last = len(base_offsets) - 1
    first = sum(1 for each in ends[:last] if each <= start_offset)
    # The last segment is appended to, even where all of it is before the end.
    whole = max(first, sum(1 for each in ends[:last] if each <= end))
    is_cut = base_offsets[whole] < end and start_offset < end
    return BranchPlan(range(first, whole), whole if is_cut else None, start_offset, end)


def stable_end(epochs: EpochCache, newest_epoch: int, end_offset: int, stable_offset: int) -> int:
    """Where a branch may end that has nothing of an epoch later than `newest_epoch` (BRA-2)."""
    if epochs.latest_epoch is None or epochs.latest_epoch <= newest_epoch:
        return stable_offset
    return min(stable_offset, epochs.end_offset_for(newest_epoch, end_offset).end_offset)
