"""A shard: the transactional ids of one partition of `__transaction_state`, while this broker leads
it.

It loads the log, then handles one event after the other: append the records, apply them, let the
answer go and the markers out when everything before them is committed. It decides nothing;
`rules.transactions` does. A shell, owned by the event loop: an event is handled without an `await`
in its middle.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from moldau.clock import Clock, Timer
from moldau.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    NotCoordinatorError,
)
from moldau.model import TopicPartition
from moldau.records.batch_header import BatchHeader
from moldau.records.batch_reader import records_of
from moldau.shards.commit_queue import APPEND_ERRORS, CommitQueue
from moldau.shards.leads import Eventually
from moldau.transactions.rules.transaction_events import (
    MarkersToWrite,
    MarkersWritten,
    TransactionAnswer,
    TransactionEvent,
    TransactionOutcome,
    TransactionRecord,
    markers_of,
)
from moldau.transactions.rules.transactions import Transactions
from moldau.transactions.transaction_log import decode_transaction, encode_transaction

T = TypeVar("T")

_log = logging.getLogger(__name__)

_APPLIED_AT_ONCE = 200
"""Records that are decoded and applied in about a millisecond."""

_PAUSE_SECONDS = 1.0
"""Before an end that could not be logged is logged again."""


class TransactionShardLog(Protocol):
    """`shards.state_log.StateLog`, as far as it is needed here."""

    def watch(self, on_commit: Callable[[], None]) -> None: ...

    def close(self) -> None: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def is_safe(self) -> bool: ...

    def append(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None: ...

    def batches(self) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]: ...


class MarkerOrder(NamedTuple):
    """Markers for the leaders of partitions, in the name of one coordinator."""

    markers: MarkersToWrite
    coordinator_epoch: int
    on_written: Callable[[frozenset[TopicPartition]], None]
    """Called, perhaps several times, with partitions that have their marker."""
    is_wanted: Callable[[], bool]
    """No more once another broker coordinates: that one sends the rest."""


class _Unsent(NamedTuple):
    end_offset: int
    markers: MarkersToWrite


class TransactionShard:
    """`load` once, then `submit` and `ask`; `close` at the end."""

    def __init__(
        self,
        name: str,
        log: TransactionShardLog,
        *,
        coordinator_epoch: int,
        clock: Clock,
        commit_timeout_ms: Callable[[], int],
        value_version: Callable[[], int],
        send: Callable[[MarkerOrder], None],
    ) -> None:
        self.name = name
        self._log = log
        self._coordinator_epoch = coordinator_epoch
        self._clock = clock
        self._value_version = value_version
        self._send = send
        self._transactions = Transactions()
        self._queue = CommitQueue(log, clock, commit_timeout_ms)
        self._unsent: deque[_Unsent] = deque()  # decisions that are not committed yet (TXN-3)
        self._again: set[Timer] = set()
        self._watchers: dict[str, list[asyncio.Future[None]]] = {}  # by transactional id
        self._is_loaded = False
        self._is_closed = False
        self.on_torn: Callable[[], None] | None = None
        log.watch(self._release)

    def __len__(self) -> int:
        return len(self._transactions)

    # Life

    async def load(self) -> None:
        """Apply what is in the log, to nothing: it may have been begun before, and failed."""
        self._transactions = Transactions()
        count = 0
        async with aclosing(self._log.batches()) as batches:
            async for header, batch in batches:
                if self._is_closed:
                    return
                for record in self._decode(header, batch):
                    self._transactions.apply(record)
                    count += 1
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
            for markers in self._transactions.markers():
                self._order(markers)

    def _decode(self, header: BatchHeader, batch: memoryview) -> list[TransactionRecord]:
        if header.is_control:
            return []
        found = []
        for row in records_of(batch, header):
            try:
                record = decode_transaction(row.key, row.value)
            except InvalidRecordError as error:
                _log.warning("%s at offset %d is left out: %s", self.name, row.offset, error)
                continue
            if record is not None:
                found.append(record)
        return found

    def close(self) -> None:
        """Send everyone away: another broker coordinates these ids now, or none does."""
        self._is_closed = True
        self._log.close()
        for timer in self._again:
            timer.cancel()
        self._again.clear()
        self._unsent.clear()
        self._queue.close(ErrorCode.not_coordinator)
        for transactional_id in tuple(self._watchers):
            self._wake(transactional_id)

    # Requests

    def submit(self, event: TransactionEvent) -> Eventually[TransactionAnswer]:
        """Handle a client's request."""
        self._require_ready()
        answer, error = self._handle(event)
        if answer is None:
            answer = TransactionAnswer()
        if error is not None:
            return TransactionAnswer(error)
        return self._when_committed(answer, _refuse)

    def ask(self, question: Callable[[Transactions], T]) -> Eventually[T]:
        """Look something up; the answer speaks of nothing that could still be lost."""
        self._require_ready()
        return self._when_committed(question(self._transactions), self._raise)

    def peek(self, question: Callable[[Transactions], T]) -> T:
        """Look something up that only helps to decide what to ask."""
        self._require_ready()
        return question(self._transactions)

    async def wait_until_completed(self, transactional_id: str, timeout_seconds: float) -> None:
        """Return when nothing of the id is prepared any more, or time is over."""
        self._require_ready()
        if not self._transactions.is_prepared(transactional_id):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(transactional_id, []).append(future)
        timer = self._clock.call_later(timeout_seconds, partial(_finish, future))
        try:
            await future
        finally:
            timer.cancel()

    def report(self, event: TransactionEvent) -> None:
        """Handle what happened by itself; nobody waits for an answer."""
        if not self._is_loaded or self._is_closed:
            return
        _, error = self._handle(event)
        if error is not None and isinstance(event, MarkersWritten):
            self._report_again(event)

    def _report_again(self, event: MarkersWritten) -> None:
        def fire() -> None:
            self._again.discard(timer)
            self.report(event)

        timer = self._clock.call_later(_PAUSE_SECONDS, fire)
        self._again.add(timer)

    def _require_ready(self) -> None:
        if self._is_closed:
            raise NotCoordinatorError(f"{self.name} is led by another broker")
        if not self._is_loaded:
            raise CoordinatorLoadInProgressError(f"{self.name} is being loaded")

    # Handling

    def _handle(self, event: TransactionEvent) -> tuple[TransactionAnswer | None, ErrorCode | None]:
        outcome = self._transactions.handle(event, self._clock.now_ms())
        error = self._write(outcome) if outcome.records else None
        if outcome.note is not None and error is None:
            _log.info("transactional id %s: %s", event.transactional_id, outcome.note)
        return outcome.answer, error

    def _write(self, outcome: TransactionOutcome) -> ErrorCode | None:
        """Append and apply. After an error nothing has happened, or the shard is torn."""
        former_end = self._log.end_offset
        version = self._value_version()
        try:
            self._log.append([encode_transaction(one, version) for one in outcome.records])
        except KafkaError as error:
            if self._log.end_offset != former_end:
                self._tear(error)
            _log.warning("cannot write to %s: %s", self.name, error)
            return APPEND_ERRORS.get(error.code, error.code)
        for record in outcome.records:
            self._transactions.apply(record, is_live=True)
        last = outcome.records[-1]
        if last.metadata is not None and last.metadata.state.is_prepared:
            self._unsent.append(_Unsent(self._log.end_offset, markers_of(last.metadata)))
        self._send_committed()
        self._wake(last.transactional_id)
        return None

    def _tear(self, error: KafkaError) -> None:
        """Some of the records are in the log and nobody knows which: only the log can tell."""
        _log.error("%s was written in part and is loaded again: %s", self.name, error)
        self.close()
        if self.on_torn is not None:
            self.on_torn()

    def _wake(self, transactional_id: str) -> None:
        """Whoever waits for the end of a transaction goes on."""
        if self._is_closed or not self._transactions.is_prepared(transactional_id):
            for future in self._watchers.pop(transactional_id, ()):
                _finish(future)

    # Commitment

    def _release(self) -> None:
        """The log's commitment may have moved on."""
        self._queue.release()
        self._send_committed()

    def _send_committed(self) -> None:
        """Markers leave when their decision is there to stay (TXN-3)."""
        committed = self._log.committed_offset
        while self._unsent and self._unsent[0].end_offset <= committed:
            self._order(self._unsent.popleft().markers)

    def _order(self, markers: MarkersToWrite) -> None:
        def on_written(partitions: frozenset[TopicPartition]) -> None:
            event = MarkersWritten(
                transactional_id=markers.transactional_id,
                producer=markers.producer,
                partitions=partitions,
            )
            self.report(event)

        self._send(
            MarkerOrder(markers, self._coordinator_epoch, on_written, lambda: not self._is_closed)
        )

    def _when_committed(self, value: T, refuse: Callable[[ErrorCode], T]) -> Eventually[T]:
        if self._queue.is_committed:
            return value
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def let_go(error: ErrorCode | None) -> None:
            if future.done():
                return
            if error is None and not self._log.is_safe:
                error = ErrorCode.coordinator_not_available  # too few replicas have it
            try:
                future.set_result(value if error is None else refuse(error))
            except KafkaError as refusal:
                future.set_exception(refusal)

        self._queue.hold(let_go)
        return future

    def _raise(self, error: ErrorCode) -> T:  # type: ignore[type-var]
        if error is ErrorCode.not_coordinator:
            raise NotCoordinatorError(f"{self.name} is led by another broker")
        raise CoordinatorNotAvailableError(f"{self.name} is not in sync")


def _refuse(error: ErrorCode) -> TransactionAnswer:
    return TransactionAnswer(error)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
