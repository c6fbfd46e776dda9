"""What the shards of all coordinators do alike, around a machine of rules.

A shard loads the log of its partition, then logs and applies what its machine decides, and lets
nobody know of anything that could still be lost. When another broker leads the partition the shard
is closed and thrown away, and whoever leads next loads the log. What the machine decides, and what
else follows from it, is the business of the coordinator's own shard.

A shell, owned by the event loop: an event is handled without an `await` in its middle.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from moldau.clock import Clock, Timer
from moldau.coordinators.runtime.log import AppendTransaction
from moldau.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    NotCoordinatorError,
)
from moldau.records.record_batch import EndTransactionMarker

_log = logging.getLogger("moldau.coordinators")

T = TypeVar("T")
Eventually: TypeAlias = T | Awaitable[T]
"""There at once, or to be awaited."""


async def wait_for_answer(answer: Eventually[T]) -> T:
    return await answer if isinstance(answer, Awaitable) else answer


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
"""What a client is told when its coordinator cannot write: Kafka's choice."""

_FAULTS_OF_PRODUCERS = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state})
"""The log is sound: a producer was fenced, or its transaction is over."""

S_contra = TypeVar("S_contra", contravariant=True)  # what is written
R = TypeVar("R")  # what is read: also the ends of transactions


class ShardLog(Protocol[S_contra, R]):
    """What a shard needs of its log (`log.CoordinatorLog`)."""

    def watch(self, on_commit: Callable[[], None]) -> None:
        """Call it, until `close`, when `committed_offset` may have moved."""
        ...

    def close(self) -> None: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int:
        """All before it is there to stay: every in-sync replica has it."""
        ...

    @property
    def is_safe(self) -> bool:
        """Whether so many replicas are in sync that what is committed may be acknowledged."""
        ...

    def append(
        self, records: Sequence[S_contra], transaction: AppendTransaction | None = None
    ) -> None:
        """Append at once, perhaps in a producer's transaction; raises `KafkaError` when that is not
        possible.

        Nothing was appended then, unless `end_offset` has moved: a disk failed in the middle.
        """
        ...

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> None:
        """As `append`: the end of a producer's transaction."""
        ...

    def load(self) -> AsyncGenerator[list[R], None]:
        """Everything in the log, in pieces that are quick to apply."""
        ...


class Machine(Protocol):
    """The rules of a coordinator, as far as they are needed here."""

    def apply(self, record: Any) -> None: ...

    def __len__(self) -> int: ...


M = TypeVar("M", bound=Machine)
S = TypeVar("S")


Complete = Callable[[ErrorCode | None], None]
"""Called once: with None when the log is committed, else with what the client is to be told."""


class CommittedLog(Protocol):
    """How far a log goes, and how far it is there to stay."""

    @property
    def end_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...


class _DeferredEvent(NamedTuple):
    end_offset: int
    deadline: float
    complete: Complete


