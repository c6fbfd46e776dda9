"""The offsets of a group: when they are committed and as whom, and where a consumer begins. Rules.

Commits of one consumer follow each other, so that an older one never overwrites a newer one. A
commit is tried again while the coordinator moves or loads. A cooperative member keeps partitions
through a rebalance: while they are its own, a commit that came in the middle of one is made good
when it is over. What a member has to commit nobody else commits, nor the same consumer as another
member, nor for partitions that have left it: others may have committed more meanwhile. Without an
identity, the member has lost its place: nothing is sent, since a coordinator without members would
take it for a commit from outside, however old it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from moldau.client.consumer.rules.fetch_buffer import Position
from moldau.client.consumer.rules.instructions import (
    ConsumerInstruction,
    ConsumerTurn,
    Failure,
    FinishCommit,
    Identity,
    LookUpCommitted,
    LookUpOffsets,
    OffsetsToCommit,
    SendCommit,
    TimerKind,
    Validate,
)
from moldau.client.consumer.rules.subscription_state import (
    FetchState,
    SubscriptionState,
    TopicPartitionState,
)
from moldau.client.rules.broker_errors import Reaction, may_retry, react_to
from moldau.client.rules.offsets import GroupOffset
from moldau.errors import (
    CommitFailedError,
    ConfigurationError,
    ErrorCode,
    KafkaError,
    LogTruncatedError,
    NoOffsetError,
    OperationTimeoutError,
)
from moldau.model import NO_GENERATION, TopicPartition

_REBALANCES: Final = (Reaction.REJOIN, Reaction.START_OVER)
_REBALANCE_SECONDS: Final = 5.0
"""How long a commit waits for a rebalance to be over."""

_NO_MEMBER: Final = "it is no member now, or has other partitions than when it asked for this"

AUTOMATIC: Final = 0
"""The id of commits that the program did not ask for; their failures are logged."""


class CommitMode(Enum):
    """Whether a record that fails half-way is seen again."""

    AFTER = "after"
    """Committed after the program has dealt with it: at least once."""
    BEFORE = "before"
    """Committed before the program gets it: at most once."""
    MANUAL = "manual"
    """Committed when the program says so."""

    @classmethod
    def parse(cls, word: str) -> CommitMode:
        try:
            return cls(word)
        except ValueError:
            raise ConfigurationError(
                f"commit={word!r} is not one of after (at least once), before (at most once), "
                "manual"
            ) from None


class _Commit:
    """One commit, from the first attempt to the last."""

    __slots__ = (
        "asker",
        "attempt",
        "commit_id",
        "deadline",
        "offsets",
        "owned",
        "rebalance_deadline",
        "timeout_seconds",
    )

    def __init__(
        self,
        commit_id: int,
        offsets: OffsetsToCommit,
        *,
        asker: Identity | None,
        owned: Mapping[TopicPartition, TopicPartitionState | None],
        now: float,
        timeout_seconds: float,
    ) -> None:
        self.commit_id = commit_id
        self.offsets = offsets
        self.asker = asker  # as whom the consumer asked for it
        self.owned = owned  # what it had of the partitions then
        self.timeout_seconds = timeout_seconds
        self.deadline = now + timeout_seconds
        self.rebalance_deadline = 0.0  # from when its turn comes
        self.attempt = 0


class OffsetCommits:
    """The commits of one consumer with a group. `identity` has to be kept up to date."""

    def __init__(
        self,
        turn: ConsumerTurn,
        subscriptions: SubscriptionState,
        group_id: str,
        *,
        mode: CommitMode,
        interval_seconds: float,
        timeout_seconds: float,
    ) -> None:
        self.mode = mode
        self.identity: Identity | None = None  # as whom to commit; None: the group lost the member
        self._turn = turn
        self._subscriptions = subscriptions
        self._group_id = group_id
        self._interval_seconds = interval_seconds
        self._timeout_seconds = timeout_seconds
        self._due_at = turn.now + interval_seconds
        self._last: dict[TopicPartition, int] = {}  # what was committed
        self._waiting: deque[_Commit] = deque()  # the first is under way

    @property
    def is_automatic(self) -> bool:
        return self.mode is not CommitMode.MANUAL

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way."""
        return bool(self._waiting)

    @property
    def has_automatic(self) -> bool:
        """Whether a commit is under way, or waits, that the program did not ask for."""
        return any(commit.commit_id == AUTOMATIC for commit in self._waiting)

    def find_moved(self, positions: Mapping[TopicPartition, Position]) -> OffsetsToCommit:
        """Those that are not committed yet."""
        return {
            partition: GroupOffset(offset=position.offset, leader_epoch=position.leader_epoch)
            for partition, position in positions.items()
            if self._last.get(partition) != position.offset
        }

    def forget_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Others may commit these from now on."""
        for partition in partitions:
            self._last.pop(partition, None)

    # Beginning

    def commit(
        self, commit_id: int, offsets: OffsetsToCommit, timeout_seconds: float | None
    ) -> None:
        """Commit these; `FinishCommit` tells how it went."""
        self._waiting.append(
            _Commit(
                commit_id,
                offsets,
                asker=self.identity,
                owned={partition: self._subscriptions.find(partition) for partition in offsets},
                now=self._turn.now,
                timeout_seconds=(
                    self._timeout_seconds if timeout_seconds is None else timeout_seconds
                ),
            )
        )
        if len(self._waiting) == 1:
            self._begin_next()

    def commit_positions(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit what has moved, without the program having asked for it."""
        moved = self.find_moved(positions)
        if moved:
            self.commit(AUTOMATIC, moved, None)

    def commit_if_due(self) -> None:
        """A failure is logged, and made good by the next commit."""
        if self.mode is not CommitMode.AFTER or self._turn.now < self._due_at:
            return
        self._due_at = self._turn.now + self._interval_seconds
        if not self.has_automatic:
            self.commit_positions(self._subscriptions.processed_positions)

    def _begin_next(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            first.rebalance_deadline = self._turn.now + _REBALANCE_SECONDS
            if first.offsets and self._send(first):
                return
            self._finish(self._gone(_NO_MEMBER) if first.offsets else None)

    def _send(self, commit: _Commit) -> bool:
        if self.identity is None or not self._is_its_own(commit, self.identity):
            return False
        self._turn.instruct(SendCommit(commit.offsets, self.identity))
        return True

    def _is_its_own(self, commit: _Commit, identity: Identity) -> bool:
        """Whether nobody else may have committed the partitions since it was asked for."""
        asker = commit.asker
        if asker is None:
            return False
        if asker.generation_id == NO_GENERATION:  # assigned by hand: the group has no say in it
            return True
        return identity.member_id == asker.member_id and all(
            one is None or self._subscriptions.find(partition) is one
            for partition, one in commit.owned.items()
        )

    # Ends

    def committed(self) -> None:
        first = self._waiting[0]
        self._last.update({partition: one.offset for partition, one in first.offsets.items()})
        self._finish(None)
        self._begin_next()

    def failed(self, failure: Failure) -> None:
        first = self._waiting[0]
        delay = self._turn.backoff_seconds(first.attempt)
        end = self._decide_end(first, failure, delay)
        if end is None:
            first.attempt += 1
            self._turn.arm(TimerKind.COMMIT, 0, delay)
        else:
            self._finish(end)
            self._begin_next()

    def _decide_end(self, commit: _Commit, failure: Failure, delay: float) -> Failure | None:
        """What the commit fails with; None when it is worth another attempt."""
        reaction = react_to(failure)
        if reaction in _REBALANCES and (_is_forgotten(failure) or not self._may_wait(commit)):
            return self._gone(failure)
        if reaction is Reaction.STOP:
            return failure
        if self._turn.now + delay > commit.deadline:
            return OperationTimeoutError(
                f"could not commit within {commit.timeout_seconds:g} seconds: {failure}"
            )
        return None

    def _may_wait(self, commit: _Commit) -> bool:
        """Whether the rebalance may pass, and leave the partitions to this member."""
        return (
            self.identity is not None
            and self._is_its_own(commit, self.identity)
            and None not in commit.owned.values()
            and self._turn.now < commit.rebalance_deadline
        )

    def on_retry(self) -> None:
        """The pause before another attempt is over."""
        if self._waiting and not self._send(self._waiting[0]):
            self._finish(self._gone(_NO_MEMBER))
            self._begin_next()

    def _finish(self, failure: Failure | None) -> None:
        ended = self._waiting.popleft()
        if ended.commit_id != AUTOMATIC:
            self._turn.instruct(FinishCommit(ended.commit_id, failure))
        elif failure is not None:
            self._turn.log(f"offsets were not committed: {failure}", is_warning=True)

    def refuse_lost_member(self) -> CommitFailedError:
        return self._gone(_NO_MEMBER)

    def _gone(self, reason: Failure | str) -> CommitFailedError:
        return CommitFailedError(
            f"group {self._group_id!r} has rebalanced, or is about to, and this consumer's "
            f"offsets were not committed: {reason}. Poll more often, or raise "
            "max.poll.interval.ms, if the work on records takes long"
        )


def _is_forgotten(failure: Failure) -> bool:
    return isinstance(failure, KafkaError) and failure.code is ErrorCode.unknown_member_id


# One question at a time, in this order: what the group has committed, offsets for those without,
# and of positions under a new leader whether it has what was read from the old one (KIP-320). What
# fails for the moment is asked again after a pause; the rest is for the program, whose next poll
# asks anew.


_ORDER: Final = (FetchState.INITIALIZING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION)


class LeaderEpochEnd(NamedTuple):
    """Where the leader's log of an epoch ends; `end` is None when it has no such epoch."""

    partition: TopicPartition
    leader_epoch: int  # of the leader that was asked
    end: Position | None


class OffsetFetcher:
    """The questions of one consumer."""

    def __init__(self, turn: ConsumerTurn, subscriptions: SubscriptionState) -> None:
        self.is_wanted = False  # look for partitions that need a position
        self._turn = turn
        self._subscriptions = subscriptions
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

    def _find_question(self, fetch_state: FetchState) -> ConsumerInstruction | None:
        states = self._subscriptions.find_waiting(fetch_state)
        if not states:
            return None
        epochs = {state.partition: state.epoch for state in states}
        match fetch_state:
            case FetchState.INITIALIZING:
                return LookUpCommitted(tuple(epochs))
            case FetchState.AWAIT_RESET:
                timestamps = self._choose_timestamps(states)
                return LookUpOffsets(timestamps, epochs) if timestamps else None
            case _:
                return Validate({state.partition: state.fetch_epoch for state in states}, epochs)

    def _choose_timestamps(self, states: list[TopicPartitionState]) -> dict[TopicPartition, int]:
        chosen: dict[TopicPartition, int] = {}
        failure: NoOffsetError | None = None
        for state in states:
            try:
                chosen[state.partition] = self._subscriptions.choose_timestamp(
                    state, self._turn.now_ms
                )
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
                self._subscriptions.found_committed(partition, position)
            except NoOffsetError as error:
                failure = error
        self._answered(failure)

    def found_offsets(self, asked: LookUpOffsets, found: Mapping[TopicPartition, Position]) -> None:
        for partition, position in found.items():
            self._subscriptions.found_offset(partition, asked.epochs[partition], position)
        self._answered(None)

    def validated(self, asked: Validate, found: Iterable[LeaderEpochEnd]) -> list[TopicPartition]:
        """The partitions of which records are gone that were fetched."""
        gone: list[TopicPartition] = []
        failure: Failure | None = None
        for partition, leader_epoch, end in found:
            epoch = asked.epochs[partition]
            try:
                if self._subscriptions.validated(partition, epoch, leader_epoch, end):
                    gone.append(partition)
            except LogTruncatedError as error:
                failure = error
        self._answered(failure)
        return gone

    def _answered(self, failure: Failure | None) -> None:
        self._is_busy = False
        self._attempt = 0
        self._turn.wakes_program = True
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
