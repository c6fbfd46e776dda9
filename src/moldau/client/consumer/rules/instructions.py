"""What the machine of a consumer has its shells do. Values.

Every instruction to ask somebody comes back as exactly one event, an answer or a failure, unless
the machine has asked for the connection to be dropped meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from moldau.client.rules.broker_errors import Backoff, Chance
from moldau.client.rules.cluster_metadata import ClusterMetadata
from moldau.client.rules.offsets import GroupOffset
from moldau.errors import ClientError, KafkaError
from moldau.model import TopicPartition
from moldau.wire.fetch_exchange import Wanted

Failure: TypeAlias = KafkaError | ClientError
PartitionSet: TypeAlias = frozenset[TopicPartition]
OffsetsToCommit: TypeAlias = Mapping[TopicPartition, GroupOffset]


class Identity(NamedTuple):
    """As whom a commit is made; without a generation it is by somebody outside the group."""

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


# To the brokers that lead partitions


class Refresh(NamedTuple):
    """Ask for metadata: of these topics, or of all."""

    topics: Collection[str] | None


class Fetch(NamedTuple):
    """Ask a broker for records; `epochs` are those of the positions that were asked for."""

    broker_id: int
    wanted: Wanted
    epochs: Mapping[TopicPartition, int]
    max_wait_ms: int


class LookUpOffsets(NamedTuple):
    """Ask for offsets by timestamp; of positions of these epochs."""

    timestamps: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int]


class Validate(NamedTuple):
    """Ask the leaders where the epochs that were fetched last end (KIP-320)."""

    fetch_epochs: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int]


# To the group's coordinator


class LookUpCommitted(NamedTuple):
    partitions: Collection[TopicPartition]


class SendJoin(NamedTuple):
    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str


class LearnTopics(NamedTuple):
    """Ask for the metadata of topics that this member has to assign, as the leader."""

    topics: Collection[str]


class SendSync(NamedTuple):
    generation_id: int
    member_id: str
    protocol: str | None
    assignments: Mapping[str, bytes]


class SendHeartbeat(NamedTuple):
    heart: int  # which series of heartbeats it belongs to
    identity: Identity


class SendLeave(NamedTuple):
    """Tell the coordinator that a member goes, if there is one to tell of."""

    member_id: str
    reason: str
    is_last: bool  # `left` is waited for
    drops_connection: bool = False  # a join may be under way; the request would queue behind it


class SendConsumerHeartbeat(NamedTuple):
    """Of the consumer protocol (KIP-848). None is said of what has not changed."""

    beat: int  # which heartbeat it is
    member_id: str
    epoch: int
    instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int | None
    assignor: str | None
    topics: frozenset[str] | None
    owned: frozenset[tuple[UUID, int]] | None
    pattern: str | None = None  # of topics that the broker finds; empty: no pattern any more


class SendConsumerLeave(NamedTuple):
    """Tell the coordinator that a member of a consumer group goes, if there is one to tell of."""

    member_id: str
    epoch: int  # says whether it means to come back
    instance_id: str | None
    is_last: bool  # `left` is waited for


class SendCommit(NamedTuple):
    offsets: OffsetsToCommit
    identity: Identity


# To the program


class FinishCommit(NamedTuple):
    """How a commit ended that the program asked for."""

    commit_id: int
    failure: Failure | None


class WriteLog(NamedTuple):
    is_warning: bool
    message: str


# Time


class TimerKind(Enum):
    METADATA_PAUSE = "the pause between two requests for metadata is over"
    METADATA_AGE = "metadata is old"
    LOOK_UP = "positions can be looked up again"
    BROKER = "a broker can be asked for records again"
    PARTITION = "a partition can be asked for again"
    JOIN = "the pause before joining again is over"
    HEARTBEAT = "a heartbeat is due"
    COMMIT = "a commit can be tried again"
    REMINDER = "the program has to poll, for offsets to be committed"


class ConsumerTimer(NamedTuple):
    kind: TimerKind
    key: Hashable = 0


class ArmTimer(NamedTuple):
    """Have `timer_fired` called after so many seconds. Timers that came too late do nothing."""

    timer: ConsumerTimer
    seconds: float


CoordinatorInstruction: TypeAlias = (
    LookUpCommitted
    | SendCommit
    | SendJoin
    | SendSync
    | SendHeartbeat
    | SendLeave
    | SendConsumerHeartbeat
    | SendConsumerLeave
)
FetcherInstruction: TypeAlias = Fetch | Refresh | LookUpOffsets | Validate | LearnTopics
ConsumerInstruction: TypeAlias = (
    FetcherInstruction | CoordinatorInstruction | FinishCommit | WriteLog | ArmTimer
)


InstructionT = TypeVar("InstructionT")


class MachineTurn(Generic[InstructionT]):
    """The event that is being handled: when, what was known of the cluster, and what comes out.

    Of a consumer's machine, and of a queue's, which has other instructions and timers.
    """

    __slots__ = (
        "_backoff",
        "_chance",
        "cluster",
        "failures",
        "instructions",
        "now",
        "wakes_program",
    )

    def __init__(self, now: float, backoff: Backoff, chance: Chance) -> None:
        self._backoff = backoff
        self._chance = chance
        self.now = now  # seconds that never go back
        self.cluster = ClusterMetadata()
        self.instructions: list[InstructionT] = []
        self.failures: list[Exception] = []  # to be raised by the program's next calls
        self.wakes_program = False  # something has happened that the program may wait for

    def instruct(self, instruction: InstructionT) -> None:
        self.instructions.append(instruction)

    def raise_later(self, failure: Exception) -> None:
        """Have one of the program's next calls raise it."""
        self.failures.append(failure)
        self.wakes_program = True

    def backoff_seconds(self, attempt: int) -> float:
        return self._backoff.delay_seconds(attempt, self._chance)


class ConsumerTurn(MachineTurn[ConsumerInstruction]):
    """Of a consumer's machine."""

    __slots__ = ("now_ms",)

    def __init__(self, now: float, backoff: Backoff, chance: Chance) -> None:
        super().__init__(now, backoff, chance)
        self.now_ms = 0  # wall clock

    def arm(self, kind: TimerKind, key: Hashable, seconds: float) -> None:
        self.instructions.append(ArmTimer(ConsumerTimer(kind, key), seconds))

    def log(self, message: str, *, is_warning: bool = False) -> None:
        self.instructions.append(WriteLog(is_warning, message))
