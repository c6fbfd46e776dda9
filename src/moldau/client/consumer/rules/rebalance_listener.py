"""How partitions come into the program's hands, and out of them again. A rule.

Partitions leave in a revocation, one at a time. The program may be at work on what it was given, so
that it takes steps:

    step                waits until                                    then
    AWAITING_IDLE       all streams are idle: the program has dealt    COMMITTING; CALLING_LISTENER
                        with all that it was given                     if others have them already
    COMMITTING          offsets are committed, or that has failed      CALLING_LISTENER
    CALLING_LISTENER    `on_revoked` (or `on_lost`) was called         they are gone

They come the other way: they are adopted but held, `on_assigned` is called, then they are fetched.
What the program was never told of leaves without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final

from moldau.client.consumer.rules.fetch_plan import FetchPlan
from moldau.client.consumer.rules.instructions import ConsumerTurn, PartitionSet
from moldau.client.consumer.rules.offset_manager import OffsetCommits
from moldau.client.consumer.rules.subscription_state import (
    ConsumerStream,
    ConsumerStreams,
    SubscriptionState,
)
from moldau.errors import InvariantViolation
from moldau.model import TopicPartition


class RebalanceEvent(Enum):
    """What the program can have a function for."""

    ASSIGNED = "on_assigned"
    REVOKED = "on_revoked"
    LOST = "on_lost"


class ListenerCall:
    """A call of a function of the program's, which is made when the program is in."""

    __slots__ = ("event", "is_begun", "partitions")

    def __init__(self, event: RebalanceEvent, partitions: PartitionSet) -> None:
        self.event = event
        self.partitions = partitions
        self.is_begun = False

    def __repr__(self) -> str:
        return f"Call({self.event.value}, {sorted(self.partitions)})"


class RevocationStep(Enum):
    AWAITING_IDLE = "awaiting idle"
    COMMITTING = "committing"
    CALLING_LISTENER = "calling listener"


REVOCATION_MOVES: Final[dict[RevocationStep, frozenset[RevocationStep]]] = {
    RevocationStep.AWAITING_IDLE: frozenset(
        {RevocationStep.COMMITTING, RevocationStep.CALLING_LISTENER}
    ),
    RevocationStep.COMMITTING: frozenset({RevocationStep.CALLING_LISTENER}),
    RevocationStep.CALLING_LISTENER: frozenset(),
}


class Revocation:
    """Partitions on their way out."""

    __slots__ = ("call", "is_lost", "partitions", "step")

    def __init__(self, partitions: PartitionSet, *, is_lost: bool) -> None:
        self.partitions = partitions
        self.is_lost = is_lost  # others have them already: nothing is committed
        self.step = RevocationStep.AWAITING_IDLE
        self.call: ListenerCall | None = None

    def move(self, step: RevocationStep) -> None:
        if step not in REVOCATION_MOVES[self.step]:
            raise InvariantViolation(f"a revocation cannot move from {self.step} to {step}")
        self.step = step


