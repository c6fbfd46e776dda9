"""A shard: the groups of one partition of the offsets topic, while this broker leads it.

It handles one event after the other: append the records, apply them, arm and stop timers, and let
the replies go when everything before them is committed. It decides nothing; `rules.groups` does.
A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from moldau.clock import Clock, Timer
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assignors import TaskAssignmentSlices
from moldau.coordinators.groups.rules.events import (
    Abandon,
    AppendFailed,
    GroupAnswer,
    GroupEvent,
    GroupRequest,
    GroupTimer,
    TasksAssigned,
    TimerFired,
    refusal_like,
)
from moldau.coordinators.groups.rules.groups import NO_REQUEST, AnyGroup, Groups
from moldau.coordinators.groups.rules.outcome import (
    Arm,
    AssignTasks,
    Disarm,
    Effect,
    Follow,
    GroupLimits,
    InitializeStates,
    LogMessage,
    Outcome,
)
from moldau.coordinators.groups.rules.records import CoordinatorRecord, StoredRecord, TransactionEnd
from moldau.coordinators.runtime.shard import CoordinatorShard, Eventually, ShardLog
from moldau.errors import ErrorCode, KafkaError
from moldau.records.record_batch import ControlType, EndTransactionMarker

A = TypeVar("A")

_log = logging.getLogger("moldau.coordinators")


class GroupShard(CoordinatorShard[Groups, StoredRecord, CoordinatorRecord]):
    """The coordinator of some groups. `load` once, then `submit` and `ask`; `close` at the end."""

    def __init__(
        self,
        name: str,
        log: ShardLog[StoredRecord, CoordinatorRecord],
        *,
        limits: GroupLimits,
        clock: Clock,
        image: Callable[[], MetadataImage],
        commit_timeout_ms: Callable[[], int],
        on_message: Callable[[LogMessage], None] = lambda message: None,
        initialize: Callable[[GroupShard, InitializeStates], None] | None = None,
        on_loaded: Callable[[GroupShard], None] = lambda shard: None,
    ) -> None:
        super().__init__(
            name, log, Groups(limits), clock=clock, commit_timeout_ms=commit_timeout_ms
        )
        self._image = image
        self._on_message = on_message
        self._initialize = initialize  # has share coordinators begin states
        self._notify_loaded = on_loaded
        self._requests = itertools.count()
        self._waiting: dict[int, asyncio.Future[GroupAnswer]] = {}  # requests without an answer yet
        self._timers: dict[GroupTimer, Timer] = {}
        self._assigning: dict[str, Timer] = {}  # the next slice of a streams group's assignment

    # Life

    def _make_machine(self) -> Groups:
        return Groups(self._machine.limits)

    def _on_loaded(self) -> None:
        self._perform(self._machine.start_timers(self._image()), NO_REQUEST)
        if self._machine:
            self._notify_loaded(self)

    def close(self) -> None:
        for timer in (*self._timers.values(), *self._assigning.values()):
            timer.cancel()
        self._timers.clear()
        self._assigning.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._not_coordinator())
        super().close()

    def set_limits(self, limits: GroupLimits) -> None:
        self._machine.limits = limits

    # Requests

    def submit(self, event: GroupRequest[A]) -> Eventually[A]:
        """Handle a client's request."""
        self._require_active()
        request = next(self._requests)
        answer = self._handle(cast("GroupEvent", event), request)
        if answer is not None:
            return cast("A", answer)
        future: asyncio.Future[GroupAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        future.add_done_callback(partial(self._forget_request, request, event.group_id))
        return cast("asyncio.Future[A]", future)

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
        self._require_active()
        former_end = self._log.end_offset
        try:
            self._log.append_marker(marker, producer_id, producer_epoch, transaction_version)
        except KafkaError as error:
            if self._log.end_offset != former_end:
                self._tear(error)
            raise
        is_commit = marker.control_type is ControlType.COMMIT
        self._machine.apply(TransactionEnd(producer_id, is_commit))
        return self._log.end_offset

    def report(self, event: GroupEvent) -> None:
        """Handle what happened by itself; nobody waits for an answer."""
        if self.is_active:
            self._handle(event, NO_REQUEST)

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(group.group_id for group in self._machine)

    @property
    def groups(self) -> tuple[AnyGroup, ...]:
        """Those that are loaded; none of a shard that is still being loaded."""
        return tuple(self._machine) if self._is_loaded else ()

    @property
    def waiting_count(self) -> int:
        """Requests that are parked here."""
        return len(self._waiting)

    @property
    def timer_count(self) -> int:
        return len(self._timers)

    def _forget_request(
        self, request: int, group_id: str, future: asyncio.Future[GroupAnswer]
    ) -> None:
        """Called when a waiting request has its answer, or its client is gone."""
        was_waiting = self._waiting.pop(request, None) is not None
        if was_waiting and future.cancelled():
            self.report(Abandon(group_id=group_id, request=request))

    # Handling

    def _handle(self, event: GroupEvent, request: int) -> GroupAnswer | None:
        outcome = self._machine.handle(event, self._clock.now_ms(), request, self._image())
        return self._perform(outcome, request, event.group_id)

    def _perform(
        self, outcome: Outcome, own_request: int, group_id: str = ""
    ) -> GroupAnswer | None:
        """Do what has to be done. Returns the answer to the event's own request if it may go."""
        error = self._write(outcome) if outcome.records else None
        for effect in outcome.effects:
            self._do(effect)
        # A shard that was torn just now has only refusals to give, and nothing to wait for.
        is_committed = self.is_closed or self._deferred.is_committed
        own_answer = None
        for request, answer in outcome.replies:
            final = answer if error is None else refusal_like(answer, error)
            if not is_committed:
                self._deferred.add(partial(self._complete, request, final, bool(outcome.records)))
            elif request == own_request:
                own_answer = final
            else:
                self._deliver(request, final)
        if error is None:
            for effect in outcome.effects:
                self._begin_what_follows(effect)
        elif outcome.must_be_logged:
            self._handle(AppendFailed(group_id=group_id), NO_REQUEST)
        return own_answer

    def _write(self, outcome: Outcome) -> ErrorCode | None:
        """Append and apply (GRP-8)."""
        error = self._append(outcome.records, outcome.transaction)
        if error is None:
            for record in outcome.records:
                self._machine.apply(record)
        return error

    def _do(self, effect: Effect) -> None:
        """What is done whether or not the records of its event could be logged."""
        match effect:
            case Arm(timer, delay_ms):
                self._arm(timer, delay_ms)
            case Disarm(timer):
                armed = self._timers.pop(timer, None)
                if armed is not None:
                    armed.cancel()
            case LogMessage(group_id, message):
                _log.info("group %s: %s", group_id, message)
                self._on_message(effect)

    def _begin_what_follows(self, effect: Effect) -> None:
        """What is only done once the records of its event are logged."""
        match effect:
            case Follow(event):
                self.report(event)
            case InitializeStates() if self._initialize is not None:
                self._initialize(self, effect)
            case AssignTasks(assignment=assignment):
                self._assign(effect, assignment.in_slices())

    def _arm(self, timer: GroupTimer, delay_ms: int) -> None:
        armed = self._timers.pop(timer, None)
        if armed is not None:
            armed.cancel()
        self._timers[timer] = self._clock.call_later(delay_ms / 1000, partial(self._fire, timer))

    def _fire(self, timer: GroupTimer) -> None:
        del self._timers[timer]
        self.report(TimerFired(timer=timer))

    def _assign(self, order: AssignTasks, slices: TaskAssignmentSlices) -> None:
        """The next slice, when everybody else had a turn."""
        former = self._assigning.pop(order.group_id, None)
        if former is not None:
            former.cancel()
        advance = partial(self._advance, order, slices)
        self._assigning[order.group_id] = self._clock.call_later(0, advance)

    def _advance(self, order: AssignTasks, slices: TaskAssignmentSlices) -> None:
        try:
            next(slices)
        except StopIteration as end:
            del self._assigning[order.group_id]
            group_id, epoch = order.group_id, order.epoch
            self.report(TasksAssigned(group_id=group_id, epoch=epoch, targets=end.value))
        else:
            self._assign(order, slices)

    # Answers

    def _deliver(self, request: int, answer: GroupAnswer) -> None:
        future = self._waiting.pop(request, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def _complete(
        self, request: int, answer: GroupAnswer, has_written: bool, error: ErrorCode | None
    ) -> None:
        if has_written:
            error = self._find_fault(error)
        self._deliver(request, answer if error is None else refusal_like(answer, error))
