"""A shard: the share partitions of one partition of `__share_group_state`, while this broker leads
it.

It handles one event after the other: append the records, apply them, let the answer go when
everything before it is committed. It decides nothing; `rules.state_machine` does. A shell, owned by
the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from moldau.clock import Clock
from moldau.coordinators.runtime.shard import CoordinatorShard, Eventually, ShardLog
from moldau.errors import ErrorCode, KafkaError
from moldau.shares.rules.delivery_state import SharePartitionKey
from moldau.shares.rules.state_events import DeleteState, SnapshotState, StateAnswer, StateEvent
from moldau.shares.rules.state_machine import HasPartition, ShareStates
from moldau.shares.rules.state_records import ShareStateRecord

_log = logging.getLogger("moldau.coordinators")

_SNAPSHOTS_AT_ONCE = 200
_DELETED_AT_ONCE = 1_000


class ShareStateShard(CoordinatorShard[ShareStates, ShareStateRecord, ShareStateRecord]):
    """The coordinator of some share partitions: `load` once, then `submit`; `close` at the end."""

    def __init__(
        self,
        name: str,
        log: ShardLog[ShareStateRecord, ShareStateRecord],
        *,
        clock: Clock,
        commit_timeout_ms: Callable[[], int],
        has_partition: HasPartition,
        was_deleted: Callable[[SharePartitionKey], bool],
        updates_per_snapshot: Callable[[], int],
        delete_records: Callable[[int], object],
    ) -> None:
        super().__init__(name, log, ShareStates(), clock=clock, commit_timeout_ms=commit_timeout_ms)
        self._has_partition = has_partition
        self._was_deleted = was_deleted
        self._updates_per_snapshot = updates_per_snapshot
        self._delete_records = delete_records
        log.watch(self._queue.release)

    def _make_machine(self) -> ShareStates:
        return ShareStates()

    def _begin(self) -> None:
        """Nothing waits for a shard to be loaded."""

    @property
    def keys(self) -> tuple[SharePartitionKey, ...]:
        return tuple(self._machine)

    # Requests

    def submit(self, event: StateEvent) -> Eventually[StateAnswer]:
        self._require_ready()
        answer, has_written = self._handle(event)
        if answer.error is not ErrorCode.none or self._queue.is_committed:
            return answer
        future: asyncio.Future[StateAnswer] = asyncio.get_running_loop().create_future()
        self._queue.hold(partial(self._let_go, future, answer, has_written))
        return future

    def _let_go(
        self,
        future: asyncio.Future[StateAnswer],
        answer: StateAnswer,
        has_written: bool,
        error: ErrorCode | None,
    ) -> None:
        fault = self._find_fault(error) if has_written else error
        if not future.done():
            future.set_result(answer if fault is None else StateAnswer(fault))

    def report(self, event: StateEvent) -> None:
        """Handle what happened by itself; nobody waits for an answer."""
        if self._is_loaded and not self._is_closed:
            self._handle(event)

    def _handle(self, event: StateEvent) -> tuple[StateAnswer, bool]:
        outcome = self._machine.handle(
            event,
            self._clock.now_ms(),
            has_partition=self._has_partition,
            updates_per_snapshot=self._updates_per_snapshot(),
        )
        if not outcome.records:
            return outcome.answer, False
        error = self._write(outcome.records)
        return (outcome.answer if error is None else StateAnswer(error)), True

    def _write(self, records: Sequence[ShareStateRecord]) -> ErrorCode | None:
        """Append and apply (SHS-5). After an error nothing has happened, or the shard is torn."""
        first_offset = self._log.end_offset
        error = self._append(records)
        if error is None:
            for offset, record in enumerate(records, start=first_offset):
                self._machine.apply(record._replace(offset=offset))
        return error

    def forget_deleted(self) -> None:
        """Delete states whose topic was deleted while no broker had them loaded. A topic that is
        only missing from the image may come back, and its states are kept (DEL-1)."""
        if not self._is_loaded or self._is_closed:
            return
        deleted = sorted(key for key in self._machine if self._was_deleted(key))
        for key in deleted[:_DELETED_AT_ONCE]:
            self.report(DeleteState(key))

    # The log

    def snapshot_cold(self, before_ms: int) -> None:
        """Write share partitions anew that nobody has written for long."""
        if not self._is_loaded or self._is_closed:
            return
        for key in self._machine.cold_keys(before_ms, self._log.end_offset)[:_SNAPSHOTS_AT_ONCE]:
            self.report(SnapshotState(key))

    def prune(self) -> None:
        """Delete what later records have made superfluous (SHS-3)."""
        if not self._is_loaded or self._is_closed:
            return
        needed_from = self._machine.needed_from(self._log.end_offset)
        # What makes the rest superfluous has to be there to stay.
        if self._log.end_offset > self._log.committed_offset:
            return
        try:
            self._delete_records(needed_from)
        except KafkaError as error:
            _log.info("%s is not pruned: %s", self.name, error)
