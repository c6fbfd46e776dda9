"""The share partitions of one partition of `__share_group_state`: the machine behind a shard.

`handle` tells what an event leads to; `apply` takes a record that was logged and is the only way to
state. A write is an update of the last snapshot; after enough of them it is a snapshot itself, so
that a log is loaded quickly and what is before the oldest snapshot can be deleted (`needed_from`).

Two epochs fence (SHS-2): the leader's, which grows with every leader of the partition that reads
or writes, and the state's, which the group coordinator raises when it begins the state anew.

The model is Kafka's `ShareCoordinatorShard`. A rule.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinators.shares.rules.records import (
    NO_COUNT,
    NO_START_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateRecord,
    ShareStateWrite,
    ShareUpdate,
    SnapshotRecord,
    StateBatch,
    UpdateRecord,
)
from moldau.errors import ErrorCode


class InitializeState(NamedTuple):
    """The group coordinator begins a share partition, or begins it anew at an offset."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    """A leader takes the partition over: whoever led it before may write no more."""

    key: SharePartitionKey
    leader_epoch: int


class WriteState(NamedTuple):
    """A leader tells what has changed."""

    key: SharePartitionKey
    change: ShareStateWrite


class DeleteState(NamedTuple):
    """The group coordinator ends a share partition."""

    key: SharePartitionKey


class SummarizeState(NamedTuple):
    """Somebody wants to know how far a share partition has come."""

    key: SharePartitionKey
    leader_epoch: int


class SnapshotState(NamedTuple):
    """Nothing has been written for long: the log may forget what is before a new snapshot."""

    key: SharePartitionKey


StateEvent: TypeAlias = (
    InitializeState | ReadState | WriteState | DeleteState | SummarizeState | SnapshotState
)


class StateAnswer(NamedTuple):
    """To any of them; what an answer has no use for is as it is here."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()


class StateOutcome(NamedTuple):
    """The records are appended and applied, and then the answer goes."""

    answer: StateAnswer
    records: tuple[ShareStateRecord, ...] = ()


NO_LEADER_EPOCH: Final = -1

HasPartition = Callable[[SharePartitionKey], bool]
"""Whether the topic is there and has the partition."""


_UNINITIALIZED: Final = StateOutcome(
    StateAnswer(ErrorCode.invalid_request, "this share partition is not initialized")
)
"""It never was, or its state was deleted; Kafka's choice of a code."""


class _Kept:
    """One share partition."""

    __slots__ = ("snapshot_offset", "state", "update_count", "writer_epoch")

    def __init__(self, state: ShareState, snapshot_offset: int, writer_epoch: int) -> None:
        self.state = state
        self.snapshot_offset = snapshot_offset
        self.update_count = 0  # since the snapshot
        self.writer_epoch = writer_epoch  # of the leader that has written last


