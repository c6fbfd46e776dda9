"""What a group answers, in the words of the newest version of each API. A rule: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from moldau.errors import ErrorCode
from moldau.groups.rules.group_states import ClassicGroupState
from moldau.model.protocol_numbers import NO_GENERATION


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


GroupAnswer: TypeAlias = JoinAnswer | SyncAnswer | CodeAnswer | LeaveAnswer | PartitionsAnswer


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


# What tools ask


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group as DescribeGroups shows it. One that is not there is DEAD."""

    group_id: str
    state: ClassicGroupState = ClassicGroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: ClassicGroupState
