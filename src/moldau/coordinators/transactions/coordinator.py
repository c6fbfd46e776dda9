"""The transaction coordinator of one broker: its shards, and the way of a request to the right one.

A transactional id belongs to a partition of `__transaction_state`, and whoever leads that partition
coordinates its transactions. This module fetches producer ids where a step needs one, and looks for
what has timed out or expired from time to time.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from moldau.clock import Clock, Timer
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.log import CoordinatorLogFormat
from moldau.coordinators.runtime.runtime import CoordinatorPorts, CoordinatorRuntime
from moldau.coordinators.runtime.shard import (
    CoordinatorShard,
    Eventually,
    ShardLog,
    wait_for_answer,
)
from moldau.coordinators.transactions.rules.records import (
    decode_transaction,
    encode_transaction,
    require_room_for_end,
)
from moldau.coordinators.transactions.rules.transactions import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    ExpireId,
    InitProducer,
    MarkersToWrite,
    MarkersWritten,
    TransactionAnswer,
    TransactionEvent,
    TransactionOutcome,
    TransactionRecord,
    Transactions,
    markers_of,
)
from moldau.errors import ErrorCode, KafkaError, NotCoordinatorError
from moldau.model import TopicPartition
from moldau.records.compression import Codec
from moldau.replication.partition import Partition

if TYPE_CHECKING:
    from moldau.coordinators.transactions.rules.transaction_metadata import (
        IdAndEpoch,
        TransactionMetadata,
    )


_log = logging.getLogger("moldau.coordinators")

T = TypeVar("T")

COMPLETION_WAIT_SECONDS: Final = 0.1
"""So long a request waits for the end of a transaction, rather than to send its client away for a
moment, or with offsets that are not there yet; Kafka's
`add.partitions.to.txn.retry.backoff.max.ms`."""


class TransactionCoordinator(CoordinatorRuntime["TransactionShard"]):
    """What handlers of transactional requests talk to.

    Every method that asks for something of one transactional id raises `KafkaError` when this
    broker does not coordinate it, or not yet.
    """

    _NOUN = "transactional id"

    def __init__(
        self,
        topic: InternalTopic,
        ports: CoordinatorPorts,
        *,
        transaction_version: Callable[[], int],
        next_producer_id: Callable[[], Awaitable[int]],
        send: Callable[[MarkerOrder], None],
    ) -> None:
        super().__init__(topic, ports)
        self._transaction_version = transaction_version
        self._next_producer_id = next_producer_id
        self._send = send

    def _make_shard(self, partition: Partition) -> TransactionShard:
        def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
            encoded = encode_transaction(record, min(self._transaction_version(), 1))
            require_room_for_end(record, encoded, partition.log.options.max_message_bytes)
            return encoded

        log_format = CoordinatorLogFormat(
            encode=encode,
            decode=decode_transaction,
            codec=lambda: Codec.NONE,
            load_buffer_bytes=lambda: self._options().transaction_state_log_load_buffer_size,
        )
        return TransactionShard(
            str(partition.topic_partition),
            self._open_log(partition, log_format),
            coordinator_epoch=partition.leader_epoch,
            clock=self._clock,
            commit_timeout_ms=lambda: self._options().request_timeout_ms,
            send=self._send,
        )

    # Producers

    async def init_producer(self, event: InitProducer) -> TransactionAnswer:
        await self.topic.ensure()
        shard = self.require_shard(event.transactional_id)
        spare_id = await self._spare_id(shard, event.transactional_id)
        return await self._submit_after_completion(replace(event, spare_id=spare_id))

    async def add_partitions(self, event: AddPartitions) -> TransactionAnswer:
        return await self._submit_after_completion(event)

    async def end_transaction(self, event: EndTransaction) -> TransactionAnswer:
        """Answered when the decision is committed, and carried out if that takes no time to speak
        of: who asks for a committed offset next, and not for a stable one only, sees it then."""
        shard = self.require_shard(event.transactional_id)
        spare_id = await self._spare_id(shard, event.transactional_id)
        shard = self.require_shard(event.transactional_id)
        answer = await wait_for_answer(shard.submit(replace(event, spare_id=spare_id)))
        if answer.error is ErrorCode.none:
            with contextlib.suppress(KafkaError):  # another leads now: it carries the decision out
                await shard.wait_until_completed(event.transactional_id, COMPLETION_WAIT_SECONDS)
        return answer

    async def _spare_id(self, shard: TransactionShard, transactional_id: str) -> int | None:
        """Rules cannot fetch a producer id; so it is there before they may need it."""
        if shard.peek_state(lambda transactions: transactions.wants_producer_id(transactional_id)):
            return await self._next_producer_id()
        return None

    async def _submit_after_completion(
        self, event: InitProducer | AddPartitions
    ) -> TransactionAnswer:
        """The end of the transaction before is a matter of milliseconds: that is waited for."""
        answer = await wait_for_answer(self.require_shard(event.transactional_id).submit(event))
        if answer.error is not ErrorCode.concurrent_transactions:
            return answer
        shard = self.require_shard(event.transactional_id)
        await shard.wait_until_completed(event.transactional_id, COMPLETION_WAIT_SECONDS)
        return await wait_for_answer(self.require_shard(event.transactional_id).submit(event))

    def verify_partitions(
        self,
        transactional_id: str,
        producer: IdAndEpoch,
        partitions: frozenset[TopicPartition],
    ) -> Eventually[dict[TopicPartition, ErrorCode]]:
        return self.require_shard(transactional_id).read_state(
            lambda transactions: transactions.verify(transactional_id, producer, partitions)
        )

    # Tools

    def describe(self, transactional_id: str) -> Eventually[TransactionMetadata | None]:
        return self.require_shard(transactional_id).read_state(
            lambda transactions: transactions.find(transactional_id)
        )

    def each_transaction(self) -> Iterator[TransactionMetadata]:
        """Those that are loaded here, as they are now."""
        for shard in self:
            yield from shard.peek_if_active(list)

    async def list_transactions(self) -> list[TransactionMetadata]:
        """Of this broker. Raises `KafkaError` while some of them are being loaded; those that
        another broker coordinates by now, that one tells."""
        found: list[TransactionMetadata] = []
        for shard in self:
            with contextlib.suppress(NotCoordinatorError):
                found += await wait_for_answer(shard.read_state(list))
        return found

    # Time

    async def run_aborts(self) -> None:
        """Abort what has been open for too long, for ever: its readers wait for it (TXP-6)."""
        while True:
            options = self._options()
            interval_ms = options.transaction_abort_timed_out_transaction_cleanup_interval_ms
            await self._clock.sleep(interval_ms / 1000)
            for shard in self:
                for abort in shard.peek_if_active(self._find_timed_out):
                    shard.report(abort)

    def _find_timed_out(self, machine: Transactions) -> list[AbortTimedOut]:
        return machine.find_timed_out(self._clock.now_ms(), self._clock.monotonic())

    async def run_expiry(self) -> None:
        """Forget ids that nobody uses, for ever."""
        while True:
            interval_ms = self._options().transaction_remove_expired_transaction_cleanup_interval_ms
            await self._clock.sleep(interval_ms / 1000)
            await self._report_all(self, self._find_expired)

    def _find_expired(self, shard: TransactionShard) -> list[ExpireId]:
        kept_ms, now_ms = self._options().transactional_id_expiration_ms, self._clock.now_ms()
        return [
            ExpireId(transactional_id=one, expiration_ms=kept_ms)
            for one in shard.peek_if_active(lambda machine: machine.expired(kept_ms, now_ms))
        ]


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


class TransactionShard(CoordinatorShard[Transactions, TransactionRecord, TransactionRecord]):
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

    # Life

    def _make_machine(self) -> Transactions:
        """One that knows nothing: what is in the log is applied to it, and nothing else (TXN-5)."""
        return Transactions()

    def _on_loaded(self) -> None:
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
        self._require_active()
        answer, error = self._handle(event)
        if error is not None:
            return TransactionAnswer(error)
        return self._answer_when_committed(answer or TransactionAnswer(), TransactionAnswer)

    def peek_if_active(self, read: Callable[[Transactions], list[T]]) -> list[T]:
        """Nothing of a shard that is still being loaded."""
        return self.peek_state(read) if self.is_active else []

    async def wait_until_completed(self, transactional_id: str, timeout_seconds: float) -> None:
        """Return when nothing of the id is prepared any more, or time is over."""
        self._require_active()
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
        if not self.is_active:
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
        if self.is_closed or not self._machine.is_prepared(transactional_id):
            for future in self._watchers.pop(transactional_id, ()):
                _finish(future)

    # Commitment

    def _on_commit(self) -> None:
        super()._on_commit()
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
            MarkerOrder(markers, self._coordinator_epoch, on_written, lambda: not self.is_closed)
        )


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
