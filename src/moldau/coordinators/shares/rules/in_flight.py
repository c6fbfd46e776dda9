"""The records of one partition that are on their way through one share group.

They lie between the start offset (SPSO: everything before it is done) and the end offset (nothing
from it on was ever acquired). Who fetches acquires what is Available, for a time; what becomes of
it is said by an acknowledgement, or the time is over.

A change that must survive a failover takes two steps: it begins, and is *pending* until it is
stored; then it is completed, or taken back (SHR-3). What it does in between is nothing: nobody else
gets the records, nobody can acknowledge them again. Locks are not stored. A machine: `now` is
handed in, nothing is opened.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from moldau.coordinators.shares.rules.in_flight_state import (
    InFlightBatch,
    InFlightBatches,
    InFlightRecordState,
    Pending,
)
from moldau.coordinators.shares.rules.records import DeliveryState, StateBatch
from moldau.errors import InvalidRecordStateError, InvalidRequestError, InvariantViolation
from moldau.model import AcknowledgeType as AcknowledgeType  # exported

_NEW = InFlightRecordState(DeliveryState.AVAILABLE, 0)
_NOTHING_THERE = InFlightRecordState(DeliveryState.ARCHIVED, 0)


class Limits(NamedTuple):
    """What the group and the broker allow."""

    max_record_locks: int = 2000
    delivery_count_limit: int = 5
    lock_seconds: float = 30.0


class Wanted(NamedTuple):
    """How much a member wants at once."""

    max_records: int
    batch_size: int  # how many records a range in the answer should have, about
    is_exact: bool = False  # KIP-1206: not one more than `max_records`, though a batch has more


class LogBatch(NamedTuple):
    """A batch as it lies in the log."""

    first_offset: int
    last_offset: int
    position: int
    size_bytes: int
    is_hidden: bool = False  # a marker, or of an aborted transaction: nothing to deliver


class AcquiredRange(NamedTuple):
    """Records that a member has from now on, with how often they were given to somebody."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acquisition(NamedTuple):
    """What a member got of the batches that it was offered."""

    ranges: tuple[AcquiredRange, ...]
    batches: tuple[LogBatch, ...]  # those with a record of the ranges
    record_count: int
    is_complete: bool  # no more records should be looked for
    next_offset: int  # up to here the batches were looked at


class DeadRange(NamedTuple):
    """Records that come to an end without having been accepted."""

    first: int
    end: int
    delivery_count: int
    is_rejected: bool  # otherwise they were delivered too often


