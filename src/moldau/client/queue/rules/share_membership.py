"""A queue's client as a member of its share group (KIP-932). A rule.

There is one request, the heartbeat: it joins, tells that the member lives and what it wants, and
brings what is assigned to it. Partitions of a share group have several members at once, so that
nobody waits for anybody: what is assigned can be asked for at once, and records that were taken
before may be dealt with by a member that has lost its partition, or its place.

    UNSUBSCRIBED --the program asks--> JOINING --the first answer--> STABLE
       ^                             ^                             |
       |                             +----- lost the place --------+
       +---- the program leaves, or nothing helps (FATAL) --------+

Heartbeats follow each other: one is under way, or the next one is due after the interval that the
coordinator has told, or after a pause when one has failed.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from moldau.client.consumer.rules.consumer_membership import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    HeartbeatAnswer,
    PartitionsById,
)
from moldau.client.consumer.rules.instructions import Failure
from moldau.client.queue.rules.in_flight import (
    SendShareHeartbeat,
    SendShareLeave,
    ShareTimerKind,
    ShareTurn,
)
from moldau.client.rules.broker_errors import Reaction, react_to
from moldau.errors import InvariantViolation

SHARE_LEAVING_EPOCH: Final = LEAVING_EPOCH


class ShareMemberState(Enum):
    """Where a member is."""

    UNSUBSCRIBED = "unsubscribed"
    """No member. Moves when the program asks for records."""

    JOINING = "joining"
    """The first heartbeat is under way, or is sent again after a pause."""

    STABLE = "stable"
    """Asks for records of what is assigned. Moves when the coordinator has forgotten it."""

    FATAL = "fatal"
    """Nothing that the client can do. Moves when the program leaves."""


SHARE_MOVES: Final[dict[ShareMemberState, frozenset[ShareMemberState]]] = {
    ShareMemberState.UNSUBSCRIBED: frozenset({ShareMemberState.JOINING}),
    ShareMemberState.JOINING: frozenset(
        {ShareMemberState.STABLE, ShareMemberState.FATAL, ShareMemberState.UNSUBSCRIBED}
    ),
    ShareMemberState.STABLE: frozenset(
        {ShareMemberState.JOINING, ShareMemberState.FATAL, ShareMemberState.UNSUBSCRIBED}
    ),
    ShareMemberState.FATAL: frozenset({ShareMemberState.UNSUBSCRIBED}),
}


class ShareMembership:
    """One member of one share group. Its id is the client's own, and stays."""

    def __init__(
        self, turn: ShareTurn, group_id: str, topics: frozenset[str], rack: str | None
    ) -> None:
        self.state = ShareMemberState.UNSUBSCRIBED
        self.assigned: PartitionsById = {}
        self.failure: Failure | None = None  # why it has FATAL
        self.epoch = JOINING_EPOCH
        self._turn = turn
        self._group_id = group_id
        self._topics = topics
        self._rack = rack
        self._beat_count = 0  # which heartbeat it is; answers and timers of others mean nothing
        self._is_all_told = False  # the coordinator knows topics and rack
        self._attempt = 0

    def _move(self, state: ShareMemberState) -> None:
        if state not in SHARE_MOVES[self.state]:
            raise InvariantViolation(f"a member cannot move from {self.state} to {state}")
        self.state = state

    def start(self) -> None:
        """Join, and stay a member from now on."""
        self._move(ShareMemberState.JOINING)
        self._send()

    def leave(self) -> None:
        """Tell the coordinator, so that it need not wait for the session to time out."""
        is_told = self.state in (ShareMemberState.JOINING, ShareMemberState.STABLE)
        if self.state is not ShareMemberState.UNSUBSCRIBED:
            self._move(ShareMemberState.UNSUBSCRIBED)
        self._beat_count += 1
        self.assigned = {}
        self._turn.instruct(SendShareLeave(is_told))

    def _send(self) -> None:
        is_first = self.state is ShareMemberState.JOINING
        says_all = is_first or not self._is_all_told
        self._beat_count += 1
        self._turn.instruct(
            SendShareHeartbeat(
                beat=self._beat_count,
                epoch=JOINING_EPOCH if is_first else self.epoch,
                rack=self._rack if says_all else None,
                topics=self._topics if says_all else None,
            )
        )

    def _arm(self, seconds: float) -> None:
        self._beat_count += 1
        self._turn.arm(ShareTimerKind.HEARTBEAT, self._beat_count, seconds)

    def on_heartbeat_due(self, beat: int) -> None:
        if beat == self._beat_count:
            self._send()

    def heartbeat_answered(self, beat: int, answer: HeartbeatAnswer) -> None:
        if beat != self._beat_count:
            return
        self._attempt = 0
        self._is_all_told = True
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.assigned = answer.assigned
            count = sum(map(len, answer.assigned.values()))
            self._turn.log(
                f"a member of share group {self._group_id}, epoch {self.epoch}: "
                f"{count} partitions are assigned"
            )
        if self.state is ShareMemberState.JOINING:
            self._move(ShareMemberState.STABLE)
        self._arm(answer.interval_ms / 1000)

    def heartbeat_failed(self, beat: int, failure: Failure) -> None:
        if beat != self._beat_count:
            return
        self._is_all_told = False
        match react_to(failure):
            case Reaction.STOP:
                self.failure = failure
                self.assigned = {}
                self._move(ShareMemberState.FATAL)
                self._turn.wakes_program = True
            case Reaction.START_OVER if self.state is ShareMemberState.STABLE:
                self._turn.log(f"share group {self._group_id} has lost this member: {failure}")
                self.assigned = {}
                self._move(ShareMemberState.JOINING)
                self._send()
            case _:
                self._arm(self._turn.backoff_seconds(self._attempt))
                self._attempt += 1