class OwnedPartitions:
    """The partitions of one consumer, with what comes and what goes."""

    def __init__(
        self,
        turn: ConsumerTurn,
        subscriptions: SubscriptionState,
        streams: ConsumerStreams,
        fetch_plan: FetchPlan,
        commits: OffsetCommits | None,
        listened_to: Collection[RebalanceEvent],
    ) -> None:
        self.calls: list[ListenerCall] = []  # in order; the program makes them when it is in
        self.is_leaving = False  # nothing comes any more
        self.revocation: Revocation | None = None
        self._turn = turn
        self._subscriptions = subscriptions
        self._streams = streams
        self._fetch_plan = fetch_plan
        self._commits = commits  # there are none without a group
        self._listened_to = frozenset(listened_to)
        self._assigning: ListenerCall | None = None
        self._suspended: PartitionSet = frozenset()  # nobody wants these at the moment

    @property
    def is_changing(self) -> bool:
        """Whether something is on its way, in or out."""
        return self.revocation is not None or self._assigning is not None

    def add_partitions(self, partitions: Collection[TopicPartition], *, held: bool = False) -> None:
        """These are the program's now; while they are held nothing of them is fetched."""
        self._subscriptions.add(partitions, held=held)
        self._streams.route(partitions)
        self._fetch_plan.is_due = self._fetch_plan.wants_positions = True

    def remove_partitions(self, partitions: PartitionSet) -> None:
        """These are not the program's any more."""
        self._subscriptions.remove(partitions)
        self._streams.remove(partitions)
        self._fetch_plan.forget_partitions(partitions)
        self._suspended -= partitions
        if self._commits is not None:
            self._commits.forget_partitions(partitions)

    def suspend_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Nobody wants these any more; they leave with the next rebalance."""
        unwanted = frozenset(partitions)
        self._suspended |= unwanted
        self._subscriptions.hold(unwanted, is_held=True)
        self._fetch_plan.forget_partitions(unwanted)
        self._streams.stop(unwanted)

    def resume_partitions(self, partitions: PartitionSet) -> None:
        """Go on with what was set aside of these, and has not begun to leave."""
        going = frozenset() if self.revocation is None else self.revocation.partitions
        wanted = (self._suspended & partitions) - going
        self._suspended -= wanted
        if self._assigning is not None:
            wanted -= self._assigning.partitions  # those are held until the program was told
        self._subscriptions.hold(wanted, is_held=False)
        for partition in wanted:
            position = self._streams.position(partition)
            if position is not None:
                self._subscriptions.fetch_again(partition, position)
        self._fetch_plan.is_due = self._fetch_plan.wants_positions = True

    # Coming

    def assign_partitions(self, partitions: PartitionSet) -> None:
        """The group has assigned these; `is_changing` until the program was told of them."""
        coming = partitions - self._subscriptions.partitions
        if self.is_leaving or not coming:
            return
        self.add_partitions(coming, held=True)
        self._assigning = self._call(RebalanceEvent.ASSIGNED, coming)
        if self._assigning is None:
            self._finish_assignment(coming)

    def cancel_assignment(self) -> None:
        """What comes is gone again, or about to. If the program has not heard of it, it is not
        told that it has it, and so not that it has it no more either."""
        coming = self._assigning
        if coming is not None and not coming.is_begun:
            self.calls.remove(coming)
            self._assigning = None
            self.remove_partitions(coming.partitions)

    def _finish_assignment(self, partitions: PartitionSet) -> None:
        self._subscriptions.hold(partitions, is_held=False)
        self._fetch_plan.is_due = self._fetch_plan.wants_positions = True
        self._turn.wakes_program = True

    # Going

    def revoke_partitions(self, partitions: PartitionSet, *, is_lost: bool = False) -> None:
        """Begin a revocation; there must be none under way."""
        if self.revocation is not None:
            raise InvariantViolation(f"a revocation of {self.revocation.partitions} is under way")
        self.revocation = Revocation(partitions, is_lost=is_lost)
        self._subscriptions.hold(partitions, is_held=True)
        self._fetch_plan.forget_partitions(partitions)
        for stream in self._streams:
            if stream.is_idle:
                stream.buffer.drop(partitions)
        self._turn.wakes_program = True

    def lose_partitions(self) -> None:
        """All partitions belong to others already."""
        self.cancel_assignment()
        if self.revocation is not None:
            self.revocation.is_lost = True
        elif len(self._subscriptions):
            self.revoke_partitions(self._subscriptions.partitions, is_lost=True)

    def on_stream_idle(self, stream: ConsumerStream) -> None:
        """Of what leaves the stream gives nothing more, be there others that still work."""
        if self.revocation is not None:
            stream.buffer.drop(self.revocation.partitions)

    def on_called(self, call: ListenerCall) -> None:
        """The program's function was called."""
        if call in self.calls:
            self.calls.remove(call)
        if call is self._assigning:
            self._assigning = None
            self._finish_assignment(call.partitions)

    def advance(self) -> bool:
        """Take the next step if nothing stands in the way; whether a revocation has ended."""
        going = self.revocation
        if going is None:
            return False
        if going.step is RevocationStep.AWAITING_IDLE and self._streams.all_idle:
            if self._commits is None or not self._commits.is_automatic or going.is_lost:
                self._call_listener(going)
            else:
                going.move(RevocationStep.COMMITTING)
                processed = self._subscriptions.processed_positions
                self._commits.commit_positions(
                    {p: at for p, at in processed.items() if p in going.partitions}
                )
        if going.step is RevocationStep.COMMITTING and self._commits is not None:
            if self._commits.has_automatic:
                return False
            self._call_listener(going)
        if going.step is not RevocationStep.CALLING_LISTENER or going.call in self.calls:
            return False
        self.remove_partitions(going.partitions)
        self.revocation = None
        self._turn.wakes_program = True
        return True

    def _call_listener(self, going: Revocation) -> None:
        going.move(RevocationStep.CALLING_LISTENER)
        is_lost = going.is_lost and RebalanceEvent.LOST in self._listened_to
        going.call = self._call(
            RebalanceEvent.LOST if is_lost else RebalanceEvent.REVOKED, going.partitions
        )

    def _call(self, event: RebalanceEvent, partitions: PartitionSet) -> ListenerCall | None:
        if event not in self._listened_to:
            return None
        call = ListenerCall(event, partitions)
        self.calls.append(call)
        self._turn.wakes_program = True
        return call
