"""What a consumer subscribes to, and where it is in each of its partitions. Rules.

    state               until                            then
    INITIALIZING        the committed offset is known    FETCHING; AWAIT_RESET where there is none
    AWAIT_RESET         the offset for a time is known   FETCHING
    AWAIT_VALIDATION    the new leader has answered      FETCHING there, or where logs diverge
    FETCHING            the offset is out of range       AWAIT_RESET
                        the leader changes               AWAIT_VALIDATION

Two offsets move: the position is what the program has dealt with, and what is committed; the fetch
offset is ahead of it by what was fetched. Whenever the position is moved by other means than
reading, the partition gets a new epoch, and what was fetched under another epoch is void.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, assert_never

from moldau.client.consumer.rules.fetch_buffer import Decoding, FetchBuffer, Position
from moldau.client.consumer.rules.instructions import ConsumerTurn, Failure, Refresh, TimerKind
from moldau.client.rules.arguments import require_kind, require_names
from moldau.config.option import OffsetReset, ResetTo
from moldau.errors import (
    ClusterUnreachableError,
    ConfigurationError,
    InvalidTopicError,
    KafkaError,
    LogTruncatedError,
    NoOffsetError,
    NotAssignedError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
)
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition, find_topic_name_fault

UNKNOWN: Final = -1


class FetchState(Enum):
    """What a partition waits for before it can be fetched."""

    INITIALIZING = "initializing"
    """Newly assigned, in a group: the committed offset is looked up."""

    AWAIT_RESET = "await reset"
    """There is no offset, or it is gone, or a reset was asked for: by time, or by policy."""

    AWAIT_VALIDATION = "await validation"
    """The leader changed: has it what was read from the one before?"""

    FETCHING = "fetching"


class TopicPartitionState:
    """One assigned partition. `SubscriptionState` alone changes `fetch_state`, `failure` and the
    offsets."""

    __slots__ = (
        "epoch",
        "failure",
        "fetch_epoch",
        "fetch_offset",
        "fetch_state",
        "high_watermark",
        "is_held",
        "is_paused",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "position",
        "preferred_replica",
        "preferred_until",
        "reset_timestamp",
        "validated_leader_epoch",
    )

    def __init__(self, partition: TopicPartition, epoch: int, fetch_state: FetchState) -> None:
        self.partition = partition
        self.epoch = epoch
        self.fetch_state = fetch_state
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
            self.fetch_state is FetchState.FETCHING
            and self.failure is None
            and not self.is_paused
            and not self.is_held
        )

    @property
    def is_read_up(self) -> bool:
        """The program has dealt with all that was fetched."""
        return self.position is not None and self.position.offset >= self.fetch_offset


class SubscriptionState:
    """The assigned partitions."""

    def __init__(self, policy: OffsetReset, *, has_group: bool) -> None:
        self._policy = policy
        self._has_group = has_group
        self._states: dict[TopicPartition, TopicPartitionState] = {}
        self._unready: set[TopicPartition] = set()  # that are not FETCHING
        self._failed: dict[TopicPartition, TopicPartitionState] = {}  # whose failure is not None
        self._next_epoch = 0

    def __iter__(self) -> Iterator[TopicPartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def find(self, partition: TopicPartition) -> TopicPartitionState | None:
        return self._states.get(partition)

    def require(self, partition: TopicPartition) -> TopicPartitionState:
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

    def find_waiting(self, fetch_state: FetchState) -> list[TopicPartitionState]:
        """Those that wait for this and are not held."""
        found = (self._states[one] for one in sorted(self._unready))
        return [state for state in found if state.fetch_state is fetch_state and not state.is_held]

    @property
    def has_failed(self) -> bool:
        return bool(self._failed)

    @property
    def failed(self) -> tuple[TopicPartitionState, ...]:
        """Those whose fetch failed with what the program has to know."""
        return tuple(self._failed.values())

    # Coming and going

    def add(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        for partition in sorted(partitions):
            fetch_state = FetchState.INITIALIZING if self._has_group else FetchState.AWAIT_RESET
            state = TopicPartitionState(partition, self._take_epoch(), fetch_state)
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

    def fetched(self, state: TopicPartitionState, end: Position) -> None:
        """What precedes this was fetched; the program has not seen it yet."""
        state.fetch_offset, state.fetch_epoch = end

    def fetch_again(self, partition: TopicPartition, position: Position) -> None:
        """What was fetched from here on was not given, and is void."""
        state = self.require(partition)
        state.epoch = self._take_epoch()
        state.fetch_offset, state.fetch_epoch = position
        self.clear_failure(state)

    def fail(self, state: TopicPartitionState, failure: KafkaError) -> None:
        """The fetch at `fetch_offset` failed with what the program has to know."""
        state.failure = failure
        self._failed[state.partition] = state

    def clear_failure(self, state: TopicPartitionState) -> None:
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
        if state is None or state.fetch_state is not FetchState.INITIALIZING:
            return
        if committed is not None:
            self._place(state, committed)
        else:
            self.choose_timestamp(state, now_ms=0)  # raises where the policy does
            self._reset(state, None)

    def choose_timestamp(self, state: TopicPartitionState, now_ms: int) -> int:
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
        if (
            state is not None
            and state.epoch == epoch
            and state.fetch_state is FetchState.AWAIT_RESET
        ):
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
        if state.fetch_state is not FetchState.FETCHING or state.position is None:
            return
        # What this leader itself wrote is in its log.
        if 0 <= state.fetch_epoch < leader_epoch:
            self._set_fetch_state(state, FetchState.AWAIT_VALIDATION)
        else:
            state.validated_leader_epoch = leader_epoch

    def validated(
        self, partition: TopicPartition, epoch: int, leader_epoch: int, end: Position | None
    ) -> bool:
        """The leader's end of the epoch that was fetched last; None when it has no such epoch.

        Says whether records are gone. Raises LogTruncatedError when the policy is to raise.
        """
        state = self._states.get(partition)
        if (
            state is None
            or state.epoch != epoch
            or state.fetch_state is not FetchState.AWAIT_VALIDATION
        ):
            return False
        self._set_fetch_state(state, FetchState.FETCHING)
        state.validated_leader_epoch = leader_epoch
        position = state.position
        if position is None or (end is not None and end.offset >= state.fetch_offset):
            return False
        if end is not None and end.offset >= position.offset:
            # Only what was fetched ahead is gone.
            self._place(state, position)
            return True
        if self._policy.to is ResetTo.ERROR:
            self._set_fetch_state(state, FetchState.AWAIT_VALIDATION)
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

    def _place(self, state: TopicPartitionState, position: Position) -> None:
        state.epoch = self._take_epoch()
        state.position = position
        state.fetch_offset, state.fetch_epoch = position
        state.preferred_replica = None
        state.validated_leader_epoch = UNKNOWN
        self._set_fetch_state(state, FetchState.FETCHING)
        self.clear_failure(state)

    def _reset(self, state: TopicPartitionState, timestamp: int | None) -> None:
        state.epoch = self._take_epoch()
        state.position = None
        state.fetch_offset = state.fetch_epoch = UNKNOWN
        state.preferred_replica = None
        state.reset_timestamp = timestamp
        self._set_fetch_state(state, FetchState.AWAIT_RESET)
        self.clear_failure(state)

    def _set_fetch_state(self, state: TopicPartitionState, fetch_state: FetchState) -> None:
        state.fetch_state = fetch_state
        if fetch_state is FetchState.FETCHING:
            self._unready.discard(state.partition)
        else:
            self._unready.add(state.partition)

    def _take_epoch(self) -> int:
        self._next_epoch += 1
        return self._next_epoch


# The subscription: topics by name, topics by pattern, or partitions by hand. The three exclude each
# other, as in Kafka. A pattern has to match a whole name. Topics that match `deny`, and the
# cluster's own topics, are left out of it.


class Topic(Protocol):
    """A topic of the cluster, as far as a pattern looks at it."""

    @property
    def name(self) -> str: ...

    @property
    def is_internal(self) -> bool: ...

    @property
    def error(self) -> Exception | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Names, or patterns of names; nothing at all when partitions are assigned by hand."""

    names: frozenset[str] = frozenset()
    allow: re.Pattern[str] | None = None
    deny: re.Pattern[str] | None = None
    with_internal: bool = False

    @property
    def is_pattern(self) -> bool:
        return self.allow is not None

    @property
    def is_empty(self) -> bool:
        return self.allow is None and not self.names

    def matching(self, topics: Iterable[Topic]) -> frozenset[str]:
        """The topics to read, out of those that there are."""
        if self.allow is None:
            return self.names
        return frozenset(topic.name for topic in topics if self._matches(topic))

    def _matches(self, topic: Topic) -> bool:
        if self.allow is None or topic.error is not None:
            return False
        if topic.is_internal and not self.with_internal:
            return False
        if self.deny is not None and self.deny.fullmatch(topic.name):
            return False
        return self.allow.fullmatch(topic.name) is not None


