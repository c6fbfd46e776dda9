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
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.errors import ErrorCode, KafkaError, NotCoordinatorError
from moldau.model import BrokerId, TopicPartition
from moldau.records.compression import Codec
from moldau.replication.partition import Partition
from moldau.shards.leads import Leads, ShardDuties
from moldau.shards.state_log import LogFormat, StateLog
from moldau.shards.state_shard import Eventually, wait_for_answer
from moldau.shards.state_topic import StateTopic
from moldau.workers import Workers

if TYPE_CHECKING:
    from moldau.transactions.rules.transaction_events import (
        AbortTimedOut,
        AddPartitions,
        EndTransaction,
        InitProducer,
        TransactionAnswer,
        TransactionRecord,
    )
    from moldau.transactions.rules.transaction_metadata import (
        IdAndEpoch,
        TransactionMetadata,
    )
    from moldau.transactions.rules.transactions import Transactions
    from moldau.transactions.shard import MarkerOrder, TransactionShard

_log = logging.getLogger("moldau.coordinators")

T = TypeVar("T")

COMPLETION_WAIT_SECONDS: Final = 0.1
"""So long a request waits for the end of a transaction, rather than to send its client away for a
moment, or with offsets that are not there yet; Kafka's
`add.partitions.to.txn.retry.backoff.max.ms`."""

_IDS_AT_ONCE: Final = 100
"""Ids that are looked at before the event loop gets a turn."""


