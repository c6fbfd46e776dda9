"""What the machine of a queue's client has its shells do, and what they tell it. Values.

Every instruction to ask somebody comes back as exactly one event, an answer or a failure.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from moldau.client.rules.acquired_records import AcquiredOffsets, AcquiredRecord
from moldau.client.rules.consumer_instructions import MachineTurn, Refresh, WriteLog
from moldau.client.rules.share_acknowledgements import AcknowledgedOffsets
from moldau.errors import KafkaError

TopicIdPartition: TypeAlias = tuple[UUID, int]
"""A partition as share groups name it on the wire."""

AcknowledgedRanges: TypeAlias = Mapping[TopicIdPartition, Sequence[AcknowledgedOffsets]]


class AcquireMode(IntEnum):
    """How strictly a broker takes the number of records that was asked for (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole batches: the last one may have more records than were asked for."""

    RECORD_LIMIT = 1
    """Not one more."""


# To the group's coordinator


class SendShareHeartbeat(NamedTuple):
    """None is said of topics that have not changed."""

    beat: int  # which heartbeat it is
    epoch: int
    rack: str | None
    topics: frozenset[str] | None


class SendShareLeave(NamedTuple):
    """Tell the coordinator that the member goes, if it was told that it came."""

    is_told: bool


# To the brokers that lead partitions


class SendShareFetch(NamedTuple):
    """Ask for records, and acknowledge others on the way."""

    broker_id: int
    session_epoch: int
    added: Sequence[TopicIdPartition]
    forgotten: Sequence[TopicIdPartition]
    acknowledged: AcknowledgedRanges
    max_wait_ms: int
    max_records: int
    mode: AcquireMode
    sent_at: float


class SendShareAcknowledge(NamedTuple):
    """Acknowledge records, or renew their locks, and ask for nothing."""

    broker_id: int
    session_epoch: int
    acknowledged: AcknowledgedRanges
    has_renewals: bool
    sent_at: float


class SharePartitionAnswer(NamedTuple):
    """What a broker says of one partition: of its records, and of what was acknowledged."""

    partition: TopicIdPartition
    failure: KafkaError | None = None
    acknowledge_failure: KafkaError | None = None
    records: memoryview = memoryview(b"")
    acquired: Sequence[AcquiredOffsets] = ()


class ShareAnswer(NamedTuple):
    """To either request. `lock_ms` is None where the version does not tell it."""

    partitions: Sequence[SharePartitionAnswer]
    lock_ms: int | None
    can_renew: bool  # the broker serves the version that has renewals and strict limits


# To the program


class FinishAcknowledgement(NamedTuple):
    """How an acknowledgement, or a renewal, ended."""

    record: AcquiredRecord
    is_renewal: bool
    failure: Exception | None


# Time


class QueueTimerKind(Enum):
    HEARTBEAT = "a heartbeat is due"
    METADATA_PAUSE = "the pause between two requests for metadata is over"
    METADATA_AGE = "metadata is old"
    BROKER = "a broker can be asked again"
    PARTITION = "a partition can be asked for again"
    LOCKS = "locks are to be looked at"


class QueueTimer(NamedTuple):
    kind: QueueTimerKind
    key: Hashable = 0


class ArmQueueTimer(NamedTuple):
    """Have `timer_fired` called after so many seconds. Timers that came too late do nothing."""

    timer: QueueTimer
    seconds: float


QueueInstruction: TypeAlias = (
    SendShareHeartbeat
    | SendShareLeave
    | SendShareFetch
    | SendShareAcknowledge
    | Refresh
    | FinishAcknowledgement
    | WriteLog
    | ArmQueueTimer
)


class QueueTurn(MachineTurn[QueueInstruction]):
    """Of the machine of a queue's client."""

    __slots__ = ()

    def arm(self, kind: QueueTimerKind, key: Hashable, seconds: float) -> None:
        self.instructions.append(ArmQueueTimer(QueueTimer(kind, key), seconds))

    def log(self, message: str, *, is_warning: bool = False) -> None:
        self.instructions.append(WriteLog(is_warning, message))