Pattern = str | re.Pattern[str]


def subscribe_to(
    topics: str | Collection[str] | None,
    pattern: Pattern | None,
    deny: Pattern | None,
    *,
    with_internal: bool,
) -> TopicSelection:
    """Names or a pattern, not both; raises ConfigurationError."""
    if (topics is None) == (pattern is None):
        raise ConfigurationError("subscribe to topics by their names, or to a pattern of names")
    if topics is not None and deny is not None:
        raise ConfigurationError("deny goes with a pattern; of a list of names, leave some out")
    if topics is not None:
        names = frozenset((topics,) if isinstance(topics, str) else require_names(topics))
        _require_legal(names)
        return TopicSelection(names=names)
    return TopicSelection(allow=_compile(pattern), deny=_compile(deny), with_internal=with_internal)


def _require_legal(names: Iterable[str]) -> None:
    for name in sorted(names):
        fault = find_topic_name_fault(name)
        if fault is not None:
            raise InvalidTopicError(fault)


def _compile(pattern: Pattern | None) -> re.Pattern[str] | None:
    if pattern is None or isinstance(pattern, re.Pattern):
        return pattern
    require_kind(pattern, str, "pattern", "a regular expression, like 'clicks-.*'")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{pattern!r} is no regular expression: {error}") from error


