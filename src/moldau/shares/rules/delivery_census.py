"""How many records of a share partition are where on their way. A rule.

What only the leader of a partition knows: DescribeShareGroupOffsets tells where a group starts and
how much is left, and nothing of what members hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.shares.rules.offset_runs import OffsetRun


class DeliveryCensus(NamedTuple):
    """Counts of offsets between the start and the end of what is in flight."""

    acquired: int  # members have them
    waiting: int  # to be delivered again
    done: int  # acknowledged or archived, behind one that is not
    redelivered: int  # of those acquired or waiting: delivered more than once
    most_deliveries: int  # of one of them
    oldest_offset: int | None  # that is not done with; None where all are
    members: Mapping[str, int]  # how many each has acquired
    lock_seconds: float | None  # until the next lock is over


def take_census(runs: Iterable[OffsetRun], now: float) -> DeliveryCensus:
    acquired = waiting = done = redelivered = most = 0
    oldest: int | None = None
    members: Counter[str] = Counter()
    deadline = math.inf
    for first, end, lot in runs:
        count = end - first
        if lot.is_final:
            done += count
            continue
        oldest = first if oldest is None else oldest
        most = max(most, lot.delivery_count)
        redelivered += count if lot.delivery_count > 1 else 0
        if lot.is_available:
            waiting += count
        else:
            acquired += count
            members[lot.member] += count
            deadline = min(deadline, lot.deadline)
    left = None if math.isinf(deadline) else max(0.0, deadline - now)
    return DeliveryCensus(acquired, waiting, done, redelivered, most, oldest, dict(members), left)
