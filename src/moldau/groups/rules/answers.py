"""What a group answers, in the words of the newest version of each API. A rule: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from moldau.errors import ErrorCode
from moldau.groups.rules.assigned_partitions import AssignedPartitions
from moldau.groups.rules.streams_group_records import (
    StreamsEndpoint,
)
from moldau.groups.rules.streams_tasks import Tasks
from moldau.groups.rules.streams_topics import CreatableTopic, StatusNote
from moldau.model import NO_GENERATION


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The new generation; the leader's names all members."""

    error: ErrorCode = ErrorCode.none
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """What the member got."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAnswer:
    """Nothing but whether it worked: Heartbeat and DeleteGroups."""

    error: ErrorCode = ErrorCode.none


class LeftMember(NamedTuple):
    """What became of one of those who leave."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    """In the order of the request."""

    error: ErrorCode = ErrorCode.none
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAnswer:
    """OffsetCommit and OffsetDelete: an error for all, or one for each partition of the request."""

    error: ErrorCode = ErrorCode.none
    errors: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatAnswer:
    """Where the member stands now."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: AssignedPartitions | None = None  # None: what it was last told


class EndpointTasks(NamedTuple):
    """What an instance of a streams application can be asked for: partitions by topic."""

    endpoint: StreamsEndpoint
    active: Mapping[str, frozenset[int]]
    standby: Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeatAnswer:
    """Where a member of a streams group stands now."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[StatusNote, ...] = ()
    tasks: Tasks | None = None  # None: what it was last told
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointTasks, ...] | None = None  # None: what it was last told
    missing: tuple[CreatableTopic, ...] = ()  # topics that are to be made


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTopicsAnswer:
    """What is to be asked of share coordinators, in the name of the group."""

    error: ErrorCode = ErrorCode.none
    partitions: AssignedPartitions = field(default_factory=dict)
    epoch: int = 0


GroupAnswer: TypeAlias = (
    JoinAnswer
    | SyncAnswer
    | CodeAnswer
    | LeaveAnswer
    | PartitionsAnswer
    | ConsumerHeartbeatAnswer
    | StreamsHeartbeatAnswer
    | StateTopicsAnswer
)


def refusal_like(answer: GroupAnswer, error: ErrorCode) -> GroupAnswer:
    """The answer that says of the same request that it did not work."""
    match answer:
        case JoinAnswer():
            return JoinAnswer(error=error, member_id=answer.member_id)
        case SyncAnswer():
            return SyncAnswer(error=error)
        case CodeAnswer():
            return CodeAnswer(error=error)
        case LeaveAnswer():
            return LeaveAnswer(error=error)
        case PartitionsAnswer():
            return PartitionsAnswer(error=error)
        case ConsumerHeartbeatAnswer():
            return ConsumerHeartbeatAnswer(error=error)
        case StreamsHeartbeatAnswer():
            return StreamsHeartbeatAnswer(error=error)
        case StateTopicsAnswer():
            return StateTopicsAnswer(error=error)


# What tools ask


class GroupType(Enum):
    """Which protocol a group's members speak; the values are Kafka's names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class ListedGroup(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: Enum  # of the kind of group
    type: GroupType = GroupType.CLASSIC
