"""Records that a broker has locked for this client, from their arrival until the broker knows what
became of them. A rule.

    READY --taken--> RUNNING --accepted, released, rejected--> FINISHED --told--> OVER
      |                 |                                          |
      +-----------------+---- the lock is gone ------> LOST <------+ refused

A record that is ready waits for somebody to take it. Its lock runs already: where the broker can
renew locks they are renewed, and a record whose lock has run out is not given any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord, decode_batch, split_batches
from moldau.client.consumer.rules.instructions import MachineTurn, Refresh, WriteLog
from moldau.errors import InvariantViolation, KafkaError, MoldauError
from moldau.model import AcknowledgeType, TopicPartition


class InFlightState(IntEnum):
    """Where a record is. Numbers, since those are looked up quickly, several times a record."""

    READY = 0
    """Came, and waits to be taken."""

    RUNNING = 1
    """The program has it."""

    FINISHED = 2
    """The program has said what became of it; the broker does not know yet."""

    OVER = 3
    """The broker knows."""

    LOST = 4
    """The lock is gone: the record is delivered again, whatever the program says of it."""


IN_FLIGHT_MOVES: Final[dict[InFlightState, frozenset[InFlightState]]] = {
    InFlightState.READY: frozenset(
        {InFlightState.RUNNING, InFlightState.FINISHED, InFlightState.LOST}
    ),
    InFlightState.RUNNING: frozenset({InFlightState.FINISHED, InFlightState.LOST}),
    InFlightState.FINISHED: frozenset({InFlightState.OVER, InFlightState.LOST}),
    InFlightState.OVER: frozenset(),
    InFlightState.LOST: frozenset(),
}
"""READY to FINISHED: given back without having been taken."""


class InFlightRecord:
    """One of them. Compared by identity: the same record may be acquired again later."""

    __slots__ = (
        "broker_id",
        "deadline",
        "delivery_count",
        "failure",
        "is_kept",
        "is_renewing",
        "is_watched",
        "kind",
        "partition",
        "record",
        "state",
    )

    def __init__(
        self,
        record: ConsumerRecord,
        partition: tuple[UUID, int],
        broker_id: int,
        delivery_count: int,
        deadline: float,
    ) -> None:
        self.record = record
        self.partition = partition
        self.broker_id = broker_id  # who has locked it, and has to hear what became of it
        self.delivery_count = delivery_count  # with this delivery
        self.deadline = deadline  # the lock holds at least until then
        self.state = InFlightState.READY
        self.kind: AcknowledgeType | None = None  # what the program has said; from FINISHED on
        self.failure: Exception | None = None  # why it is LOST
        self.is_kept = False  # its lock is renewed for as long as the program has it
        self.is_renewing = False  # a renewal is asked for, or under way
        self.is_watched = False  # somebody waits to hear that the acknowledgement succeeded

    def __repr__(self) -> str:
        return f"<{self.describe()} {self.state.name.lower()}>"

    def describe(self) -> str:
        return f"{self.record.topic}-{self.record.partition} at offset {self.record.offset}"

    def move(self, state: InFlightState) -> None:
        if state not in IN_FLIGHT_MOVES[self.state]:
            raise InvariantViolation(
                f"{self.describe()} cannot move from {self.state!r} to {state!r}"
            )
        self.state = state


class AcquiredOffsets(NamedTuple):
    """Offsets from `first_offset` to `last_offset`, that one included, delivered so often."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Unpacked(NamedTuple):
    """What an answer has of one partition."""

    records: list[tuple[ConsumerRecord, int]]  # with their delivery counts
    gaps: list[int]  # offsets that were acquired without there being a record
    unreadable: list[int]  # offsets of records that cannot be read
    failure: MoldauError | None  # what is wrong with those


def unpack_records(
    data: memoryview,
    partition: TopicPartition,
    acquired: Sequence[AcquiredOffsets],
    *,
    check_crcs: bool,
) -> Unpacked:
    """The records that were acquired. The bytes are whole batches, which may have others too."""
    if not acquired:
        return Unpacked([], [], [], None)
    failure: MoldauError | None = None
    found: list[ConsumerRecord] = []
    unreadable: set[int] = set()
    from_offset, end_offset = acquired[0].first_offset, acquired[-1].last_offset + 1
    try:
        batches, next_offset, _ = split_batches(data, from_offset)
    except MoldauError as error:
        return Unpacked([], [], [one for few in acquired for one in _offsets_of(few)], error)
    # Nobody can say of what did not come that it does not exist.
    unreadable.update(range(next_offset, end_offset))
    for batch in batches:
        try:
            found += decode_batch(batch, partition, from_offset, check_crc=check_crcs)
        except MoldauError as error:
            header = batch.header
            unreadable.update(range(header.base_offset, header.last_offset + 1))
            failure = error
    return _sort_out(found, acquired, unreadable, failure)