#     metadata is    because                                  until
#     idle           it is fresh                              it is wanted, or as old as it may be
#     asked for      it is wanted                             the answer
#     pausing        an answer, or a failure, has come        a pause; longer while something fails
#
# Topics that the leader of a group assigns for other members are watched, too.


class _Asking(Enum):
    IDLE = "idle"
    ASKED = "asked for"
    PAUSING = "pausing"


class SubscribedTopics:
    """The subscription of one consumer and the topics behind it."""

    def __init__(
        self, turn: ConsumerTurn, subscriptions: SubscriptionState, max_age_seconds: float
    ) -> None:
        self.selection = TopicSelection()
        self.names: frozenset[str] = frozenset()  # that match the selection
        self.is_resolved = False  # `names` are those of the selection
        self.is_wanted = False  # metadata is
        self._turn = turn
        self._subscriptions = subscriptions
        self._max_age_seconds = max_age_seconds
        self._watched: Mapping[str, int] = {}  # how many partitions the group's topics had
        self._asking = _Asking.IDLE
        self._is_known = False  # an answer has come
        self._attempt = 0
        self._age_count = 0  # how often metadata began to age

    def select(self, selection: TopicSelection) -> None:
        self.selection = selection
        self.names = frozenset() if selection.is_pattern else selection.names
        self.is_resolved = not selection.is_pattern
        self._watched = {}
        self.is_wanted = True

    @property
    def is_ready(self) -> bool:
        """Whether it is known what to read."""
        return not self.selection.is_empty and bool(self.names or self._is_known)

    # Partitions

    def partition_count(self, name: str) -> int:
        """0 while the topic is not there, or cannot be described."""
        topic = self._turn.cluster.topics.get(name)
        return 0 if topic is None or topic.error is not None else len(topic.partitions)

    def watch(self, topics: Collection[str]) -> Mapping[str, int]:
        """How many partitions each topic has that exists; from now on the topics are watched."""
        self._watched = {name: self.partition_count(name) for name in topics}
        return {name: count for name, count in self._watched.items() if count}

    @property
    def has_other_partitions(self) -> bool:
        """Whether a watched topic has got more partitions, or is gone."""
        return any(self.partition_count(name) != n for name, n in self._watched.items())

    def find_all_partitions(self) -> frozenset[TopicPartition]:
        """Of the topics that can be described. Others are as they were."""
        there = {
            TopicPartition(name, index)
            for name in self.names
            for index in range(self.partition_count(name))
        }
        unknown = {name for name in self.names if not self.partition_count(name)}
        kept = {one for one in self._subscriptions.partitions if one.topic in unknown}
        return frozenset(there | kept)

    # Asking

    def maybe_refresh(self) -> None:
        """Ask for metadata if it is wanted and may be asked for now."""
        if not self.is_wanted or self._asking is not _Asking.IDLE:
            return
        self.is_wanted = False
        self._asking = _Asking.ASKED
        self._turn.instruct(Refresh(self._to_ask_for()))

    def _to_ask_for(self) -> Collection[str] | None:
        if self.selection.is_pattern:
            return None
        assigned = {state.partition.topic for state in self._subscriptions}
        return sorted(self.names | assigned | self._watched.keys())

    def refreshed(self, asked: Refresh) -> bool:
        """Fresh metadata has come; whether other topics match the selection now."""
        self._is_known = True
        topics = self._turn.cluster.topics
        wanted = topics if asked.topics is None else asked.topics
        is_complete = all(name in topics and topics[name].error is None for name in wanted)
        self._pause(is_complete=is_complete)
        self._tell_denied()
        names = self.selection.matching(topics.values())
        has_changed = names != self.names
        self.names = names
        self.is_resolved = self.is_resolved or asked.topics is None
        return has_changed

    def _tell_denied(self) -> None:
        """A topic that may not be read is no reason to wait: the program is told, once for each
        answer that says so, as by Java's client."""
        if self.selection.is_pattern or self._turn.failures:
            return
        assigned = {state.partition.topic for state in self._subscriptions}
        for name in sorted(self.selection.names | assigned):
            topic = self._turn.cluster.topics.get(name)
            if topic is not None and isinstance(topic.error, TopicAuthorizationError):
                self._turn.raise_later(topic.error)
                return

    def refresh_failed(self, failure: Failure) -> Failure | None:
        """What the program has to know of it."""
        self._pause(is_complete=False)
        # At the beginning the address is likely wrong; later a cluster is worth waiting for.
        is_unreachable = isinstance(failure, ClusterUnreachableError) and not self._is_known
        return failure if is_unreachable else None

    def _pause(self, *, is_complete: bool) -> None:
        self._asking = _Asking.PAUSING
        self._attempt = 0 if is_complete else self._attempt + 1
        self.is_wanted = self.is_wanted or not is_complete
        self._turn.arm(TimerKind.METADATA_PAUSE, 0, self._turn.backoff_seconds(self._attempt))

    def on_pause_over(self) -> None:
        self._asking = _Asking.IDLE
        self._age_count += 1
        if not self.is_wanted:
            self._turn.arm(TimerKind.METADATA_AGE, self._age_count, self._max_age_seconds)

    def on_aged(self, age_count: int) -> None:
        self.is_wanted = self.is_wanted or age_count == self._age_count


