"""Requests about transactions. A part of `AsyncAdmin`.

A transactional id is the matter of its coordinator, and every broker coordinates some; what is open
in a partition is its leader's. A transaction that is open in a partition and that no coordinator
will end is hanging: as in Kafka's `kafka-transactions.sh`, it is found by asking both, and aborted
by a marker that is written in the coordinator's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin import AdminPart, indexes_by_topic
from moldau.client.admin.partitions import ask_leaders
from moldau.client.admin.values import (
    UNDECIDED_OR_COMPLETING,
    ActiveProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from moldau.client.cluster import TRANSACTION_KEY, ask_coordinators
from moldau.client.connections import BrokerConnection
from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.client.rules.arguments import require_names
from moldau.client.rules.broker_errors import error_for
from moldau.client.rules.cluster_metadata import Broker
from moldau.errors import (
    ConfigurationError,
    InvalidRegularExpressionError,
    KafkaError,
    RegularExpressionsNotSupportedError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition
from moldau.wire.apis import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from moldau.wire.shape import millis

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.response import (
        DescribeProducersResponse,
        PartitionResponse,
        ProducerState,
    )
    from kio.schema.describe_transactions.v0.response import (
        DescribeTransactionsResponse,
        TransactionState,
    )
    from kio.schema.end_txn.v5.response import EndTxnResponse
    from kio.schema.list_transactions.v2.response import ListTransactionsResponse
    from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse

_NO_DURATION = -1
_LIST_DROPPABLE = frozenset({"duration_filter", "transactional_id_pattern"})
_MARKER_DROPPABLE = frozenset({"transaction_version"})
_FIRST_END_WITH_EPOCHS = 5
_ABORT_VERSION = 0
"""An epoch that is not raised: the transaction that hangs is the producer's last one here."""


