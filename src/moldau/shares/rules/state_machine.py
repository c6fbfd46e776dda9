"""The share partitions of one partition of `__share_group_state`: the machine behind a shard.

`handle` tells what an event leads to; `apply` takes a record that was logged and is the only way to
state. A write is an update of the last snapshot; after enough of them it is a snapshot itself, so
that a log is loaded quickly and what is before the oldest snapshot can be deleted (`needed_from`).

Two epochs fence (SHS-2): the leader's, which grows with every leader of the partition that reads
or writes, and the state's, which the group coordinator raises when it begins the state anew.

The model is Kafka's `ShareCoordinatorShard`. A rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from moldau.errors import ErrorCode
from moldau.shares.rules.delivery_state import (
    NO_COUNT,
    NO_START_OFFSET,
    SharePartitionKey,
    StateBatch,
)
from moldau.shares.rules.state_batches import combine
from moldau.shares.rules.state_events import (
    DeleteState,
    InitializeState,
    ReadState,
    SnapshotState,
    StateAnswer,
    StateEvent,
    StateOutcome,
    SummarizeState,
    WriteState,
)
from moldau.shares.rules.state_records import (
    ShareState,
    ShareStateRecord,
    ShareUpdate,
    SnapshotRecord,
    UpdateRecord,
)

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
