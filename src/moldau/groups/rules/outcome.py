"""What comes out of an event: replies, records, effects.

The shell appends the records and applies them, holds the replies until the records are committed,
and performs the effects. The machine itself does none of this. A rule: values only.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.groups.rules.answers import GroupAnswer
from moldau.groups.rules.events import GroupEvent, GroupTimer, NewState
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.records import GroupRecord, OffsetRecord, PendingOffsetRecord, StoredRecord
from moldau.groups.rules.streams_assignor import TaskAssignment


class Reply(NamedTuple):
    """The answer to a request. Every request gets exactly one, now or later."""

    request: int
    answer: GroupAnswer


class Arm(NamedTuple):
    """Start a timer, or start it anew."""

    timer: GroupTimer
    delay_ms: int


class Disarm(NamedTuple):
    """Stop a timer, if it runs."""

    timer: GroupTimer


class LogMessage(NamedTuple):
    """A message for the log: why a group rebalanced, who was lost."""

    group_id: str
    message: str
    is_rebalance: bool = False  # partitions may change hands for it


class Follow(NamedTuple):
    """Handle another event, once the records of this one are logged."""

    event: GroupEvent


class InitializeStates(NamedTuple):
    """Have share coordinators begin states, once the records of this event are logged."""

    group_id: str
    state_epoch: int
    states: tuple[NewState, ...]


class AssignTasks(NamedTuple):
    """Have tasks of a streams group assigned, in slices between which others are served; then
    handle `TasksAssigned`. It takes the place of what the group has asked for before."""

    group_id: str
    epoch: int
    assignment: TaskAssignment


Effect: TypeAlias = Arm | Disarm | LogMessage | Follow | InitializeStates | AssignTasks


class OffsetsTransaction(NamedTuple):
    """Whose transaction records are part of, and what the log asks for before it may begin."""

    producer_id: int
    producer_epoch: int
    verification: int


class Outcome:
    """Collected while an event is handled, in the order in which things are to be done."""

    __slots__ = ("effects", "records", "replies", "transaction")

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.records: list[StoredRecord] = []
        self.effects: list[Effect] = []
        self.transaction: OffsetsTransaction | None = None  # of all records

    def reply(self, request: int, answer: GroupAnswer) -> None:
        self.replies.append(Reply(request, answer))

    def arm(self, timer: GroupTimer, delay_ms: int) -> None:
        self.effects.append(Arm(timer, delay_ms))

    def disarm(self, timer: GroupTimer) -> None:
        self.effects.append(Disarm(timer))

    def follow(self, event: GroupEvent) -> None:
        self.effects.append(Follow(event))

    def log(self, group_id: str, message: str, *, is_rebalance: bool = False) -> None:
        self.effects.append(LogMessage(group_id, message, is_rebalance))

    def initialize_states(
        self, group_id: str, state_epoch: int, states: tuple[NewState, ...]
    ) -> None:
        self.effects.append(InitializeStates(group_id, state_epoch, states))

    def assign_tasks(self, group_id: str, epoch: int, assignment: TaskAssignment) -> None:
        self.effects.append(AssignTasks(group_id, epoch, assignment))

    @property
    def must_be_logged(self) -> bool:
        """Whether the group has to hear if these records cannot be logged: members wait for a
        generation, or timers were set as if members of a consumer group had come or gone."""
        return any(
            one.metadata is not None
            if isinstance(one, GroupRecord)
            else not isinstance(one, OffsetRecord | PendingOffsetRecord)
            for one in self.records
        )

    def __repr__(self) -> str:
        return f"Outcome({self.replies!r}, {self.records!r}, {self.effects!r})"


class GroupTurn:
    """One event being handled: what the rules need to know beside it, and what comes out."""

    __slots__ = ("image", "limits", "now_ms", "outcome", "request")

    def __init__(
        self, request: int, now_ms: int, limits: GroupLimits, image: MetadataImage
    ) -> None:
        self.request = request
        self.now_ms = now_ms
        self.limits = limits
        self.image = image
        self.outcome = Outcome()

    def answer(self, answer: GroupAnswer) -> None:
        """GroupAnswer the request that carried the event."""
        self.outcome.reply(self.request, answer)