class TransactionAdmin(AdminPart):
    """What `AsyncAdmin` does with transactions."""

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        pattern: str | None = None,
    ) -> Mapping[str, TransactionListing]:
        """Transactional ids of all coordinators: in these states, of these producers, open for at
        least so long, or with ids of this pattern."""
        values = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": _NO_DURATION if min_duration_ms is None else min_duration_ms,
            "transactional_id_pattern": pattern,
        }

        async def send_request(broker_id: int) -> Sequence[TransactionListing]:
            connection = await self._client.connect_to_broker(broker_id)
            answer = await connection.call(LIST_TRANSACTIONS, values, _LIST_DROPPABLE)
            response = cast("ListTransactionsResponse", answer)
            if response.error_code is ErrorCode.invalid_regular_expression:
                raise InvalidRegularExpressionError(
                    f"broker {broker_id} cannot match the pattern {pattern!r}: RE2 does not take it"
                )
            if response.error_code is ErrorCode.invalid_request and pattern:
                raise RegularExpressionsNotSupportedError(
                    f"broker {broker_id} matches no patterns. On a Moldau broker, run `pip install "
                    "'moldau[regex]'` and restart it, or list without a pattern"
                )
            if response.error_code is not ErrorCode.none:
                raise error_for(response.error_code, None, f"transactions of broker {broker_id}")
            return [
                TransactionListing(
                    transactional_id=row.transactional_id,
                    producer_id=row.producer_id,
                    state=row.transaction_state,
                    coordinator_id=broker_id,
                )
                for row in response.transaction_states
            ]

        async def ask_all() -> Sequence[Sequence[TransactionListing]]:
            brokers = (await self._client.metadata.refresh(())).brokers
            return await asyncio.gather(*[send_request(one) for one in brokers])

        found = await self._client.retry(ask_all, refresh=())
        return {one.transactional_id: one for some in found for one in some}

    async def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> Mapping[str, TransactionDescription | KafkaError]:
        """What the coordinators know of transactional ids."""
        transactional_ids = require_names(transactional_ids)

        async def send_request(
            broker: Broker, connection: BrokerConnection, ids: Sequence[str]
        ) -> Mapping[str, TransactionDescription | KafkaError]:
            answer = await connection.call(DESCRIBE_TRANSACTIONS, {"transactional_ids": list(ids)})
            rows = cast("DescribeTransactionsResponse", answer).transaction_states
            return {str(row.transactional_id): _described(broker, row) for row in rows}

        return await ask_coordinators(
            self._client, transactional_ids, send_request, TRANSACTION_KEY
        )

    async def complete_transactions(
        self, prepared: Collection[PreparedTransaction], *, commit: bool
    ) -> Mapping[str, KafkaError | None]:
        """Commit or abort what producers have prepared (KIP-939); by transactional id, None where
        it is done.

        The same decision again changes nothing, as long as the producer has not gone on; the other
        one is an InvalidTxnStateError. ProducerFencedError: the transaction is over, and another
        has begun with this id.
        """
        by_id = {one.transactional_id: one for one in prepared}
        if len(by_id) < len(prepared):
            raise ConfigurationError("two of the transactions have one transactional id")

        async def end(link: BrokerConnection, one: PreparedTransaction) -> KafkaError | None:
            version = link.choose_version(END_TXN)
            if version < _FIRST_END_WITH_EPOCHS:
                raise UnsupportedByBrokerError("the broker has no two-phase commit (KIP-939)")
            values = {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "committed": commit,
            }
            answer = cast("EndTxnResponse", await link.call(END_TXN, values, version=version))
            if answer.error_code is ErrorCode.none:
                return None
            return error_for(answer.error_code, None, f"transactional id {one.transactional_id!r}")

        async def send_request(
            broker: Broker, connection: BrokerConnection, ids: Sequence[str]
        ) -> Mapping[str, KafkaError | None]:
            answers = await asyncio.gather(*[end(connection, by_id[name]) for name in ids])
            return dict(zip(ids, answers, strict=True))

        return await ask_coordinators(self._client, tuple(by_id), send_request, TRANSACTION_KEY)

    async def describe_producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[ActiveProducer, ...] | KafkaError]:
        """The producers that partitions remember, and what they have open there."""

        async def send_request(
            connection: BrokerConnection, group: Mapping[TopicPartition, None]
        ) -> Mapping[TopicPartition, tuple[ActiveProducer, ...] | KafkaError]:
            topics = [
                {"name": name, "partition_indexes": indexes}
                for name, indexes in indexes_by_topic(group).items()
            ]
            answer = await connection.call(DESCRIBE_PRODUCERS, {"topics": topics})
            return {
                (one := TopicPartition(topic.name, row.partition_index)): _producers(one, row)
                for topic in cast("DescribeProducersResponse", answer).topics
                for row in topic.partitions
            }

        return await ask_leaders(self._client, dict.fromkeys(partitions), send_request)

    async def find_hanging_transactions(
        self, partitions: Collection[TopicPartition], *, older_than_ms: int, now_ms: int
    ) -> Sequence[HangingTransaction]:
        """What is open in partitions since before `now_ms - older_than_ms`, and known to no
        coordinator. `older_than_ms` is to be longer than any transaction may take."""
        open_ones = []
        for partition, producers in (await self.describe_producers(partitions)).items():
            if isinstance(producers, KafkaError):
                raise producers
            open_ones += [
                (partition, one)
                for one in producers
                if one.transaction_start_offset is not None
                and one.last_timestamp_ms + older_than_ms < now_ms
            ]
        if not open_ones:
            return ()
        listed = await self.list_transactions(
            producer_ids={one.producer_id for _, one in open_ones}
        )
        by_producer = {one.producer_id: one.transactional_id for one in listed.values()}
        described = await self.describe_transactions(tuple(listed))
        return [
            HangingTransaction(partition=partition, producer=one, transactional_id=name)
            for partition, one in open_ones
            for name in [by_producer.get(one.producer_id)]
            if not _will_be_ended(partition, one, None if name is None else described[name])
        ]

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """End what is open of a producer in one partition, in the place of its coordinator."""

        async def send_request(
            connection: BrokerConnection, group: Mapping[TopicPartition, None]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            topics = [
                {"name": name, "partition_indexes": indexes}
                for name, indexes in indexes_by_topic(group).items()
            ]
            marker = {
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "transaction_result": False,
                "topics": topics,
                "coordinator_epoch": coordinator_epoch,
                "transaction_version": _ABORT_VERSION,
            }
            answer = await connection.call(
                WRITE_TXN_MARKERS, {"markers": [marker]}, _MARKER_DROPPABLE
            )
            rows = cast("WriteTxnMarkersResponse", answer).markers[0].topics[0].partitions
            error = rows[0].error_code
            failed = None if error is ErrorCode.none else error_for(error, None, str(partition))
            return dict.fromkeys(group, failed)

        failure = (await ask_leaders(self._client, {partition: None}, send_request))[partition]
        if failure is not None:
            raise failure


def _will_be_ended(
    partition: TopicPartition,
    producer: ActiveProducer,
    described: TransactionDescription | KafkaError | None,
) -> bool:
    """Whether a coordinator has this transaction open, in this partition."""
    return (
        isinstance(described, TransactionDescription)
        and described.producer_id == producer.producer_id
        and described.state in UNDECIDED_OR_COMPLETING
        and partition in described.partitions
    )


def _described(broker: Broker, row: TransactionState) -> TransactionDescription | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, None, f"transactional id {row.transactional_id!r}")
    started_ms = millis(row.transaction_start_time)
    return TransactionDescription(
        transactional_id=row.transactional_id,
        coordinator_id=broker.id,
        state=row.transaction_state,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=millis(row.transaction_timeout),
        started_ms=started_ms if started_ms > 0 else None,
        partitions=frozenset(
            TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions
        ),
    )


def _producers(
    partition: TopicPartition, row: PartitionResponse
) -> tuple[ActiveProducer, ...] | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, row.error_message, str(partition))
    return tuple(map(_producer, row.active_producers))


def _producer(row: ProducerState) -> ActiveProducer:
    first = row.current_txn_start_offset
    return ActiveProducer(
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        last_sequence=row.last_sequence,
        last_timestamp_ms=row.last_timestamp,
        coordinator_epoch=None if row.coordinator_epoch < 0 else row.coordinator_epoch,
        transaction_start_offset=None if first < 0 else first,
    )
