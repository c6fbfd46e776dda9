"""Where a member of a group by the classic protocol is, and the ways between. A rule.

OUTSIDE --the program asks--> LETTING_GO --all gone--> JOINING --leads--> ASSIGNING
                               ^   ^                      |                   |
      a rebalance, new topics  |   | lost the place       +----follows----+   | topics known
                               |   |                                      v   v
STABLE <--told-- TAKING_OVER <-|---+-- RELEASING <----- assignment ----- SYNCING
   |                           |
   +---------------------------+          any request fails --> PAUSING --> LETTING_GO
                                          nothing helps ------> FAILING --> OUTSIDE
                                          the program leaves -------------> OUTSIDE
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Where a member is."""

    OUTSIDE = "outside"
    """No member. Moves when the program asks for records of a subscription."""

    LETTING_GO = "letting go"
    """Hands over what it must not keep while the group rebalances: everything, or with cooperative
    assignors what is not subscribed to any more. Moves when that is gone."""

    JOINING = "joining"
    """JoinGroup is under way; no heartbeats. The answer comes when the whole group has joined."""

    ASSIGNING = "assigning"
    """Leads the generation, and asks for the topics of all members."""

    SYNCING = "syncing"
    """SyncGroup is under way."""

    RELEASING = "releasing"
    """Hands over what the new assignment gives to others."""

    TAKING_OVER = "taking over"
    """The program is told of what is new."""

    STABLE = "stable"
    """Reads. Moves when the group rebalances, or the topics change."""

    PAUSING = "pausing"
    """A request has failed, and is made again after a pause."""

    FAILING = "failing"
    """Nothing that the client can do. Moves when all partitions are gone."""


MOVES: Final[dict[State, frozenset[State]]] = {
    State.OUTSIDE: frozenset({State.LETTING_GO}),
    State.LETTING_GO: frozenset({State.JOINING}),
    State.JOINING: frozenset({State.ASSIGNING, State.SYNCING, State.LETTING_GO, State.PAUSING}),
    State.ASSIGNING: frozenset({State.SYNCING, State.LETTING_GO, State.PAUSING}),
    State.SYNCING: frozenset({State.RELEASING, State.LETTING_GO, State.PAUSING}),
    State.RELEASING: frozenset({State.TAKING_OVER, State.LETTING_GO}),
    State.TAKING_OVER: frozenset({State.STABLE, State.LETTING_GO}),
    State.STABLE: frozenset({State.LETTING_GO}),
    State.PAUSING: frozenset({State.LETTING_GO}),
    State.FAILING: frozenset(),
}
"""Beside these: every state moves to OUTSIDE when the program leaves, or when it failed, and every
one to FAILING."""

ENDS: Final = frozenset({State.OUTSIDE, State.FAILING})
