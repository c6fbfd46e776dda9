"""What can happen to a group, and what it answers: requests of clients, timers, and what the
shell has to report.

An event says which group it is about; the request that carries it has a number of its own, by which
the reply finds back. Answers are in the words of the newest version of each API. A rule: values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.coordinators.groups.rules.streams_records import StreamsEndpoint
from moldau.coordinators.groups.rules.streams_topology import (
    CreatableTopic,
    StatusNote,
    Tasks,
    TaskSet,
    Topology,
)
from moldau.errors import ErrorCode
from moldau.model import NO_GENERATION

# What can happen to a group: requests of clients, timers, and what the shell has to report.
#
# An event says which group it is about; the request that carries it has a number of its own, by
# which the reply finds back. A rule: values only.


UNKNOWN_MEMBER = ""
"""The member id of somebody who has none yet."""

MaySee = Callable[[str], bool]
"""Whether a client may know of a topic."""


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


# What comes in


A = TypeVar("A")


class GroupRequest(Generic[A]):
    """An event that a client waits for; `A` is the answer."""

    __slots__ = ()

    group_id: str
    creates_topic: ClassVar[bool] = False
    """Whether it may be the first request of all, for which the offsets topic is created."""


class GroupProtocol(NamedTuple):
    """A way of assigning that a member can speak ("range"), and what it says in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(GroupRequest[JoinAnswer]):
    """Wants to be a member, or to go on being one."""

    creates_topic: ClassVar[bool] = True
    group_id: str
    member_id: str
    instance_id: str | None
    new_member_id: str  # its id if it has none; made by the shell, since rules know no chance
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    needs_member_id: bool  # JoinGroup 4: a newcomer is told its id first and joins with it
    can_skip_assignment: bool  # JoinGroup 9: a static leader can be told that nothing changed
    reason: str | None = None
    may_see: MaySee | None = None  # None: every topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(GroupRequest[SyncAnswer]):
    """Asks for its assignment; the leader's brings those of all."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # by member id


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(GroupRequest[CodeAnswer]):
    """Is alive."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """By its id, or by its instance id alone when an administrator removes it."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(GroupRequest[LeaveAnswer]):
    """Members go."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets(GroupRequest[PartitionsAnswer]):
    """Stores committed offsets. That the partitions exist was checked before."""

    creates_topic: ClassVar[bool] = True
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[str, int, CommittedOffset], ...]  # topic, partition, commit
    knows_epochs: bool  # OffsetCommit 9, which members of KIP-848's protocol have to speak


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransactionOffsets(GroupRequest[PartitionsAnswer]):
    """Stores committed offsets that count when the transaction of a producer is committed.

    `verification` is what the log asks for before the transaction may begin in it.
    """

    group_id: str
    producer_id: int
    producer_epoch: int
    verification: int
    generation: int  # -1, and an empty member id: not known, before TxnOffsetCommit 3
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[str, int, CommittedOffset], ...]  # topic, partition, commit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets(GroupRequest[PartitionsAnswer]):
    """Forgets the offsets committed in some partitions."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(GroupRequest[CodeAnswer]):
    """Forgets a group and all its committed offsets."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """The connection of a parked request closed: nobody waits for the answer any more."""

    group_id: str
    request: int


JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
"""In the place of a member's epoch: it comes, goes for good, or goes and means to come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat(GroupRequest[ConsumerHeartbeatAnswer]):
    """A member of a consumer group comes, lives, wants something else, or goes (KIP-848).

    None is what it has said before; a full request has none of it.
    """

    creates_topic: ClassVar[bool] = True
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1  # -1: as before
    topics: frozenset[str] | None = None
    regex: str | None = None  # an empty one: no longer
    assignor: str | None = None
    owned: AssignedPartitions | None = None
    may_see: MaySee | None = None  # None: every topic

    @property
    def is_full(self) -> bool:
        """Says everything, as after a request whose answer did not come."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat(GroupRequest[ConsumerHeartbeatAnswer]):
    """A member of a share group comes, lives, wants something else, or goes (KIP-932).

    None is what it has said before.
    """

    creates_topic: ClassVar[bool] = True
    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat(GroupRequest[StreamsHeartbeatAnswer]):
    """A member of a streams group comes, lives, changes, or goes (KIP-1071).

    None is what it has said before.
    """

    creates_topic: ClassVar[bool] = True
    group_id: str
    member_id: str
    epoch: int
    endpoint_epoch: int = -1  # of the endpoints that it was last told
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1  # -1: as before
    topology: Topology | None = None
    active: TaskSet | None = None
    standby: TaskSet | None = None
    warmup: TaskSet | None = None
    process_id: str | None = None
    endpoint: StreamsEndpoint | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    tells_offsets: bool = False  # of its copies of tasks, which nobody here knows what to do with
    shuts_down: bool = False  # the whole application is to end

    @property
    def owned(self) -> Tasks | None:
        """What it says that it has; None when it said nothing."""
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        return Tasks(self.active, self.standby, self.warmup)


class NewState(NamedTuple):
    """The state of a partition that a share coordinator is to begin, or to begin anew."""

    topic_id: UUID
    partition: int
    start_offset: int  # -1: the leader of the partition chooses


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesInitialized(GroupRequest[CodeAnswer]):
    """Share coordinators were asked for the states of some partitions, and have made some."""

    group_id: str
    asked: frozenset[tuple[UUID, int]]
    done: frozenset[tuple[UUID, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareOffsets(GroupRequest[StateTopicsAnswer]):
    """Begins partitions of a share group anew, at these offsets."""

    group_id: str
    states: tuple[NewState, ...]
    names: Mapping[UUID, str]  # of the topics


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStates(GroupRequest[StateTopicsAnswer]):
    """Forgets what a share group has done in some topics, or in all (None)."""

    group_id: str
    topic_ids: frozenset[UUID] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesDeleted(GroupRequest[CodeAnswer]):
    """Share coordinators were asked to forget some topics, and have forgotten some."""

    group_id: str
    asked: frozenset[UUID]
    done: frozenset[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksAssigned:
    """Tasks of a streams group were assigned for one of its epochs, as it had asked for."""

    group_id: str
    epoch: int
    targets: Mapping[str, Tasks]  # by member id


class GroupTimerKind(Enum):
    """What a group waits for."""

    JOIN = "join"
    """All members to join again."""

    SYNC = "sync"
    """All members to fetch their assignment."""

    SESSION = "session"
    """A sign of life of one member."""

    REVOCATION = "revocation"
    """One member of a consumer group to give partitions up, or of a streams group tasks."""

    FIRST_ASSIGNMENT = "first assignment"
    """More members of a streams group that has its first one."""


class GroupTimer(NamedTuple):
    """The name of a timer: one of each kind per group, or per member where a member is named."""

    kind: GroupTimerKind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The time is over."""

    timer: GroupTimer

    @property
    def group_id(self) -> str:
        return self.timer.group_id


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFailed:
    """The records of the last outcome are not in the log; its replies were turned into errors."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets:
    """Look whether something of this group is too old to keep."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics:
    """Some topics were deleted: so are the offsets of this group that belong to them."""

    group_id: str
    topics: frozenset[str] | None = None  # None: those that the image knows


GroupEvent: TypeAlias = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | CommitOffsets
    | CommitTransactionOffsets
    | DeleteOffsets
    | DeleteGroup
    | Abandon
    | TimerFired
    | AppendFailed
    | ExpireOffsets
    | DeleteTopics
    | ConsumerHeartbeat
    | ShareHeartbeat
    | StreamsHeartbeat
    | TasksAssigned
    | StatesInitialized
    | AlterShareOffsets
    | DeleteStates
    | StatesDeleted
)