class TransactionCoordinator:
    """What handlers of transactional requests talk to.

    Every method that asks for something of one transactional id raises `KafkaError` when this
    broker does not coordinate it, or not yet. What it consists of is loaded with the first shard:
    a broker without transactions starts without it.
    """

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        topic: StateTopic,
        options: Callable[[], BrokerOptions],
        transaction_version: Callable[[], int],
        clock: Clock,
        workers: Workers,
        duties: ShardDuties,
        next_producer_id: Callable[[], Awaitable[int]],
        send: Callable[[MarkerOrder], None],
    ) -> None:
        self.topic = topic
        self._options = options
        self._transaction_version = transaction_version
        self._clock = clock
        self._workers = workers
        self._duties = duties
        self._next_producer_id = next_producer_id
        self._send = send
        self._leads: Leads[TransactionShard] = Leads(
            topic,
            self._make_shard,
            noun="transactional id",
            broker_id=broker_id,
            clock=clock,
            duties=duties,
        )

    def _make_shard(self, partition: Partition) -> TransactionShard:
        from moldau.transactions.shard import TransactionShard
        from moldau.transactions.transaction_log import (
            decode_transaction,
            encode_transaction,
            require_room_for_end,
        )

        def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
            encoded = encode_transaction(record, min(self._transaction_version(), 1))
            require_room_for_end(record, encoded, partition.log.options.max_message_bytes)
            return encoded

        log_format: LogFormat[TransactionRecord, TransactionRecord] = LogFormat(
            encode=encode,
            decode=decode_transaction,
            codec=lambda: Codec.NONE,
            load_buffer_bytes=lambda: self._options().transaction_state_log_load_buffer_size,
        )
        log = StateLog(
            partition,
            log_format,
            clock=self._clock,
            workers=self._workers,
            require=self._duties.require,
        )
        return TransactionShard(
            str(partition.topic_partition),
            log,
            coordinator_epoch=partition.leader_epoch,
            clock=self._clock,
            commit_timeout_ms=lambda: self._options().request_timeout_ms,
            send=self._send,
        )

    # Producers

    async def init_producer(self, event: InitProducer) -> TransactionAnswer:
        await self.topic.ensure()
        shard = self._leads.require(event.transactional_id)
        spare_id = await self._spare_id(shard, event.transactional_id)
        return await self._submit_after_completion(replace(event, spare_id=spare_id))

    async def add_partitions(self, event: AddPartitions) -> TransactionAnswer:
        return await self._submit_after_completion(event)

    async def end_transaction(self, event: EndTransaction) -> TransactionAnswer:
        """Answered when the decision is committed, and carried out if that takes no time to speak
        of: who asks for a committed offset next, and not for a stable one only, sees it then."""
        shard = self._leads.require(event.transactional_id)
        spare_id = await self._spare_id(shard, event.transactional_id)
        shard = self._leads.require(event.transactional_id)
        answer = await wait_for_answer(shard.submit(replace(event, spare_id=spare_id)))
        if answer.error is ErrorCode.none:
            with contextlib.suppress(KafkaError):  # another leads now: it carries the decision out
                await shard.wait_until_completed(event.transactional_id, COMPLETION_WAIT_SECONDS)
        return answer

    async def _spare_id(self, shard: TransactionShard, transactional_id: str) -> int | None:
        """Rules cannot fetch a producer id; so it is there before they may need it."""
        if shard.peek(lambda transactions: transactions.wants_producer_id(transactional_id)):
            return await self._next_producer_id()
        return None

    async def _submit_after_completion(
        self, event: InitProducer | AddPartitions
    ) -> TransactionAnswer:
        """The end of the transaction before is a matter of milliseconds: that is waited for."""
        answer = await wait_for_answer(self._leads.require(event.transactional_id).submit(event))
        if answer.error is not ErrorCode.concurrent_transactions:
            return answer
        shard = self._leads.require(event.transactional_id)
        await shard.wait_until_completed(event.transactional_id, COMPLETION_WAIT_SECONDS)
        return await wait_for_answer(self._leads.require(event.transactional_id).submit(event))

    def verify_partitions(
        self,
        transactional_id: str,
        producer: IdAndEpoch,
        partitions: frozenset[TopicPartition],
    ) -> Eventually[dict[TopicPartition, ErrorCode]]:
        return self._leads.require(transactional_id).ask(
            lambda transactions: transactions.verify(transactional_id, producer, partitions)
        )

    # Tools

    def describe(self, transactional_id: str) -> Eventually[TransactionMetadata | None]:
        return self._leads.require(transactional_id).ask(
            lambda transactions: transactions.find(transactional_id)
        )

    def each_transaction(self) -> Iterator[TransactionMetadata]:
        """Those that are loaded here, as they are now."""
        for shard in self._leads:
            with contextlib.suppress(KafkaError):  # it is being loaded
                yield from shard.peek(lambda transactions: list(transactions))

    async def list_transactions(self) -> list[TransactionMetadata]:
        """Of this broker. Raises `KafkaError` while some of them are being loaded; those that
        another broker coordinates by now, that one tells."""
        found: list[TransactionMetadata] = []
        for shard in self._leads:
            with contextlib.suppress(NotCoordinatorError):
                found += await wait_for_answer(shard.ask(lambda transactions: list(transactions)))
        return found

    # Following the cluster

    def on_partition_changed(
        self, topic_partition: TopicPartition, partition: Partition | None
    ) -> None:
        """A partition was opened, dropped (None), or has another leader."""
        self._leads.on_partition_changed(topic_partition, partition)

    # Time

    async def run_aborts(self) -> None:
        """Abort what has been open for too long, for ever: its readers wait for it (TXP-6)."""
        while True:
            options = self._options()
            interval_ms = options.transaction_abort_timed_out_transaction_cleanup_interval_ms
            await self._clock.sleep(interval_ms / 1000)
            for shard in self._leads:
                for abort in _look(shard, self._find_timed_out):
                    shard.report(abort)

    def _find_timed_out(self, machine: Transactions) -> list[AbortTimedOut]:
        return machine.find_timed_out(self._clock.now_ms(), self._clock.monotonic())

    async def run_expiry(self) -> None:
        """Forget ids that nobody uses, for ever."""
        while True:
            interval_ms = self._options().transaction_remove_expired_transaction_cleanup_interval_ms
            await self._clock.sleep(interval_ms / 1000)
            if not self._leads:
                continue
            from moldau.transactions.rules.transaction_events import ExpireId

            kept_ms = self._options().transactional_id_expiration_ms
            for shard in self._leads:
                for count, transactional_id in enumerate(self._expired(shard, kept_ms), start=1):
                    shard.report(ExpireId(transactional_id=transactional_id, expiration_ms=kept_ms))
                    if count % _IDS_AT_ONCE == 0:
                        await asyncio.sleep(0)

    def _expired(self, shard: TransactionShard, kept_ms: int) -> list[str]:
        now_ms = self._clock.now_ms()
        return _look(shard, lambda machine: machine.expired(kept_ms, now_ms))

    def close(self) -> None:
        """Stop coordinating; nothing is logged, so that the next coordinator goes on."""
        self._leads.close()


def _look(shard: TransactionShard, question: Callable[[Transactions], list[T]]) -> list[T]:
    """Nothing of a shard that is still being loaded."""
    try:
        return shard.peek(question)
    except KafkaError:
        return []