# The consumer itself is a stream, too; each stream has a buffer of its own, and each partition
# belongs to one stream at a time. A stream is idle while the program waits in a poll: then the
# program has dealt with all that it was given, and the loop may touch the buffer. Between polls the
# buffer is the program's. What the program was given is behind the buffers; what it has
# dealt with is in the table of positions, and is what gets committed.


class ConsumerStream:
    """One stream of records, with its buffer."""

    def __init__(self, decoding: Decoding, now: float) -> None:
        self.buffer = FetchBuffer(decoding)
        self.partitions: set[TopicPartition] = set()
        self.is_idle = True  # nobody has taken anything yet
        self.is_retired = False
        self._active_at = now
        self._sign_of_life = self.buffer.sign_of_life

    def start_processing(self, now: float) -> None:
        """The program works on records from now on."""
        self.is_idle = False
        self._active_at = now
        self._sign_of_life = self.buffer.sign_of_life

    def idle_seconds(self, now: float) -> float:
        """How long the program has asked this stream for nothing."""
        if self.is_idle:
            return 0.0
        sign = self.buffer.sign_of_life
        if sign != self._sign_of_life:
            self._sign_of_life, self._active_at = sign, now
        return now - self._active_at


class ConsumerStreams:
    """All streams of one consumer: the consumer itself, or as many as it was split into."""

    def __init__(self, subscriptions: SubscriptionState, decoding: Decoding, now: float) -> None:
        self._subscriptions = subscriptions
        self._decoding = decoding
        self._all = [ConsumerStream(decoding, now)]
        self._void: set[TopicPartition] = set()  # what was given of these does not count

    def __iter__(self) -> Iterator[ConsumerStream]:
        return iter(self._all)

    @property
    def first(self) -> ConsumerStream:
        return self._all[0]

    @property
    def all_idle(self) -> bool:
        return all(stream.is_idle for stream in self._all)

    def idle_seconds(self, now: float) -> float:
        return max(stream.idle_seconds(now) for stream in self._all)

    # Whose partitions

    def split(self, count: int, now: float) -> tuple[ConsumerStream, ...]:
        """Have so many streams in place of those before."""
        partitions = {partition for stream in self._all for partition in stream.partitions}
        self._all = [ConsumerStream(self._decoding, now) for _ in range(count)]
        self.route(partitions)
        return tuple(self._all)

    def route(self, partitions: Iterable[TopicPartition]) -> None:
        """Give each partition to the stream that has fewest."""
        live = [stream for stream in self._all if not stream.is_retired]
        for partition in sorted(partitions):
            if live:
                min(live, key=_partition_count).partitions.add(partition)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        for stream in self._all:
            stream.partitions.difference_update(partitions)
            stream.buffer.drop(partitions)

    def retire(self, stream: ConsumerStream) -> None:
        """The stream takes nothing any more; others get its partitions."""
        stream.is_retired = stream.is_idle = True
        left, stream.partitions = stream.partitions, set()
        stream.buffer.drop(left)
        self.route(left)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Give nothing of exactly these."""
        for stream in self._all:
            stream.buffer.pause(partitions)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Give nothing more of these; what was given counts still."""
        for stream in self._all:
            stream.buffer.stop(partitions)

    # What was given

    def position(self, partition: TopicPartition) -> Position | None:
        """What the program is given next; raises NotAssignedError."""
        state = self._subscriptions.require(partition)
        for stream in self._all:
            given = stream.buffer.position(partition)
            if given is not None and partition not in self._void:
                return given
        return state.position

    def given_positions(self) -> dict[TopicPartition, Position]:
        """Behind all that the program was given."""
        found = {state.partition: self.position(state.partition) for state in self._subscriptions}
        return {partition: at for partition, at in found.items() if at is not None}

    # What was dealt with

    def finish_processing(self, stream: ConsumerStream, *, has_failed: bool = False) -> None:
        """The program has dealt with all that this stream gave it, perhaps but for the last
        record, and takes nothing for now."""
        failed = stream.buffer.find_failed() if has_failed else {}
        self._advance(stream.buffer.mark_processed())
        self._advance(failed)
        stream.is_idle = True

    def finish_all(self, *, has_failed: bool) -> None:
        for stream in self._all:
            self.finish_processing(stream, has_failed=has_failed)

    def _advance(self, moved: Mapping[TopicPartition, Position]) -> None:
        if self._void:
            moved = {p: at for p, at in moved.items() if p not in self._void}
        self._subscriptions.advance(moved)

    # What does not count

    @property
    def has_void(self) -> bool:
        return bool(self._void)

    def make_void(self, partition: TopicPartition) -> None:
        """What was given does not count. The program may be at work on it, so buffers are
        cleared when it polls."""
        self._void.add(partition)

    def clear_void(self) -> None:
        """The program is in."""
        if self._void:
            self.start_over(tuple(self._void))

    def start_over(self, partitions: Collection[TopicPartition]) -> None:
        """The program is in: forget what it was given of these, and what it would be given."""
        for stream in self._all:
            stream.buffer.drop(partitions)
        self._void.difference_update(partitions)


def _partition_count(stream: ConsumerStream) -> int:
    return len(stream.partitions)