class ShareStates:
    """All share partitions of a shard. Invariants SHS-1 to SHS-3 hold between two events."""

    def __init__(self) -> None:
        self._kept: dict[SharePartitionKey, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[SharePartitionKey]:
        return iter(tuple(self._kept))

    def find(self, key: SharePartitionKey) -> ShareState | None:
        kept = self._kept.get(key)
        return None if kept is None else kept.state

    # State

    def apply(self, record: ShareStateRecord) -> None:
        """Take a record that is in the log; live and at loading."""
        key = record.key
        if isinstance(record, SnapshotRecord):
            if record.value is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = _Kept(record.value, record.offset, self._writer_epoch(record))
            return
        kept = self._kept.get(key)
        if kept is not None and record.value is not None:
            kept.state = _with_update(kept.state, record.value)
            kept.update_count += 1
            if record.value.start_offset != NO_START_OFFSET:
                kept.writer_epoch = kept.state.leader_epoch

    def _writer_epoch(self, snapshot: SnapshotRecord) -> int:
        """Of a snapshot that says nothing new, the one before it; of others, their leader's."""
        kept, value = self._kept.get(snapshot.key), snapshot.value
        if value is None or (kept is not None and kept.state.state_epoch != value.state_epoch):
            return NO_LEADER_EPOCH  # begun anew
        if kept is not None and _said_by(kept.state) == _said_by(value):
            return kept.writer_epoch
        return value.leader_epoch if value.start_offset != NO_START_OFFSET else NO_LEADER_EPOCH

    # Events

    def handle(
        self,
        event: StateEvent,
        now_ms: int,
        *,
        has_partition: HasPartition,
        updates_per_snapshot: int,
    ) -> StateOutcome:
        key = event.key
        fault = _find_key_fault(key)
        if fault is not None:
            return StateOutcome(StateAnswer(ErrorCode.invalid_request, fault))
        kept = self._kept.get(key)
        match event:
            case DeleteState():
                # Also without its topic: it may have been deleted before.
                return StateOutcome(StateAnswer(), (SnapshotRecord(key, None),) if kept else ())
            case SnapshotState():
                return _snapshot_again(key, kept, now_ms)
            case _ if not has_partition(key):
                return StateOutcome(
                    StateAnswer(
                        ErrorCode.unknown_topic_or_partition,
                        f"there is no partition {key.partition} of a topic {key.topic_id}",
                    )
                )
            case InitializeState():
                return _initialize(event, kept, now_ms)
            case ReadState():
                return _read(event, kept)
            case WriteState():
                return _write(event, kept, now_ms, updates_per_snapshot)
            case SummarizeState():
                return _summarize(kept)

    # What the log needs

    def needed_from(self, end_offset: int) -> int:
        """Records before this offset say nothing that later ones do not say (SHS-3)."""
        return min((one.snapshot_offset for one in self._kept.values()), default=end_offset)

    def cold_keys(self, before_ms: int, end_offset: int) -> list[SharePartitionKey]:
        """Those whose snapshots are so old that they hold up what could be deleted, the oldest
        first: whoever writes only some of them anew gets to all. None while there is hardly
        anything to be gained."""
        record_count = end_offset - self.needed_from(end_offset)
        if record_count <= 2 * len(self._kept):
            return []
        cold = [
            (one.snapshot_offset, key)
            for key, one in self._kept.items()
            if one.state.write_timestamp_ms < before_ms
        ]
        return [key for _, key in sorted(cold)]


def _with_update(state: ShareState, update: ShareUpdate) -> ShareState:
    start_offset = _newer(update.start_offset, state.start_offset)
    return state._replace(
        leader_epoch=max(update.leader_epoch, state.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=_newer(
            update.delivery_complete_count, state.delivery_complete_count
        ),
        batches=combine(state.batches, update.batches, start_offset),
    )


def _newer(written: int, stored: int) -> int:
    """-1: this is not what the write is about."""
    return stored if written == NO_START_OFFSET else written


def _find_key_fault(key: SharePartitionKey) -> str | None:
    if not key.group_id:
        return "a share partition belongs to a group with a name"
    if key.topic_id.int == 0:
        return "a share partition belongs to a topic with an id"
    if key.partition < 0:
        return f"there is no partition {key.partition}"
    return None


def _initialize(event: InitializeState, kept: _Kept | None, now_ms: int) -> StateOutcome:
    if kept is not None:
        if event.state_epoch < kept.state.state_epoch:
            return _fenced_state_epoch(event.state_epoch, kept.state)
        if event.state_epoch == kept.state.state_epoch:
            return StateOutcome(StateAnswer())  # it was asked for before (SHS-4)
    former = None if kept is None else kept.state
    state = ShareState(
        snapshot_epoch=0 if former is None else former.snapshot_epoch + 1,
        state_epoch=event.state_epoch,
        leader_epoch=0 if former is None else former.leader_epoch,
        start_offset=event.start_offset,
        delivery_complete_count=NO_COUNT if event.start_offset == NO_START_OFFSET else 0,
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )
    return StateOutcome(StateAnswer(), (SnapshotRecord(event.key, state),))


def _read(event: ReadState, kept: _Kept | None) -> StateOutcome:
    """A leader that nobody knew yet is logged, so that the one before it stays fenced."""
    if kept is None:
        return _UNINITIALIZED
    state = kept.state
    if event.leader_epoch < state.leader_epoch:
        return _fenced_leader_epoch(event.leader_epoch, state)
    answer = StateAnswer(
        state_epoch=state.state_epoch,
        leader_epoch=event.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        batches=state.batches,
    )
    if event.leader_epoch == state.leader_epoch:
        return StateOutcome(answer)
    update = ShareUpdate(state.snapshot_epoch, event.leader_epoch, NO_START_OFFSET, NO_COUNT, ())
    return StateOutcome(answer, (UpdateRecord(event.key, update),))


def _said_by(state: ShareState) -> tuple[int, tuple[StateBatch, ...]]:
    return state.start_offset, state.batches


def _write(
    event: WriteState, kept: _Kept | None, now_ms: int, updates_per_snapshot: int
) -> StateOutcome:
    """A write may come late or twice, and one may count whose answer was lost: then its leader
    thinks that the start offset is where it was before. It never goes back for that (SHS-6): what
    is known of the records before it was forgotten. The first write of a leader may lead back: its
    log may have lost its end."""
    change = event.change
    if kept is None:
        return _UNINITIALIZED
    state = kept.state
    if change.leader_epoch < state.leader_epoch:
        return _fenced_leader_epoch(change.leader_epoch, state)
    if change.state_epoch != state.state_epoch:
        return _fenced_state_epoch(change.state_epoch, state)
    start_offset = _newer(change.start_offset, state.start_offset)
    complete_count = change.delivery_complete_count
    if start_offset < state.start_offset and change.leader_epoch == kept.writer_epoch:
        start_offset, complete_count = state.start_offset, NO_COUNT
    update = ShareUpdate(
        state.snapshot_epoch,
        change.leader_epoch,
        start_offset,
        complete_count,
        combine((), change.state_batches, start_offset),
    )
    if kept.update_count < updates_per_snapshot:
        return StateOutcome(StateAnswer(), (UpdateRecord(event.key, update),))
    return StateOutcome(StateAnswer(), (_snapshot(event.key, _with_update(state, update), now_ms),))


def _snapshot(key: SharePartitionKey, state: ShareState, now_ms: int) -> SnapshotRecord:
    return SnapshotRecord(
        key,
        state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms),
    )


def _snapshot_again(key: SharePartitionKey, kept: _Kept | None, now_ms: int) -> StateOutcome:
    if kept is None:
        return StateOutcome(StateAnswer())
    return StateOutcome(StateAnswer(), (_snapshot(key, kept.state, now_ms),))


def _summarize(kept: _Kept | None) -> StateOutcome:
    if kept is None:
        return StateOutcome(StateAnswer())
    state = kept.state
    return StateOutcome(
        StateAnswer(
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
    )


def _fenced_leader_epoch(epoch: int, state: ShareState) -> StateOutcome:
    message = f"leader epoch {epoch} is over, {state.leader_epoch} has begun"
    return StateOutcome(StateAnswer(ErrorCode.fenced_leader_epoch, message))


def _fenced_state_epoch(epoch: int, state: ShareState) -> StateOutcome:
    message = f"the state is of epoch {state.state_epoch} and not of {epoch}"
    return StateOutcome(StateAnswer(ErrorCode.fenced_state_epoch, message))


# Where two batches speak of the same offset, the one that is further counts: the larger number of
# deliveries, and among those the later state. As with Kafka's coordinator, so a write that comes
# again, or comes late, takes nothing back.


def combine(
    stored: Sequence[StateBatch], written: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Both together, from the start offset on: in order, without overlaps, and neighbours that are
    alike as one (SHS-1). What is stored is so already, and copied where nothing was written."""
    kept = _from(stored, start_offset)
    combined: list[StateBatch] = []
    position = reach = 0  # what is kept before `position` is in `combined`
    overlapping: list[StateBatch] = []  # kept from there to `reach`, and written
    for batch in _put_in_order(_clip(written, start_offset)):
        if overlapping and kept[reach - 1].last_offset < batch.first_offset:
            _extend(combined, _put_in_order(overlapping))
            position, overlapping = reach, []
        if not overlapping:
            reach = _first_reaching(kept, batch.first_offset, position)
            _extend(combined, kept[position:reach])
            position = reach
        end = bisect_right(kept, (batch.last_offset, math.inf), reach)
        if end > reach or overlapping:
            overlapping += (*kept[reach:end], batch)
            reach = end
        else:
            _append(combined, batch)
    _extend(combined, _put_in_order(overlapping))
    _extend(combined, kept[reach:])
    return tuple(combined)


def _first_reaching(kept: Sequence[StateBatch], offset: int, position: int) -> int:
    """The first batch from a position on that ends at an offset or behind."""
    found = bisect_right(kept, (offset, math.inf), position)
    return found - 1 if found > position and kept[found - 1].last_offset >= offset else found


def _put_in_order(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Of any batches, which may overlap."""
    pieces = sorted(batches)
    if all(one.last_offset < other.first_offset for one, other in pairwise(pieces)):
        return _joined(pieces)
    ends = sorted({one.first_offset for one in pieces} | {one.last_offset + 1 for one in pieces})
    combined: list[StateBatch] = []
    open_batches: list[StateBatch] = []
    following = 0
    for first_offset, end_offset in pairwise(ends):
        while following < len(pieces) and pieces[following].first_offset <= first_offset:
            open_batches.append(pieces[following])
            following += 1
        open_batches = [one for one in open_batches if one.last_offset >= first_offset]
        if open_batches:
            furthest = max(open_batches, key=_progress)
            _append(
                combined,
                furthest._replace(first_offset=first_offset, last_offset=end_offset - 1),
            )
    return combined


def _joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    combined: list[StateBatch] = []
    for batch in batches:
        _append(combined, batch)
    return combined


def _from(stored: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    """What is in order, from an offset on."""
    begin = max(0, bisect_right(stored, (start_offset, math.inf)) - 1)
    return (*_clip(stored[begin : begin + 1], start_offset), *stored[begin + 1 :])


def _clip(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    if start_offset == NO_START_OFFSET:
        return batches
    return (
        one._replace(first_offset=max(one.first_offset, start_offset))
        for one in batches
        if one.last_offset >= start_offset
    )


def _progress(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    if combined:
        last = combined[-1]
        touches = last.last_offset + 1 == batch.first_offset
        if touches and last[2:] == batch[2:]:
            combined[-1] = last._replace(last_offset=batch.last_offset)
            return
    combined.append(batch)


def _extend(combined: list[StateBatch], batches: Sequence[StateBatch]) -> None:
    """Go on with batches that are in order: only where both meet they may be alike."""
    if batches:
        _append(combined, batches[0])
        combined += batches[1:]
