"""Records that a broker has locked for this client, from their arrival until the broker knows what
became of them. A rule.

    READY --taken--> RUNNING --accepted, released, rejected--> FINISHED --told--> OVER
      |                 |                                          |
      +-----------------+---- the lock is gone ------> LOST <------+ refused

A record that is ready waits for somebody to take it. Its lock runs already: where the broker can
renew locks they are renewed, and a record whose lock has run out is not given any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.fetched_batches import decode_batch, split_batches
from moldau.errors import InvariantViolation, MoldauError
from moldau.model import AcknowledgeType, TopicPartition


class RecordStage(IntEnum):
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


RECORD_MOVES: Final[dict[RecordStage, frozenset[RecordStage]]] = {
    RecordStage.READY: frozenset({RecordStage.RUNNING, RecordStage.FINISHED, RecordStage.LOST}),
    RecordStage.RUNNING: frozenset({RecordStage.FINISHED, RecordStage.LOST}),
    RecordStage.FINISHED: frozenset({RecordStage.OVER, RecordStage.LOST}),
    RecordStage.OVER: frozenset(),
    RecordStage.LOST: frozenset(),
}
"""READY to FINISHED: given back without having been taken."""


class AcquiredRecord:
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
        "stage",
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
        self.stage = RecordStage.READY
        self.kind: AcknowledgeType | None = None  # what the program has said; from FINISHED on
        self.failure: Exception | None = None  # why it is LOST
        self.is_kept = False  # its lock is renewed for as long as the program has it
        self.is_renewing = False  # a renewal is asked for, or under way
        self.is_watched = False  # somebody waits to hear that the acknowledgement succeeded

    def __repr__(self) -> str:
        return f"<{self.describe()} {self.stage.name.lower()}>"

    def describe(self) -> str:
        return f"{self.record.topic}-{self.record.partition} at offset {self.record.offset}"

    def move(self, stage: RecordStage) -> None:
        if stage not in RECORD_MOVES[self.stage]:
            raise InvariantViolation(
                f"{self.describe()} cannot move from {self.stage!r} to {stage!r}"
            )
        self.stage = stage


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


def unpack(
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
