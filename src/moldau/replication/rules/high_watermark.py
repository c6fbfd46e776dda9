"""How far the log is committed: every in-sync replica has it (HW-1, HW-2 of docs/invariants.md).

A rule.
"""

from __future__ import annotations

from collections.abc import Collection

from moldau.model import Offset


def advance_high_watermark(
    current: Offset, leader_end: Offset, in_sync_ends: Collection[Offset]
) -> Offset:
    """The new high watermark; it never goes back (HW-2).

    `in_sync_ends` are the log end offsets of the followers in the in-sync set; a leader alone
    commits what it has written.
    """
    committed = min(leader_end, *in_sync_ends) if in_sync_ends else leader_end
    return committed if committed > current else current
