"""The states of groups and the ways between them.

A classic group has two kinds of moves, and they never mix. A *request* or a timer moves it into a
rebalance and through it: nothing of that is logged, and a coordinator that takes over knows nothing
of it. A *record* moves it where a rebalance ends: to members with an assignment, or to none.
Whoever loads the log arrives at the same state by the same records.

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


class ConsumerGroupState(Enum):
    """Of a consumer group (KIP-848). Follows from the epochs; nobody sets it. The values are
    Kafka's names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to ASSIGNING with the first member; to DEAD when it is deleted or its
    last offset expires."""

    ASSIGNING = "Assigning"
    """The group's epoch is ahead of the target's. Moves: to RECONCILING with the next heartbeat of
    a member, which is when targets are computed."""

    RECONCILING = "Reconciling"
    """Some members have not reached their targets yet. Moves: to STABLE with the last one."""

    STABLE = "Stable"
    """Every member has its target. Moves: to ASSIGNING when somebody comes, goes or wants something
    else, or the topics change."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""


class ShareGroupState(Enum):
    """Of a share group (KIP-932). Follows from its members; nobody sets it. The values are Kafka's
    names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to STABLE with the first member; to DEAD when it is deleted."""

    STABLE = "Stable"
    """It has members. Moves: to EMPTY with the last one."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""


class StreamsGroupState(Enum):
    """Of a streams group (KIP-1071). Follows from the epochs; nobody sets it. The values are
    Kafka's names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to NOT_READY or ASSIGNING with the first member; to DEAD when it is
    deleted or its last offset expires."""

    NOT_READY = "NotReady"
    """Topics of its topology are missing, or have other numbers of partitions than they must.
    Moves: to ASSIGNING with the first heartbeat that finds them as they must be."""

    ASSIGNING = "Assigning"
    """The group's epoch is ahead of the target's. Moves: to RECONCILING when targets are
    computed: with a heartbeat, or when no more members are waited for."""

    RECONCILING = "Reconciling"
    """Some members have not reached their targets yet. Moves: to STABLE with the last one."""

    STABLE = "Stable"
    """Every member has its target. Moves: to ASSIGNING when somebody comes or goes, or the topics
    or the settings change."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""
