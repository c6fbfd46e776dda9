"""A shard: the transactional ids of one partition of `__transaction_state`, while this broker leads
it.

It handles one event after the other: append the records, apply them, let the answer go and the
markers out when everything before them is committed. It decides nothing; `rules.transactions` does.
A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from moldau.clock import Clock, Timer
from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.shards.state_shard import Eventually, ShardLog, StateShard
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

T = TypeVar("T")

_log = logging.getLogger("moldau.coordinators")

_PAUSE_SECONDS = 1.0
"""Before an end that could not be logged is logged again."""


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


class TransactionShard(StateShard[Transactions, TransactionRecord, TransactionRecord]):
    """The coordinator of some transactional ids: `load` once, then `submit` and `ask`; `close` at
    the end."""

    def __init__(
        self,
        name: str,
        log: ShardLog[TransactionRecord, TransactionRecord],
        *,
        coordinator_epoch: int,
        clock: Clock,
        commit_timeout_ms: Callable[[], int],
        send: Callable[[MarkerOrder], None],
    ) -> None:
        super().__init__(
            name, log, Transactions(), clock=clock, commit_timeout_ms=commit_timeout_ms
        )
        self._coordinator_epoch = coordinator_epoch
        self._send = send
        self._unsent: deque[_Unsent] = deque()  # decisions that are not committed yet (TXN-3)
        self._again: set[Timer] = set()
        self._watchers: dict[str, list[asyncio.Future[None]]] = {}  # by transactional id
        log.watch(self._release)

    # Life

    def _make_machine(self) -> Transactions:
        """One that knows nothing: what is in the log is applied to it, and nothing else (TXN-5)."""
        return Transactions()

    def _begin(self) -> None:
        for markers in self._machine.markers():
            self._order(markers)

    def close(self) -> None:
        for timer in self._again:
            timer.cancel()
        self._again.clear()
        self._unsent.clear()
        super().close()
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
        if self._queue.is_committed:
            return answer
        future: asyncio.Future[TransactionAnswer] = asyncio.get_running_loop().create_future()
        self._queue.hold(partial(self._let_go, future, answer))
        return future

    def _let_go(
        self,
        future: asyncio.Future[TransactionAnswer],
        answer: TransactionAnswer,
        error: ErrorCode | None,
    ) -> None:
        fault = self._find_fault(error)
        if not future.done():
            future.set_result(answer if fault is None else TransactionAnswer(fault))

    def peek(self, question: Callable[[Transactions], T]) -> T:
        """Look something up that only helps to decide what to ask."""
        self._require_ready()
        return question(self._machine)

    async def wait_until_completed(self, transactional_id: str, timeout_seconds: float) -> None:
        """Return when nothing of the id is prepared any more, or time is over."""
        self._require_ready()
        if not self._machine.is_prepared(transactional_id):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(transactional_id, []).append(future)
        timer = self._clock.call_later(timeout_seconds, partial(_finish, future))
        try:
            await future
        finally:
            timer.cancel()
            waiting = self._watchers.get(transactional_id, [])
            if future in waiting:  # it was not woken: others may ask for long
                waiting.remove(future)

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

    # Handling

    def _handle(self, event: TransactionEvent) -> tuple[TransactionAnswer | None, ErrorCode | None]:
        outcome = self._machine.handle(event, self._clock.now_ms())
        error = self._write(outcome) if outcome.records else None
        if outcome.note is not None and error is None:
            _log.info("transactional id %s: %s", event.transactional_id, outcome.note)
        return outcome.answer, error

    def _write(self, outcome: TransactionOutcome) -> ErrorCode | None:
        """Append and apply. After an error nothing has happened, or the shard is torn."""
        error = self._append(outcome.records)
        if error is not None:
            return error
        for record in outcome.records:
            self._machine.apply(record, is_live=True)
        last = outcome.records[-1]
        if last.metadata is not None and last.metadata.state.is_prepared:
            self._unsent.append(_Unsent(self._log.end_offset, markers_of(last.metadata)))
        self._send_committed()
        self._wake(last.transactional_id)
        return None

    def _wake(self, transactional_id: str) -> None:
        """Whoever waits for the end of a transaction goes on."""
        if self._is_closed or not self._machine.is_prepared(transactional_id):
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


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
