"""A shard: the groups of one partition of the offsets topic, while this broker leads it.

It loads the log, then handles one event after the other: append the records, apply them, arm and
stop timers, and let the replies go when everything before them is committed. It decides nothing;
`rules.groups` does. When the broker stops leading the partition the shard is closed and thrown
away, and whoever leads next loads the log.

A shell, owned by the event loop: an event is handled without an `await` in its middle.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, TypeVar

from moldau.clock import Clock, Timer
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    NotCoordinatorError,
)
from moldau.groups.rules.answers import GroupAnswer, refusal_like
from moldau.groups.rules.events import Abandon, AppendFailed, GroupEvent, GroupTimer, TimerFired
from moldau.groups.rules.groups import NO_REQUEST, Groups
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.outcome import Arm, Disarm, Effect, Follow, LogMessage, Outcome
from moldau.groups.rules.records import TransactionEnd
from moldau.groups.shard_log import ShardLog
from moldau.records.control_records import ControlType, EndTransactionMarker
from moldau.shards.leads import Eventually

T = TypeVar("T")

_log = logging.getLogger(__name__)

_APPLIED_AT_ONCE = 200
"""Records that are decoded and applied in about a millisecond."""

_APPEND_ERRORS = {
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.invalid_record: ErrorCode.unknown_server_error,
}
"""What a client of a group is told when its coordinator cannot write: Kafka's choice."""


_FAULTS_OF_PRODUCERS = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state})
"""The log is sound: a producer was fenced, or its transaction is over."""


class _Held(NamedTuple):
    """Something that may go when the log is committed up to an offset."""

    end_offset: int
    deadline: float
    let_go: Callable[[ErrorCode | None], None]