class DeferredEventQueue:
    """Answers that wait until everything that was logged before them is committed: `add`, then
    `complete_committed` when the log's commitment may have moved; `close` at the end."""

    def __init__(self, log: CommittedLog, clock: Clock, timeout_ms: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._events: deque[_DeferredEvent] = deque()  # in the order of their offsets
        self._timer: Timer | None = None  # for the first of them

    @property
    def is_committed(self) -> bool:
        """Nothing that was written could still be lost."""
        return self._log.end_offset <= self._log.committed_offset

    def add(self, complete: Complete) -> None:
        """Until everything that is in the log now is committed."""
        timeout_seconds = self._timeout_ms() / 1000
        deadline = self._clock.monotonic() + timeout_seconds
        self._events.append(_DeferredEvent(self._log.end_offset, deadline, complete))
        if self._timer is None:
            self._timer = self._clock.call_later(timeout_seconds, self._expire)

    def complete_committed(self) -> None:
        committed = self._log.committed_offset
        while self._events and self._events[0].end_offset <= committed:
            self._events.popleft().complete(None)

    def _expire(self) -> None:
        """The replicas do not follow: clients that have waited long enough have to ask again."""
        self._timer = None
        now = self._clock.monotonic()
        while self._events and self._events[0].deadline <= now:
            self._events.popleft().complete(ErrorCode.coordinator_not_available)
        if self._events:
            left_seconds = self._events[0].deadline - now
            self._timer = self._clock.call_later(left_seconds, self._expire)

    def close(self, error: ErrorCode) -> None:
        """All that wait are refused."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        events, self._events = self._events, deque()
        for one in events:
            one.complete(error)


class CoordinatorShard(ABC, Generic[M, S, R]):
    """`load` once, then `read_state` and what the coordinator's own shard serves; `close` at the
    end."""

    def __init__(
        self,
        name: str,
        log: ShardLog[S, R],
        machine: M,
        *,
        clock: Clock,
        commit_timeout_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self._log = log
        self._machine = machine
        self._clock = clock
        self._deferred = DeferredEventQueue(log, clock, commit_timeout_ms)
        self._is_loaded = False
        self._is_refused = False  # the last write to the log did not succeed
        self.is_closed = False
        self.on_torn: Callable[[], None] | None = None
        """Called when this shard is closed because it may differ from its log."""
        log.watch(self._on_commit)

    def __len__(self) -> int:
        return len(self._machine)

    @property
    def is_active(self) -> bool:
        return self._is_loaded and not self.is_closed

    @abstractmethod
    def _make_machine(self) -> M:
        """One that knows nothing."""

    def _on_loaded(self) -> None:
        """All that is in the log was applied."""

    def _on_commit(self) -> None:
        """The log's commitment may have moved on."""
        self._deferred.complete_committed()

    @abstractmethod
    def report(self, event: Any) -> None:
        """Handle what happened by itself; nobody waits for an answer."""

    # Life

    async def load(self) -> None:
        """Apply what is in the log, to nothing: it may have been begun before, and failed."""
        machine = self._machine = self._make_machine()
        count = 0
        async with aclosing(self._log.load()) as pieces:
            async for records in pieces:
                if self.is_closed:
                    return
                for record in records:
                    machine.apply(record)
                count += len(records)
                if count >= _APPLIED_AT_ONCE:
                    count = 0
                    await self._clock.sleep(0)
        self.become_active()

    def become_active(self) -> None:
        """The log has been applied, or is empty."""
        if not self.is_closed:
            self._is_loaded = True
            self._on_loaded()

    def close(self) -> None:
        """Send everyone away: another broker coordinates what is here now, or none does."""
        self.is_closed = True
        self._log.close()
        self._deferred.close(ErrorCode.not_coordinator)

    def _tear(self, error: KafkaError) -> None:
        """Some of the records are in the log and nobody knows which: only the log can tell."""
        _log.error("%s was written in part and is loaded again: %s", self.name, error)
        self.close()
        if self.on_torn is not None:
            self.on_torn()

    # Requests

    def peek_state(self, read: Callable[[M], T]) -> T:
        """Look up what only helps to decide about a request: it could still be lost."""
        self._require_active()
        return read(self._machine)

    def read_state(self, read: Callable[[M], T]) -> Eventually[T]:
        """Look something up; the answer speaks of nothing that could still be lost."""
        found = self.peek_state(read)
        if self._deferred.is_committed:
            return found
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def complete(error: ErrorCode | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(found)
            elif error is ErrorCode.not_coordinator:
                future.set_exception(self._not_coordinator())
            else:
                future.set_exception(CoordinatorNotAvailableError(f"{self.name} is not in sync"))

        self._deferred.add(complete)
        return future

    def _answer_when_committed(
        self, answer: T, refuse: Callable[[ErrorCode], T], *, has_written: bool = True
    ) -> Eventually[T]:
        if self._deferred.is_committed:
            return answer
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def complete(error: ErrorCode | None) -> None:
            fault = self._find_fault(error) if has_written else error
            if not future.done():
                future.set_result(answer if fault is None else refuse(fault))

        self._deferred.add(complete)
        return future

    def _require_active(self) -> None:
        if self.is_closed:
            raise self._not_coordinator()
        if not self._is_loaded:
            raise CoordinatorLoadInProgressError(f"{self.name} is being loaded")

    def _not_coordinator(self) -> NotCoordinatorError:
        return NotCoordinatorError(f"{self.name} is led by another broker")

    def _find_fault(self, error: ErrorCode | None) -> ErrorCode | None:
        """Of something that was written: too few replicas having it is as with a produce."""
        if error is None and not self._log.is_safe:
            return ErrorCode.coordinator_not_available
        return error

    # Writing

    def _append(
        self, records: Sequence[S], transaction: AppendTransaction | None = None
    ) -> ErrorCode | None:
        """What the client is told, unless the records are in the log and are to be applied. After
        an error nothing has happened, or the shard is torn."""
        former_end = self._log.end_offset
        try:
            self._log.append(records, transaction)
        except KafkaError as error:
            if self._log.end_offset != former_end:
                self._tear(error)
            if error.code in _FAULTS_OF_PRODUCERS:
                return error.code
            if not self._is_refused:  # once: clients repeat their requests many times a second
                _log.error("cannot write to %s: %s", self.name, error)
            self._is_refused = True
            return _APPEND_ERRORS.get(error.code, error.code)
        self._is_refused = False
        return None
