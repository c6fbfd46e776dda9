"""How far the log is committed: every in-sync replica has it (HW-1, HW-2 of docs/invariants.md).

A rule.
"""

from __future__ import annotations

from collections.abc import Collection

from moldau.model import Offset


def advance_high_watermark(
    current: Offset, leader_end: Offset, in_sync_ends: Collection[Offset]
) -> Offset:
    """The new high watermark of a leader; it never goes back (HW-2).

    `in_sync_ends` are the log end offsets of the followers in the largest in-sync set that may be
    in force (ISR-1), -1 for one that has not been heard of in this epoch; a leader alone commits
    what it has written.
    """
    committed = min(leader_end, *in_sync_ends) if in_sync_ends else leader_end
    return committed if committed > current else current


def follow_high_watermark(current: Offset, leaders: int, log_end: Offset) -> Offset:
    """The new high watermark of a follower: its leader's, as far as its own log reaches.

    It goes on only: an answer that was overtaken, or a new leader that has yet to learn how far
    the log was committed, takes nothing back.
    """
    return max(current, Offset(min(leaders, log_end)))


def restored_high_watermark(known: int, log_start: Offset, log_end: Offset) -> Offset:
    """What was written down or known before, within a log that was opened or truncated (HW-1)."""
    return Offset(min(max(known, log_start), log_end))