class DeliveryChange(NamedTuple):
    """Something to be stored."""

    id: int
    ranges: tuple[tuple[int, int], ...]  # first and end offsets, in order
    dead: tuple[DeadRange, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.ranges


class PlannedWrite(NamedTuple):
    """What the store has to hear for changes to survive."""

    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


class InFlight:
    """See the module. `start_offset` never goes back (SHR-2)."""

    def __init__(self, start_offset: int, state_batches: Iterable[StateBatch] = ()) -> None:
        self._runs = InFlightBatches(start_offset)
        self._available_from = start_offset  # nothing before it is Available
        self._last_change_id = 0
        for first, last, state, count in sorted(state_batches):
            if last < self._runs.end:
                continue
            if first > self._runs.end:
                self._runs.append(first, _NEW)  # acquired once, perhaps, and never acknowledged
            self._runs.append(last + 1, InFlightRecordState(DeliveryState(state), count))
        self._advance_start()

    # Facts

    @property
    def start_offset(self) -> int:
        return self._runs.start

    @property
    def end_offset(self) -> int:
        return self._runs.end

    @property
    def runs(self) -> Iterator[InFlightBatch]:
        return iter(self._runs)

    def find_available(self) -> int:
        """The first offset to look for records at; the end offset when all are taken."""
        for run in self._runs.between(self._available_from, self.end_offset):
            if run.record_state.is_available:
                self._available_from = run.first
                return run.first
        self._available_from = self.end_offset
        return self.end_offset

    def has_room(self, limits: Limits) -> bool:
        """Whether records may be acquired that nobody has had yet (SHR-6)."""
        return self.end_offset - self.start_offset < limits.max_record_locks

    def next_deadline(self) -> float:
        """When the next lock is over; infinity when there is none."""
        return min(
            (run.record_state.deadline for run in self._runs if run.record_state.pending is None),
            default=math.inf,
        )

    # Acquiring

    def acquire(
        self,
        member: str,
        offset: int,
        batches: Iterable[LogBatch],
        wanted: Wanted,
        limits: Limits,
        now: float,
    ) -> Acquisition:
        """Give a member what is Available in batches that begin at or after an offset, or hold it.

        Looks at no more batches than it needs. Ends where an offset follows that is not Available.
        """
        record_state = _Locking(member, now + limits.lock_seconds)
        taken = _Taken(wanted)
        used: list[LogBatch] = []
        position, is_complete = offset, False
        for batch in batches:
            if batch.first_offset > position and not self._hide(
                position, batch.first_offset, limits
            ):
                is_complete = True
                break
            first, end = max(position, batch.first_offset), batch.last_offset + 1
            if batch.is_hidden:
                is_complete = not self._hide(first, end, limits)
            else:
                before = taken.record_count
                is_complete = self._take(first, end, record_state, taken, limits)
                if taken.record_count > before:
                    used.append(batch)
            position = max(position, end)
            if is_complete or taken.is_enough or self._is_taken(position):
                break
        self._advance_start()
        is_complete = is_complete or taken.is_enough
        return Acquisition(
            tuple(taken.ranges), tuple(used), taken.record_count, is_complete, position
        )

    def _is_taken(self, offset: int) -> bool:
        return any(
            not run.record_state.is_available for run in self._runs.between(offset, offset + 1)
        )

    def _hide(self, first: int, end: int, limits: Limits) -> bool:
        """There is nothing to deliver in a range; False when it is out of reach for now."""
        self._runs.change(
            first,
            end,
            lambda record_state: _NOTHING_THERE if record_state.is_available else record_state,
        )
        if end > self.end_offset:
            if not self.has_room(limits):
                return False
            self._runs.append(end, _NOTHING_THERE)
        return True

    def _take(self, first: int, end: int, lock: _Locking, taken: _Taken, limits: Limits) -> bool:
        """Lock what is Available in one batch; True when nothing more should be taken."""
        if end > self.end_offset:
            if self.has_room(limits):
                self._runs.append(self._end_of_new(first, end, taken, limits), _NEW)
            elif first >= self.end_offset:
                return True
        locked: list[InFlightBatch] = []
        is_complete = False
        for run in self._runs.between(first, end):
            if not run.record_state.is_available:
                continue
            most = _most_together(run, limits)
            if most is not None and taken.record_count:
                is_complete = True  # what has failed often goes alone
                break
            count = run.size if most is None else min(most, run.size)
            if taken.wanted.is_exact:
                count = min(count, taken.wanted.max_records - taken.record_count)
            if count > 0:
                locked.append(lock.lock(run.first, run.first + count, run.record_state))
                taken.add(locked[-1])
            if most is not None or count < run.size:
                is_complete = True
                break
        self._runs.replace(locked)
        return is_complete

    def _end_of_new(self, first: int, end: int, taken: _Taken, limits: Limits) -> int:
        """Where the records end that may come in with a batch: a whole one, unless exactly so
        many are wanted."""
        if not taken.wanted.is_exact:
            return end
        room = limits.max_record_locks - (self.end_offset - self.start_offset)
        left = taken.wanted.max_records - taken.record_count
        return max(self.end_offset + 1, min(end, max(first, self.end_offset) + min(room, left)))

    # What becomes of them

    def acknowledge(
        self, member: str, ranges: Sequence[AcknowledgedRange], limits: Limits, now: float
    ) -> DeliveryChange:
        """All of it, or nothing: raises when a record is not the member's (SHR-4).

        What is before the start offset is done already, whoever did it. A renewal counts at once
        and is not stored.
        """
        change = _Change(self._next_change_id())
        deadline = now + limits.lock_seconds
        for first, end, kind in ranges:
            for run in self._require_acquired(member, first, end):
                if kind is AcknowledgeType.RENEW:
                    change.runs.append(
                        InFlightBatch(run.first, run.end, run.record_state.until(deadline))
                    )
                    continue
                target = _target_of(kind, run.record_state, limits)
                if target.state is DeliveryState.ARCHIVED and kind is not AcknowledgeType.GAP:
                    change.bury(run, target, is_rejected=kind is AcknowledgeType.REJECT)
                change.add_pending(run, target)
        return self._make(change)

    def _require_acquired(self, member: str, first: int, end: int) -> Iterator[InFlightBatch]:
        if end > self.end_offset and end > self.start_offset:
            if self.start_offset == self.end_offset:
                raise InvalidRecordStateError(f"offsets {first} to {end - 1} are not acquired")
            raise InvalidRequestError(
                f"offsets {first} to {end - 1} are past the acquired records, which end before "
                f"{self.end_offset}"
            )
        for run in self._runs.between(max(first, self.start_offset), end):
            if run.record_state.member != member or run.record_state.pending is not None:
                raise InvalidRecordStateError(
                    f"offsets {run.first} to {run.end - 1} are not acquired by the member"
                )
            yield run

    def release(self, member: str, limits: Limits) -> DeliveryChange:
        """The member has gone: what it had is for others, or was delivered too often. The delivery
        is counted, as in Kafka 4.3: the member may have gone because of a record."""

        def is_concerned(record_state: InFlightRecordState) -> bool:
            return record_state.member == member and record_state.pending is None

        return self._give_back(is_concerned, limits)

    def expire(self, now: float, limits: Limits) -> DeliveryChange:
        """Locks are over (SHR-5): records are Available again, or were delivered too often."""

        def is_concerned(record_state: InFlightRecordState) -> bool:
            return record_state.deadline <= now and record_state.pending is None

        return self._give_back(is_concerned, limits)

    def _give_back(
        self, is_concerned: Callable[[InFlightRecordState], bool], limits: Limits
    ) -> DeliveryChange:
        """What is Available is so at once: it was not stored otherwise. What comes to its end
        does so when that is stored."""
        change = _Change(self._next_change_id())
        for run in self._runs:
            if not is_concerned(run.record_state):
                continue
            target = _target_of(AcknowledgeType.RELEASE, run.record_state, limits)
            if target.is_available:
                change.ranges.append((run.first, run.end))
                change.runs.append(InFlightBatch(run.first, run.end, target))
            else:
                change.bury(run, target, is_rejected=False)
                change.add_pending(run, target)
        return self._make(change)

    def _make(self, change: _Change) -> DeliveryChange:
        """Let it begin, all of it at once."""
        self._replace(change.runs)
        return DeliveryChange(change.id, _joined(change.ranges), tuple(change.dead))

    def complete(self, change: DeliveryChange) -> None:
        """It is stored: what is final is given to nobody again (SHR-8)."""
        self._replace(
            [
                InFlightBatch(
                    run.first, run.end, InFlightRecordState(pending.state, pending.delivery_count)
                )
                for run, pending in self._pending_in(change)
            ]
        )
        self._advance_start()

    def take_back(self, change: DeliveryChange) -> None:
        """It is not stored, as far as we know: the records are acquired as before."""
        self._replace(
            [
                InFlightBatch(run.first, run.end, run.record_state.about_to(None))
                for run, _ in self._pending_in(change)
            ]
        )

    def _pending_in(self, change: DeliveryChange) -> Iterator[tuple[InFlightBatch, Pending]]:
        for first, end in change.ranges:
            for run in self._runs.between(first, end):
                pending = run.record_state.pending
                if pending is not None and pending.change_id == change.id:
                    yield run, pending

    def _replace(self, runs: Sequence[InFlightBatch]) -> None:
        self._runs.replace(runs)
        for run in runs:
            if run.record_state.is_available:
                self._available_from = min(self._available_from, run.first)
                break  # the others are behind it

    def _next_change_id(self) -> int:
        self._last_change_id += 1
        return self._last_change_id

    # The start

    def forget_before(self, log_start_offset: int) -> None:
        """Records were deleted from the log; whoever has them may keep them."""
        self._runs.drop_before(log_start_offset)
        self._advance_start()

    def _advance_start(self) -> None:
        """Everything before the first record that is not done is done (SHR-2)."""
        former = self._runs.start
        done = former
        for run in self._runs:
            if not run.record_state.is_final:
                break
            done = run.end
        self._runs.drop_before(done)
        if self._runs.start < former:
            raise InvariantViolation(f"SHR-2: start offset {former} goes back")
        self._available_from = max(self._available_from, self._runs.start)

    # Storing

    def plan_write(self, changes: Sequence[DeliveryChange]) -> PlannedWrite:
        """What to store for changes, as it will be when they are completed together.

        Final records right behind the start offset are told by a higher start offset alone.
        """
        ids = frozenset(change.id for change in changes)
        start = self.start_offset
        complete_count = self._runs.final_count
        for change in changes:
            for run, pending in self._pending_in(change):
                complete_count += run.size if pending.state.is_final else 0
        for run in self._runs:
            if not _stored(run.record_state, ids).is_final:
                break
            start = run.end
            complete_count -= run.size
        batches: list[StateBatch] = []
        for first, end in _joined(part for change in changes for part in change.ranges):
            for run in self._runs.between(max(first, start), end):
                _add(batches, run.first, run.end, _stored(run.record_state, ids))
        return PlannedWrite(start, complete_count, tuple(batches))


class _Locking(NamedTuple):
    """Who gets records, and until when."""

    member: str
    deadline: float

    def lock(self, first: int, end: int, record_state: InFlightRecordState) -> InFlightBatch:
        """One more delivery (SHR-10)."""
        count = record_state.delivery_count + 1
        return InFlightBatch(
            first,
            end,
            InFlightRecordState(DeliveryState.ACQUIRED, count, self.member, self.deadline),
        )


class _Change:
    """A change that is about to begin: what it makes of runs, in order."""

    def __init__(self, change_id: int) -> None:
        self.id = change_id
        self.runs: list[InFlightBatch] = []
        self.ranges: list[tuple[int, int]] = []  # of them, those to be stored
        self.dead: list[DeadRange] = []

    def add_pending(self, run: InFlightBatch, target: InFlightRecordState) -> None:
        """It becomes that when the change is stored."""
        pending = Pending(self.id, target.state, target.delivery_count)
        self.runs.append(InFlightBatch(run.first, run.end, run.record_state.about_to(pending)))
        self.ranges.append((run.first, run.end))

    def bury(self, run: InFlightBatch, target: InFlightRecordState, *, is_rejected: bool) -> None:
        self.dead.append(DeadRange(run.first, run.end, target.delivery_count, is_rejected))


class _Taken:
    """What a member has been given so far."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.ranges: list[AcquiredRange] = []
        self.record_count = 0

    @property
    def is_enough(self) -> bool:
        return self.record_count >= self.wanted.max_records

    def add(self, locked: InFlightBatch) -> None:
        first, end, delivery_count = locked.first, locked.end, locked.record_state.delivery_count
        self.record_count += end - first
        if self.ranges:
            before, last, count = self.ranges[-1]
            is_small = last - before + 1 < self.wanted.batch_size
            if last + 1 == first and count == delivery_count and is_small:
                self.ranges[-1] = AcquiredRange(before, end - 1, count)
                return
        self.ranges.append(AcquiredRange(first, end - 1, delivery_count))


def _most_together(run: InFlightBatch, limits: Limits) -> int | None:
    """How many records that have failed before are delivered together; None for any number.

    In a batch that fails as a whole one record may be to blame. From half of the attempts on the
    batch gets smaller, and the last attempt is made with one record alone (as Kafka does).
    """
    failures = run.record_state.delivery_count
    suspicious = max(2, math.ceil(limits.delivery_count_limit / 2))
    if failures < suspicious:
        return None
    if failures >= limits.delivery_count_limit - 1:
        return 1
    return max(1, run.size >> (failures - suspicious + 1))


def _target_of(
    kind: AcknowledgeType, record_state: InFlightRecordState, limits: Limits
) -> InFlightRecordState:
    """What an acquired record becomes; one that was delivered often enough is not released
    (SHR-5)."""
    if kind is AcknowledgeType.ACCEPT:
        return InFlightRecordState(DeliveryState.ACKNOWLEDGED, record_state.delivery_count)
    if (
        kind is AcknowledgeType.RELEASE
        and record_state.delivery_count < limits.delivery_count_limit
    ):
        return InFlightRecordState(DeliveryState.AVAILABLE, record_state.delivery_count)
    return InFlightRecordState(DeliveryState.ARCHIVED, record_state.delivery_count)


def _stored(record_state: InFlightRecordState, completed: frozenset[int]) -> InFlightRecordState:
    """A record as it is stored. A lock is not: whoever loads the state finds it Available, and
    the delivery that is going on is not counted."""
    if record_state.pending is not None and record_state.pending.change_id in completed:
        return InFlightRecordState(record_state.pending.state, record_state.pending.delivery_count)
    if record_state.state is DeliveryState.ACQUIRED:
        return InFlightRecordState(DeliveryState.AVAILABLE, record_state.delivery_count - 1)
    return record_state


def _add(
    batches: list[StateBatch], first: int, end: int, record_state: InFlightRecordState
) -> None:
    if batches:
        before, last, state, count = batches[-1]
        if last + 1 == first and (state, count) == (
            record_state.state,
            record_state.delivery_count,
        ):
            batches[-1] = StateBatch(before, end - 1, state, count)
            return
    batches.append(StateBatch(first, end - 1, record_state.state, record_state.delivery_count))


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges in order, without overlap."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return tuple(joined)


class AcknowledgementBatch(NamedTuple):
    """Offsets, and one type for all or one for each."""

    first_offset: int
    last_offset: int  # inclusive
    types: Sequence[int]


class AcknowledgedRange(NamedTuple):
    """Offsets with one type."""

    first: int
    end: int  # exclusive
    type: AcknowledgeType


def split_by_type(
    batches: Sequence[AcknowledgementBatch], *, may_renew: bool
) -> tuple[AcknowledgedRange, ...]:
    """The ranges of all batches, in order; raises InvalidRequestError as Kafka would."""
    last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    ranges: list[AcknowledgedRange] = []
    end = -1
    for first_offset, last_offset, types in batches:
        count = last_offset - first_offset + 1
        if count < 1 or first_offset < 0:
            raise InvalidRequestError(f"offsets {first_offset} to {last_offset} are no range")
        if first_offset < end:
            raise InvalidRequestError(
                f"offset {first_offset} is acknowledged twice, or out of order"
            )
        if len(types) not in (1, count):
            raise InvalidRequestError(f"{len(types)} types for {count} offsets; one, or one each")
        if not all(0 <= one <= last_type for one in types):
            raise InvalidRequestError(f"acknowledge types {sorted(set(types))}: 0 to {last_type:d}")
        end = last_offset + 1
        if len(types) == 1:
            ranges.append(AcknowledgedRange(first_offset, end, AcknowledgeType(types[0])))
        else:
            ranges += _split_types(first_offset, types)
    return tuple(ranges)


def _split_types(first: int, types: Sequence[int]) -> list[AcknowledgedRange]:
    ranges = []
    for one, alike in groupby(types):
        end = first + sum(1 for _ in alike)
        ranges.append(AcknowledgedRange(first, end, AcknowledgeType(one)))
        first = end
    return ranges


# What only the leader of a partition knows: DescribeShareGroupOffsets tells where a group starts
# and how much is left, and nothing of what members hold.


class DeliveryCensus(NamedTuple):
    """Counts of offsets between the start and the end of what is in flight."""

    acquired: int  # members have them
    waiting: int  # to be delivered again
    done: int  # acknowledged or archived, behind one that is not
    redelivered: int  # of those acquired or waiting: delivered more than once
    most_deliveries: int  # of one of them
    oldest_offset: int | None  # that is not done with; None where all are
    members: Mapping[str, int]  # how many each has acquired
    lock_seconds: float | None  # until the next lock is over


def take_census(runs: Iterable[InFlightBatch], now: float) -> DeliveryCensus:
    acquired = waiting = done = redelivered = most = 0
    oldest: int | None = None
    members: Counter[str] = Counter()
    deadline = math.inf
    for first, end, record_state in runs:
        count = end - first
        if record_state.is_final:
            done += count
            continue
        oldest = first if oldest is None else oldest
        most = max(most, record_state.delivery_count)
        redelivered += count if record_state.delivery_count > 1 else 0
        if record_state.is_available:
            waiting += count
        else:
            acquired += count
            members[record_state.member] += count
            deadline = min(deadline, record_state.deadline)
    left = None if math.isinf(deadline) else max(0.0, deadline - now)
    return DeliveryCensus(acquired, waiting, done, redelivered, most, oldest, dict(members), left)


# Nothing was ever delivered that was not committed, so a state that speaks of offsets behind the
# end of its leader's log speaks of records that are gone. Others will get these offsets, and have
# to be delivered.


class CutState(NamedTuple):
    """A state that fits its log, and what has to be written for the store to say the same."""

    start_offset: int
    batches: tuple[StateBatch, ...]
    rewritten: tuple[StateBatch, ...]

    @property
    def complete_count(self) -> int:
        return sum(
            one.last_offset - one.first_offset + 1
            for one in self.batches
            if one.delivery_state.is_final
        )


def cut_to_log(start_offset: int, batches: Iterable[StateBatch], end_offset: int) -> CutState:
    """What is done behind the end is Available again. It counts as one more delivery: of two words
    on an offset the store takes the one with more deliveries."""
    kept: list[StateBatch] = []
    rewritten: list[StateBatch] = []
    for batch in batches:
        for part in _split(batch, end_offset):
            if part.first_offset < end_offset or not part.delivery_state.is_final:
                kept.append(part)
            else:
                again = part._replace(
                    delivery_state=DeliveryState.AVAILABLE, delivery_count=part.delivery_count + 1
                )
                kept.append(again)
                rewritten.append(again)
    return CutState(min(start_offset, end_offset), tuple(kept), tuple(rewritten))


def _split(batch: StateBatch, offset: int) -> Iterator[StateBatch]:
    if batch.first_offset < offset <= batch.last_offset:
        yield batch._replace(last_offset=offset - 1)
        yield batch._replace(first_offset=offset)
    else:
        yield batch
