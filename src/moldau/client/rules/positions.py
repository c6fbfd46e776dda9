"""Where a consumer is in each of its partitions, and what it has to find out first. A rule.

    needs         because                               becomes
    COMMITTED     newly assigned, in a group            READY at the committed offset, else RESET
    RESET         no offset, or it is gone; or asked    READY at the offset found for the time
    VALIDATION    the leader changed                    READY where it was, or where logs diverge
    READY         -                                     RESET when the offset is out of range

Two offsets move: the position is what the program has dealt with, and what is committed; the fetch
offset is ahead of it by what was fetched. Whenever the position is moved by other means than
reading, the partition gets a new epoch, and what was fetched under another epoch is void.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, assert_never

from moldau.client.rules.delivery import Position
from moldau.config.option import OffsetReset, ResetTo
from moldau.errors import (
    KafkaError,
    LogTruncatedError,
    NoOffsetError,
    NotAssignedError,
    OffsetOutOfRangeError,
)
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

UNKNOWN: Final = -1


class Need(Enum):
    """What a partition waits for before it can be fetched."""

    COMMITTED = "committed"
    RESET = "reset"
    VALIDATION = "validation"
    READY = "ready"


class AssignedPartition:
    """One assigned partition. `PartitionTable` alone changes `need`, `failure` and the offsets."""

    __slots__ = (
        "epoch",
        "failure",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "is_held",
        "is_paused",
        "last_stable_offset",
        "log_start_offset",
        "need",
        "partition",
        "position",
        "preferred_replica",
        "preferred_until",
        "reset_timestamp",
        "validated_leader_epoch",
    )

    def __init__(self, partition: TopicPartition, epoch: int, need: Need) -> None:
        self.partition = partition
        self.epoch = epoch
        self.need = need
        self.position: Position | None = None
        self.fetch_offset = UNKNOWN
        self.fetch_epoch = UNKNOWN  # the leader epoch of the record before it
        self.reset_timestamp: int | None = None  # None: by the policy
        self.failure: KafkaError | None = None  # of the fetch at `fetch_offset`
        self.is_paused = False
        self.is_held = False  # until the program was told of the assignment
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.preferred_replica: int | None = None
        self.preferred_until = 0.0
        self.validated_leader_epoch = UNKNOWN  # up to here the position is known to be sound

    @property
    def is_fetchable(self) -> bool:
        return (
            self.need is Need.READY
            and self.failure is None
            and not self.is_paused
            and not self.is_held
        )

    @property
    def is_read_up(self) -> bool:
        """The program has dealt with all that was fetched."""
        return self.position is not None and self.position.offset >= self.fetch_offset


class PartitionTable:
    """The assigned partitions."""

    def __init__(self, policy: OffsetReset, *, has_group: bool) -> None:
        self._policy = policy
        self._has_group = has_group
        self._states: dict[TopicPartition, AssignedPartition] = {}
        self._unready: set[TopicPartition] = set()  # whose need is not READY
        self._failed: dict[TopicPartition, AssignedPartition] = {}  # whose failure is not None
        self._next_epoch = 0

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def find(self, partition: TopicPartition) -> AssignedPartition | None:
        return self._states.get(partition)

    def require(self, partition: TopicPartition) -> AssignedPartition:
        found = self._states.get(partition)
        if found is None:
            raise NotAssignedError(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return found

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(state.partition for state in self if state.is_paused)

    @property
    def processed_positions(self) -> dict[TopicPartition, Position]:
        """Behind all that the program has dealt with for sure."""
        return {state.partition: state.position for state in self if state.position is not None}

    def find_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Of those that are assigned: another one after each move of the position."""
        return {p: self._states[p].epoch for p in partitions if p in self._states}

    @property
    def has_unready(self) -> bool:
        """Whether a partition waits for a position."""
        return bool(self._unready)

    def needing(self, need: Need) -> list[AssignedPartition]:
        """Those that wait for this and are not held."""
        found = (self._states[one] for one in sorted(self._unready))
        return [state for state in found if state.need is need and not state.is_held]

    @property
    def has_failed(self) -> bool:
        return bool(self._failed)

    @property
    def failed(self) -> tuple[AssignedPartition, ...]:
        """Those whose fetch failed with what the program has to know."""
        return tuple(self._failed.values())

    # Coming and going

    def add(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        for partition in sorted(partitions):
            need = Need.COMMITTED if self._has_group else Need.RESET
            state = AssignedPartition(partition, self._take_epoch(), need)
            state.is_held = held
            self._states[partition] = state
            self._unready.add(partition)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._states.pop(partition, None)
            self._unready.discard(partition)
            self._failed.pop(partition, None)

    def hold(self, partitions: Iterable[TopicPartition], *, is_held: bool) -> None:
        """Fetch nothing of these, or go on with it."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None:
                state.is_held = is_held

    # Fetching

    def fetched(self, state: AssignedPartition, end: Position) -> None:
        """What precedes this was fetched; the program has not seen it yet."""
        state.fetch_offset, state.fetch_epoch = end

    def fetch_again(self, partition: TopicPartition, position: Position) -> None:
        """What was fetched from here on was not given, and is void."""
        state = self.require(partition)
        state.epoch = self._take_epoch()
        state.fetch_offset, state.fetch_epoch = position
        self.clear_failure(state)

    def fail(self, state: AssignedPartition, failure: KafkaError) -> None:
        """The fetch at `fetch_offset` failed with what the program has to know."""
        state.failure = failure
        self._failed[state.partition] = state

    def clear_failure(self, state: AssignedPartition) -> None:
        state.failure = None
        self._failed.pop(state.partition, None)

    # Moving

    def seek(self, partition: TopicPartition, position: Position) -> None:
        self._place(self.require(partition), position)

    def request_reset(self, partition: TopicPartition, timestamp: int) -> None:
        state = self.require(partition)
        self._reset(state, timestamp)

    def advance(self, moved: Mapping[TopicPartition, Position]) -> None:
        """The program has dealt with what precedes these positions."""
        for partition, position in moved.items():
            state = self._states.get(partition)
            if state is not None and state.position is not None:
                state.position = position

    def advance_at_least(self, dealt_with: Mapping[TopicPartition, Position]) -> None:
        """As `advance`, but never back."""
        for partition, position in dealt_with.items():
            state = self._states.get(partition)
            if state is None or state.position is None or state.position.offset >= position.offset:
                continue
            state.position = position

    def found_committed(self, partition: TopicPartition, committed: Position | None) -> None:
        """Raises NoOffsetError when there is none and the policy is to raise."""
        state = self._states.get(partition)
        if state is None or state.need is not Need.COMMITTED:
            return
        if committed is not None:
            self._place(state, committed)
        else:
            self.choose_timestamp(state, now_ms=0)  # raises where the policy does
            self._reset(state, None)

    def choose_timestamp(self, state: AssignedPartition, now_ms: int) -> int:
        """What to ask ListOffsets for; raises NoOffsetError when the policy is to raise."""
        if state.reset_timestamp is not None:
            return state.reset_timestamp
        match self._policy.to:
            case ResetTo.EARLIEST:
                return EARLIEST_TIMESTAMP
            case ResetTo.LATEST:
                return LATEST_TIMESTAMP
            case ResetTo.DURATION:
                return max(now_ms - self._policy.duration_ms, 0)
            case ResetTo.ERROR:
                raise NoOffsetError(
                    f"there is no offset to begin at for {state.partition}, and auto.offset.reset "
                    "says error; seek to where reading should begin"
                )
            case _ as never:
                assert_never(never)

    def found_offset(self, partition: TopicPartition, epoch: int, position: Position) -> None:
        """The answer to a reset that was asked for under this epoch."""
        state = self._states.get(partition)
        if state is not None and state.epoch == epoch and state.need is Need.RESET:
            self._place(state, position)

    def lose_offset(self, partition: TopicPartition, epoch: int, offset: int) -> None:
        """The log does not have this offset; raises when the policy is to raise."""
        state = self._states.get(partition)
        if state is None or state.epoch != epoch:
            return
        if self._policy.to is ResetTo.ERROR:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {partition} is gone, or was never there, and "
                "auto.offset.reset says error; seek to where reading should go on"
            )
        self._reset(state, None)

    # Leaders

    def leader_changed(self, partition: TopicPartition, leader_epoch: int) -> None:
        """With a newer leader, records that were read may be gone (KIP-320)."""
        state = self._states.get(partition)
        if state is None or leader_epoch <= state.validated_leader_epoch:
            return
        if state.need is not Need.READY or state.position is None:
            return
        # What this leader itself wrote is in its log.
        if 0 <= state.fetch_epoch < leader_epoch:
            self._set_need(state, Need.VALIDATION)
        else:
            state.validated_leader_epoch = leader_epoch

    def validated(
        self, partition: TopicPartition, epoch: int, leader_epoch: int, end: Position | None
    ) -> bool:
        """The leader's end of the epoch that was fetched last; None when it has no such epoch.

        Says whether records are gone. Raises LogTruncatedError when the policy is to raise.
        """
        state = self._states.get(partition)
        if state is None or state.epoch != epoch or state.need is not Need.VALIDATION:
            return False
        self._set_need(state, Need.READY)
        state.validated_leader_epoch = leader_epoch
        position = state.position
        if position is None or (end is not None and end.offset >= state.fetch_offset):
            return False
        if end is not None and end.offset >= position.offset:
            # Only what was fetched ahead is gone.
            self._place(state, position)
            return True
        if self._policy.to is ResetTo.ERROR:
            self._set_need(state, Need.VALIDATION)
            raise LogTruncatedError(
                f"the log of {partition} was truncated below offset {position.offset}, where this "
                "consumer is, and auto.offset.reset says error; seek to where reading goes on",
                partition,
                None if end is None else end.offset,
            )
        if end is None:
            self._reset(state, None)
        else:
            self._place(state, end)
        return True

    # Inside

    def _place(self, state: AssignedPartition, position: Position) -> None:
        state.epoch = self._take_epoch()
        state.position = position
        state.fetch_offset, state.fetch_epoch = position
        state.preferred_replica = None
        state.validated_leader_epoch = UNKNOWN
        self._set_need(state, Need.READY)
        self.clear_failure(state)

    def _reset(self, state: AssignedPartition, timestamp: int | None) -> None:
        state.epoch = self._take_epoch()
        state.position = None
        state.fetch_offset = state.fetch_epoch = UNKNOWN
        state.preferred_replica = None
        state.reset_timestamp = timestamp
        self._set_need(state, Need.RESET)
        self.clear_failure(state)

    def _set_need(self, state: AssignedPartition, need: Need) -> None:
        state.need = need
        if need is Need.READY:
            self._unready.discard(state.partition)
        else:
            self._unready.add(state.partition)

    def _take_epoch(self) -> int:
        self._next_epoch += 1
        return self._next_epoch
