"""The states of a group and the ways between them.

Two kinds of moves, and they never mix. A *request* or a timer moves a group into a rebalance and
through it: nothing of that is logged, and a coordinator that takes over knows nothing of it. A
*record* moves it where a rebalance ends: to members with an assignment, or to none. Whoever loads
the log arrives at the same state by the same records.

        EMPTY <- - - - - - - +
          |                  :
          v                  :
    PREPARING_REBALANCE -----+--- all have joined ---> COMPLETING_REBALANCE
          ^    ^                                          |         :
          |    +--------- a member comes or goes ---------+         : the leader's assignment
          |                                                         v
          +-------------- a member comes or goes ---------------- STABLE

    ---  by a request or a timer       - - and : by a record

A rule.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from moldau.errors import InvariantViolation


class ClassicGroupState(Enum):
    """Where a group is; the value is Kafka's word for it."""

    EMPTY = "Empty"
    """Nobody is in; offsets may be there.

    Answers: JoinGroup begins a rebalance; commits without a member are taken; every request of a
    member is UNKNOWN_MEMBER_ID.
    Moves: to PREPARING_REBALANCE with the first member; to DEAD when it is deleted or its last
    offset expires.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until every member has asked to join again, as long as the slowest one may take.

    Answers: JoinGroup waits; SyncGroup and heartbeats are REBALANCE_IN_PROGRESS; commits of the
    generation that is ending are taken.
    Moves: to COMPLETING_REBALANCE when all have joined or the time is over; by a record to EMPTY
    when nobody is left.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """Everyone knows the new generation; the leader's assignment is awaited.

    Answers: SyncGroup waits, the leader's ends the waiting; heartbeats are answered; commits are
    REBALANCE_IN_PROGRESS; JoinGroup with nothing new is told the generation again.
    Moves: by a record to STABLE; back to PREPARING_REBALANCE when a member comes, goes or changes.
    """

    STABLE = "Stable"
    """Every member has its assignment.

    Answers: SyncGroup with the assignment; heartbeats; commits of this generation.
    Moves: to PREPARING_REBALANCE when a member comes, goes or changes, or the leader joins again.
    """

    DEAD = "Dead"
    """Deleted. Nothing of it is left, so nothing is answered; it is what tools see of a group that
    is not there."""


MOVES: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(),
}
"""By a request or a timer."""

LOGGED_MOVES: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset({ClassicGroupState.EMPTY}),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.STABLE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.STABLE}),
    ClassicGroupState.DEAD: frozenset(),
}
"""By a record, while the group is served. Loading starts from nothing and follows the log; there
the rebalance between two records is not seen."""


def check_move(group_id: str, former: ClassicGroupState, new: ClassicGroupState) -> None:
    if new not in MOVES[former]:
        raise InvariantViolation(f"group {group_id!r} cannot move from {former} to {new}")
