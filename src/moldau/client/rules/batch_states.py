"""Where a batch of a producer is, and what takes it further. A rule.

    state        until                                        then
    OPEN         it is full, or somebody is in a hurry        WAITING
                 its time to linger is over                   UNDER_WAY
                 its time for delivery is over                FINISHED
    WAITING      its partition has a leader with a free       UNDER_WAY
                 slot, it is numbered, and it is its turn
                 its time for delivery is over                FINISHED
    UNDER_WAY    it is confirmed, or refused for good         FINISHED
                 it failed in a way that may pass             WAITING, in its old place
                 it is too large                              FINISHED; its halves are WAITING
                 its time for delivery is over                ABANDONED
    ABANDONED    the broker answers after all                 (gone)

`BATCH_MOVES` has the same as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class BatchState(Enum):
    """Where a batch is; see the table above."""

    OPEN = "it takes records"
    WAITING = "it waits to be sent, for the first time or again"
    UNDER_WAY = "it was handed over, and not answered yet"
    ABANDONED = "its senders were told that its time is over, and a broker may still take it"
    FINISHED = "its senders were told how it ended"


BATCH_MOVES: Final[Mapping[BatchState, frozenset[BatchState]]] = MappingProxyType(
    {
        BatchState.OPEN: frozenset({BatchState.WAITING, BatchState.UNDER_WAY, BatchState.FINISHED}),
        BatchState.WAITING: frozenset({BatchState.UNDER_WAY, BatchState.FINISHED}),
        BatchState.UNDER_WAY: frozenset(
            {BatchState.WAITING, BatchState.ABANDONED, BatchState.FINISHED}
        ),
        BatchState.ABANDONED: frozenset(),
        BatchState.FINISHED: frozenset(),
    }
)
