"""What comes out of an event: replies, records, effects; and the options that bound groups.

The shell appends the records and applies them, holds the replies until the records are committed,
and performs the effects. The machine itself does none of this. A rule: values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.config.group_options import GroupConfigOptions, value_in_group
from moldau.config.option import Option
from moldau.coordinators.groups.rules.assignors import TaskAssignment
from moldau.coordinators.groups.rules.events import GroupAnswer, GroupEvent, GroupTimer, NewState
from moldau.coordinators.groups.rules.records import (
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    StoredRecord,
)

# What comes out of an event: replies, records, effects.
#
# The shell appends the records and applies them, holds the replies until the records are committed,
# and performs the effects. The machine itself does none of this. A rule: values only.


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Made when the options change, not per request. The defaults are the options' own."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_ms: int = 0
    member_metadata_max_bytes: int = 1_048_588
    """More could not be logged: the record of a generation has the metadata of all its members,
    that of a member of a consumer group the names it subscribes to."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    # Of consumer groups
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = (1 << 31) - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is for groups whose members do not mind."""
    consumer_migration_policy: str = "bidirectional"
    consumer_assignment_interval_ms: int = 0
    # Of share groups
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_max_size: int = 200
    share_assignors: tuple[str, ...] = ("simple",)
    share_assignment_interval_ms: int = 0
    # Of streams groups
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_max_size: int = (1 << 31) - 1
    streams_num_standby_replicas: int = 0
    streams_initial_rebalance_delay_ms: int = 3_000
    streams_assignment_interval_ms: int = 1_000

    def of_group(self, settings: Mapping[str, str]) -> GroupLimits:
        """Those of a group that has set something itself; asked with every event."""
        if not settings:
            return self
        own: dict[str, int] = {
            name: value_in_group(declared, settings, getattr(self, name))
            for name, declared in _OF_GROUPS.items()
        }
        return replace(self, **own)  # type: ignore[arg-type]

    @property
    def allows_upgrade(self) -> bool:
        """Whether members of the new protocol may join a group of classic ones."""
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        """Whether a group that only classic members are left in is theirs again."""
        return self.consumer_migration_policy in ("bidirectional", "downgrade")


_OF_GROUPS: Final[Mapping[str, Option[int]]] = {
    name: getattr(GroupConfigOptions, name)
    for name in (
        "consumer_session_timeout_ms",
        "consumer_heartbeat_interval_ms",
        "consumer_assignment_interval_ms",
        "share_session_timeout_ms",
        "share_heartbeat_interval_ms",
        "share_assignment_interval_ms",
        "streams_session_timeout_ms",
        "streams_heartbeat_interval_ms",
        "streams_num_standby_replicas",
        "streams_initial_rebalance_delay_ms",
        "streams_assignment_interval_ms",
    )
}
"""What a group may have of its own, by the names that it has here."""


def group_limits_of(options: BrokerOptions) -> GroupLimits:
    return GroupLimits(
        min_session_timeout_ms=options.group_min_session_timeout_ms,
        max_session_timeout_ms=options.group_max_session_timeout_ms,
        max_size=options.group_max_size,
        initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
        member_metadata_max_bytes=options.message_max_bytes,
        offset_metadata_max_bytes=options.offset_metadata_max_bytes,
        offsets_retention_ms=options.offsets_retention_minutes * 60_000,
        consumer_session_timeout_ms=options.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=options.group_consumer_heartbeat_interval_ms,
        consumer_max_size=options.group_consumer_max_size,
        consumer_assignors=tuple(options.group_consumer_assignors),
        consumer_migration_policy=options.group_consumer_migration_policy,
        consumer_assignment_interval_ms=options.group_consumer_assignment_interval_ms,
        share_session_timeout_ms=options.group_share_session_timeout_ms,
        share_heartbeat_interval_ms=options.group_share_heartbeat_interval_ms,
        share_max_size=options.group_share_max_size,
        share_assignors=tuple(options.group_share_assignors),
        share_assignment_interval_ms=options.group_share_assignment_interval_ms,
        streams_session_timeout_ms=options.group_streams_session_timeout_ms,
        streams_heartbeat_interval_ms=options.group_streams_heartbeat_interval_ms,
        streams_max_size=options.group_streams_max_size,
        streams_num_standby_replicas=options.group_streams_num_standby_replicas,
        streams_initial_rebalance_delay_ms=options.group_streams_initial_rebalance_delay_ms,
        streams_assignment_interval_ms=options.group_streams_assignment_interval_ms,
    )
