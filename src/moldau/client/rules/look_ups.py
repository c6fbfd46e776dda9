"""Finding out where to begin: committed offsets, offsets by time, whether a position holds. A rule.

One question at a time, in this order: what the group has committed, offsets for those without, and
of positions under a new leader whether it has what was read from the old one (KIP-320). What fails
for the moment is asked again after a pause; the rest is for the program, whose next poll asks anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from moldau.client.offset_values import GroupOffset
from moldau.client.rules.consumer_instructions import (
    ConsumerInstruction,
    ConsumerTurn,
    Failure,
    LookUpCommitted,
    LookUpOffsets,
    TimerKind,
    Validate,
)
from moldau.client.rules.delivery import Position
from moldau.client.rules.positions import AssignedPartition, Need, PartitionTable
from moldau.client.rules.retries import may_retry
from moldau.errors import LogTruncatedError, NoOffsetError, OperationTimeoutError
from moldau.model import TopicPartition

_ORDER: Final = (Need.COMMITTED, Need.RESET, Need.VALIDATION)


class LeaderEpochEnd(NamedTuple):
    """Where the leader's log of an epoch ends; `end` is None when it has no such epoch."""

    partition: TopicPartition
    leader_epoch: int  # of the leader that was asked
    end: Position | None


class LookUps:
    """The questions of one consumer."""

    def __init__(self, turn: ConsumerTurn, table: PartitionTable) -> None:
        self.is_wanted = False  # look for partitions that need a position
        self._turn = turn
        self._table = table
        self._next = 0  # in `_ORDER`; 0 when nothing is under way
        self._is_busy = False  # a question is under way, or the pause after it
        self._attempt = 0

    def maybe_ask(self) -> None:
        while not self._is_busy and (self.is_wanted or self._next):
            if self._next == 0:
                self.is_wanted = False
            question = self._find_question(_ORDER[self._next])
            self._next = (self._next + 1) % len(_ORDER)
            if question is not None:
                self._is_busy = True
                self._turn.instruct(question)

    def _find_question(self, need: Need) -> ConsumerInstruction | None:
        states = self._table.needing(need)
        if not states:
            return None
        epochs = {state.partition: state.epoch for state in states}
        match need:
            case Need.COMMITTED:
                return LookUpCommitted(tuple(epochs))
            case Need.RESET:
                timestamps = self._choose_timestamps(states)
                return LookUpOffsets(timestamps, epochs) if timestamps else None
            case _:
                return Validate({state.partition: state.fetch_epoch for state in states}, epochs)

    def _choose_timestamps(self, states: list[AssignedPartition]) -> dict[TopicPartition, int]:
        chosen: dict[TopicPartition, int] = {}
        failure: NoOffsetError | None = None
        for state in states:
            try:
                chosen[state.partition] = self._table.choose_timestamp(state, self._turn.now_ms)
            except NoOffsetError as error:
                failure = failure or error
        if failure is not None:  # one for all: who hears of it may put all of them right
            self._turn.raise_later(failure)
        return chosen

    # Answers

    def found_committed(self, found: Mapping[TopicPartition, GroupOffset | None]) -> None:
        failure: Failure | None = None
        for partition, committed in found.items():
            position = None
            if committed is not None:
                position = Position(committed.offset, committed.leader_epoch)
            try:
                self._table.found_committed(partition, position)
            except NoOffsetError as error:
                failure = error
        self._answered(failure)

    def found_offsets(self, asked: LookUpOffsets, found: Mapping[TopicPartition, Position]) -> None:
        for partition, position in found.items():
            self._table.found_offset(partition, asked.epochs[partition], position)
        self._answered(None)

    def validated(self, asked: Validate, found: Iterable[LeaderEpochEnd]) -> list[TopicPartition]:
        """The partitions of which records are gone that were fetched."""
        gone: list[TopicPartition] = []
        failure: Failure | None = None
        for partition, leader_epoch, end in found:
            epoch = asked.epochs[partition]
            try:
                if self._table.validated(partition, epoch, leader_epoch, end):
                    gone.append(partition)
            except LogTruncatedError as error:
                failure = error
        self._answered(failure)
        return gone

    def _answered(self, failure: Failure | None) -> None:
        self._is_busy = False
        self._attempt = 0
        self._turn.has_news = True
        if failure is not None:
            self._turn.raise_later(failure)

    def failed(self, failure: Failure) -> None:
        self._next = 0
        is_passing = may_retry(failure, 0, wait_for_cluster=True)
        if is_passing or isinstance(failure, OperationTimeoutError):
            self._turn.arm(TimerKind.LOOK_UP, 0, self._turn.backoff_seconds(self._attempt))
            self._attempt += 1
        else:
            self._is_busy = False
            self._turn.raise_later(failure)

    def on_pause_over(self) -> None:
        self._is_busy = False
        self.is_wanted = True