def _sort_out(
    found: Sequence[ConsumerRecord],
    acquired: Sequence[AcquiredOffsets],
    unreadable: set[int],
    failure: MoldauError | None,
) -> Unpacked:
    records: list[tuple[ConsumerRecord, int]] = []
    gaps: list[int] = []
    refused: list[int] = []
    coming: Iterator[ConsumerRecord] = iter(found)
    record = next(coming, None)
    for few in acquired:
        while record is not None and record.offset < few.first_offset:
            record = next(coming, None)
        for offset in _offsets_of(few):
            if record is not None and record.offset == offset:
                records.append((record, few.delivery_count))
                record = next(coming, None)
            elif offset in unreadable:
                refused.append(offset)
            else:
                gaps.append(offset)
    return Unpacked(records, gaps, refused, failure)


def _offsets_of(few: AcquiredOffsets) -> range:
    return range(few.first_offset, few.last_offset + 1)


# A range says the same of all its offsets: a thousand records that were accepted one by one are one
# range. What is said twice counts as it was said last.


class AcknowledgedOffsets(NamedTuple):
    """Both ends belong to it."""

    first_offset: int
    last_offset: int
    kind: AcknowledgeType


def to_ranges(said: Iterable[tuple[int, AcknowledgeType]]) -> list[AcknowledgedOffsets]:
    """Ranges in order of their offsets, as few as possible; an offset is in one of them at most."""
    ranges: list[AcknowledgedOffsets] = []
    for offset, kind in sorted(dict(said).items()):
        if ranges and ranges[-1].last_offset + 1 == offset and ranges[-1].kind is kind:
            ranges[-1] = AcknowledgedOffsets(ranges[-1].first_offset, offset, kind)
        else:
            ranges.append(AcknowledgedOffsets(offset, offset, kind))
    return ranges


# What the machine has its shells do, and what they tell it. Every instruction to ask somebody comes
# back as exactly one event, an answer or a failure.


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

    record: InFlightRecord
    is_renewal: bool
    failure: Exception | None


# Time


class ShareTimerKind(Enum):
    HEARTBEAT = "a heartbeat is due"
    METADATA_PAUSE = "the pause between two requests for metadata is over"
    METADATA_AGE = "metadata is old"
    BROKER = "a broker can be asked again"
    PARTITION = "a partition can be asked for again"
    LOCKS = "locks are to be looked at"


class ShareTimer(NamedTuple):
    kind: ShareTimerKind
    key: Hashable = 0


class ArmShareTimer(NamedTuple):
    """Have `timer_fired` called after so many seconds. Timers that came too late do nothing."""

    timer: ShareTimer
    seconds: float


ShareInstruction: TypeAlias = (
    SendShareHeartbeat
    | SendShareLeave
    | SendShareFetch
    | SendShareAcknowledge
    | Refresh
    | FinishAcknowledgement
    | WriteLog
    | ArmShareTimer
)


class ShareTurn(MachineTurn[ShareInstruction]):
    """Of the machine of a queue's client."""

    __slots__ = ()

    def arm(self, kind: ShareTimerKind, key: Hashable, seconds: float) -> None:
        self.instructions.append(ArmShareTimer(ShareTimer(kind, key), seconds))

    def log(self, message: str, *, is_warning: bool = False) -> None:
        self.instructions.append(WriteLog(is_warning, message))


# None is given that is not locked for this client any more, as far as it can know: its lock is over
# by our own clock, the session with its broker was lost, or its partition is not ours any more.


class Taken(NamedTuple):
    """What the program gets, and what it does not get because its lock is over."""

    records: list[InFlightRecord]
    expired: list[InFlightRecord]


class ReadyRecords:
    """In the order in which they came."""

    def __init__(self, now: float) -> None:
        self._records: deque[InFlightRecord] = deque()
        self.moved_at = now  # when records came last, or were taken

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[InFlightRecord]:
        return iter(self._records)

    def add(self, records: Iterable[InFlightRecord], now: float) -> None:
        self._records += records
        self.moved_at = now

    def take_records(self, limit: int, now: float) -> Taken:
        """As many as there are, up to the limit: RUNNING from now on."""
        taken = Taken([], [])
        ready = self._records
        while ready and len(taken.records) < limit:
            record = ready.popleft()
            if record.state is not InFlightState.READY:
                continue
            if record.deadline <= now:  # somebody else has it, or will
                record.move(InFlightState.LOST)
                taken.expired.append(record)
                continue
            record.move(InFlightState.RUNNING)
            taken.records.append(record)
        if taken.records:
            self.moved_at = now
        return taken

    def keep_ready(self) -> None:
        """Forget those that were lost, or given back."""
        self._records = deque(one for one in self._records if one.state is InFlightState.READY)

    def clear(self) -> None:
        self._records.clear()
