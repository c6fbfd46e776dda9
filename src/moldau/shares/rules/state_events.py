"""What the share coordinator is asked about one share partition, and what it answers. A rule:
values only."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.errors import ErrorCode
from moldau.shares.rules.delivery_state import (
    NO_COUNT,
    NO_START_OFFSET,
    SharePartitionKey,
    ShareStateWrite,
    StateBatch,
)
from moldau.shares.rules.state_records import ShareStateRecord


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