class Shard:
    """The coordinator of some groups. `load` once, then `submit` and `ask`; `close` at the end."""

    def __init__(
        self,
        name: str,
        log: ShardLog,
        *,
        limits: GroupLimits,
        clock: Clock,
        image: Callable[[], MetadataImage],
        commit_timeout_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self._log = log
        self._groups = Groups(limits)
        self._clock = clock
        self._image = image
        self._commit_timeout_ms = commit_timeout_ms
        self._requests = itertools.count()
        self._waiting: dict[int, asyncio.Future[GroupAnswer]] = {}  # requests without an answer yet
        self._held: deque[_Held] = deque()  # in the order of their offsets
        self._commit_timer: Timer | None = None  # for the first of them
        self._timers: dict[GroupTimer, Timer] = {}
        self._is_loaded = False
        self._is_refused = False  # the last write to the log did not succeed
        self._is_closed = False
        self.on_torn: Callable[[], None] | None = None
        """Told when this shard is closed because it may differ from its log."""
        log.watch(self._release)

    # Life

    async def load(self) -> None:
        """Apply what is in the log, to nothing: it may have been begun before, and failed."""
        self._groups = Groups(self._groups.limits)
        count = 0
        async with aclosing(self._log.load()) as pieces:
            async for records in pieces:
                if self._is_closed:
                    return
                for record in records:
                    self._groups.apply(record)
                count += len(records)
                if count >= _APPLIED_AT_ONCE:
                    count = 0
                    await self._clock.sleep(0)
        self._begin()

    def load_nothing(self) -> None:
        """The log is empty: no need to wait for anything."""
        self._begin()

    def _begin(self) -> None:
        if not self._is_closed:
            self._is_loaded = True
            self._perform(self._groups.begin(), NO_REQUEST)

    def close(self) -> None:
        """Send everyone away: another broker coordinates these groups now, or none does."""
        self._is_closed = True
        self._log.close()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        waiting, self._waiting = self._waiting, {}
        held, self._held = self._held, deque()
        for future in waiting.values():
            if not future.done():
                future.set_exception(NotCoordinatorError(f"{self.name} is led by another broker"))
        for one in held:
            one.let_go(ErrorCode.not_coordinator)

    def set_limits(self, limits: GroupLimits) -> None:
        self._groups.limits = limits

    # Requests

    def submit(self, event: GroupEvent) -> Eventually[GroupAnswer]:
        """Handle a client's request."""
        self._require_ready()
        request = next(self._requests)
        answer = self._handle(event, request)
        if answer is not None:
            return answer
        future: asyncio.Future[GroupAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        future.add_done_callback(partial(self._forget_request, request, event.group_id))
        return future

    def end_transaction(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> int:
        """Log the end of a producer's transaction and apply it to all groups here (TXP-5).

        Returns the offset up to which the log has to be committed before anybody is told.
        """
        self._require_ready()
        former_end = self._log.end_offset
        try:
            self._log.append_marker(marker, producer_id, producer_epoch, transaction_version)
        except KafkaError as error:
            if self._log.end_offset != former_end:
                self._tear(error)
            raise
        is_commit = marker.control_type is ControlType.COMMIT
        self._groups.apply(TransactionEnd(producer_id, is_commit))
        return self._log.end_offset

    def report(self, event: GroupEvent) -> None:
        """Handle what happened by itself; nobody waits for an answer."""
        if self._is_loaded and not self._is_closed:
            self._handle(event, NO_REQUEST)

    def ask(self, question: Callable[[Groups], T]) -> Eventually[T]:
        """Look something up; the answer speaks of nothing that could still be lost."""
        self._require_ready()
        found = question(self._groups)
        if self._log.end_offset <= self._log.committed_offset:
            return found
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def let_go(error: ErrorCode | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(CoordinatorNotAvailableError(f"{self.name} is not in sync"))

        self._hold(let_go)
        return future

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(group.group_id for group in self._groups)

    @property
    def waiting_count(self) -> int:
        """Requests that are parked here."""
        return len(self._waiting)

    @property
    def timer_count(self) -> int:
        return len(self._timers)

    def _require_ready(self) -> None:
        if self._is_closed:
            raise NotCoordinatorError(f"{self.name} is led by another broker")
        if not self._is_loaded:
            raise CoordinatorLoadInProgressError(f"{self.name} is being loaded")

    def _forget_request(
        self, request: int, group_id: str, future: asyncio.Future[GroupAnswer]
    ) -> None:
        """Called when a waiting request has its answer, or its client is gone."""
        was_waiting = self._waiting.pop(request, None) is not None
        if was_waiting and future.cancelled():
            self.report(Abandon(group_id=group_id, request=request))

    # Handling

    def _handle(self, event: GroupEvent, request: int) -> GroupAnswer | None:
        outcome = self._groups.handle(event, self._clock.now_ms(), request, self._image())
        return self._perform(outcome, request, event.group_id)

    def _perform(
        self, outcome: Outcome, own_request: int, group_id: str = ""
    ) -> GroupAnswer | None:
        """Do what has to be done. Returns the answer to the event's own request if it may go."""
        error = self._write(outcome) if outcome.records else None
        for effect in outcome.effects:
            if not isinstance(effect, Follow):
                self._do(effect)
        # A shard that was torn just now has only refusals to give, and nothing to wait for.
        is_committed = self._is_closed or self._log.end_offset <= self._log.committed_offset
        own_answer = None
        for request, answer in outcome.replies:
            final = answer if error is None else refusal_like(answer, error)
            if not is_committed:
                self._hold(partial(self._let_go, request, final, bool(outcome.records)))
            elif request == own_request:
                own_answer = final
            else:
                self._deliver(request, final)
        for effect in outcome.effects:
            if isinstance(effect, Follow) and error is None:
                self.report(effect.event)
        if error is not None and outcome.must_be_logged:
            self._handle(AppendFailed(group_id=group_id), NO_REQUEST)
        return own_answer

    def _write(self, outcome: Outcome) -> ErrorCode | None:
        """Append and apply (GRP-8). After an error nothing has happened, or the shard is torn."""
        records, transaction = outcome.records, outcome.transaction
        former_end = self._log.end_offset
        try:
            if transaction is None:
                self._log.append(records)
            else:
                self._log.append_in_transaction(records, transaction)
        except KafkaError as error:
            if self._log.end_offset != former_end:
                self._tear(error)
            if error.code in _FAULTS_OF_PRODUCERS:
                return error.code
            if not self._is_refused:  # once: members repeat their requests many times a second
                _log.error("cannot write to %s: %s", self.name, error)
            self._is_refused = True
            return _APPEND_ERRORS.get(error.code, error.code)
        self._is_refused = False
        for record in records:
            self._groups.apply(record)
        return None

    def _tear(self, error: KafkaError) -> None:
        """Some of the records are in the log and nobody knows which: only the log can tell."""
        _log.error("%s was written in part, its groups are loaded again: %s", self.name, error)
        self.close()
        if self.on_torn is not None:
            self.on_torn()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Arm(timer, delay_ms):
                self._arm(timer, delay_ms)
            case Disarm(timer):
                armed = self._timers.pop(timer, None)
                if armed is not None:
                    armed.cancel()
            case LogMessage(group_id, message):
                _log.info("group %s: %s", group_id, message)

    def _arm(self, timer: GroupTimer, delay_ms: int) -> None:
        armed = self._timers.pop(timer, None)
        if armed is not None:
            armed.cancel()
        self._timers[timer] = self._clock.call_later(delay_ms / 1000, partial(self._fire, timer))

    def _fire(self, timer: GroupTimer) -> None:
        del self._timers[timer]
        self.report(TimerFired(timer=timer))

    # Answers

    def _deliver(self, request: int, answer: GroupAnswer) -> None:
        future = self._waiting.pop(request, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def _let_go(
        self, request: int, answer: GroupAnswer, has_written: bool, error: ErrorCode | None
    ) -> None:
        if error is None and has_written and not self._log.is_safe:
            error = ErrorCode.coordinator_not_available  # too few replicas have it: as a produce
        self._deliver(request, answer if error is None else refusal_like(answer, error))

    def _hold(self, let_go: Callable[[ErrorCode | None], None]) -> None:
        timeout_seconds = self._commit_timeout_ms() / 1000
        deadline = self._clock.monotonic() + timeout_seconds
        self._held.append(_Held(self._log.end_offset, deadline, let_go))
        if self._commit_timer is None:
            self._commit_timer = self._clock.call_later(timeout_seconds, self._time_out)

    def _release(self) -> None:
        """The log's commitment may have moved on."""
        committed = self._log.committed_offset
        while self._held and self._held[0].end_offset <= committed:
            self._held.popleft().let_go(None)

    def _time_out(self) -> None:
        """The replicas do not follow: whoever has waited long enough is told to ask again."""
        self._commit_timer = None
        now = self._clock.monotonic()
        while self._held and self._held[0].deadline <= now:
            self._held.popleft().let_go(ErrorCode.coordinator_not_available)
        if self._held:
            left_seconds = self._held[0].deadline - now
            self._commit_timer = self._clock.call_later(left_seconds, self._time_out)
