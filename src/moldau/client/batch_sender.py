"""Sends batches of records to the leaders of their partitions, in order, until they are taken.

Answers for order within a partition (one batch is on its way at a time), for attempts, and with
acks=all for sending nothing twice: the broker recognises a repeated batch by the producer's id and
the batch's sequence (KIP-98). Collecting records into batches is the caller's business.

A shell, used by the tasks of one loop; a lock for each partition keeps the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import BrokerConnection
from moldau.client.producer_identity import ask_identity_once
from moldau.client.rules.sequences import ProducerIdentity, add_to_sequence
from moldau.config.client_options import ACKS_ALL, ACKS_NONE
from moldau.errors import DuplicateSequenceError, UnsupportedByBrokerError, UnsupportedVersionError
from moldau.model import TopicPartition
from moldau.records.batch_builder import NO_PRODUCER_EPOCH, build_batch
from moldau.records.batch_header import NO_PRODUCER_ID, NO_SEQUENCE
from moldau.records.compression import Codec
from moldau.records.record import RecordRow
from moldau.wire.apis import PRODUCE
from moldau.wire.messages import encode_body
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

if TYPE_CHECKING:
    from kio.schema.produce.v12.response import ProduceResponse

UNKNOWN_OFFSET = -1
_FIRST_WITH_ZSTD = 7
_ANONYMOUS = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    """How batches are sent."""

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    level: int | None = None
    replication_timeout_ms: int = 30_000  # how long the leader waits for its followers
    delivery_seconds: float = 120.0  # for one batch with all its attempts


class BatchSender:
    """Sends through one client. `send` may be called while earlier ones are under way."""

    def __init__(self, client: ClusterClient, settings: SendSettings) -> None:
        self._client = client
        self._settings = settings
        self._producer: ProducerIdentity | None = None  # None until the first batch
        self._introducing = asyncio.Lock()
        self._turns: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._next_sequence: defaultdict[TopicPartition, int] = defaultdict(int)

    async def send(self, partition: TopicPartition, records: Sequence[RecordRow]) -> int:
        """Send the records as one batch; gives the first offset, or -1 where it is not told.

        Raises the error of the last attempt. What came before in this partition has been taken.
        """
        async with self._turns[partition]:
            producer = await self._introduce()
            batch = self._build(partition, records, producer)

            async def attempt() -> int:
                return await self._send_once(partition, batch)

            base_offset = await self._client.retry(
                attempt,
                refresh=(partition.topic,),
                patience_seconds=self._settings.delivery_seconds,
                wait_for_cluster=True,
            )
            after = add_to_sequence(self._next_sequence[partition], len(records))
            self._next_sequence[partition] = after
            return base_offset

    def _build(
        self, partition: TopicPartition, records: Sequence[RecordRow], producer: ProducerIdentity
    ) -> bytes:
        sequence = self._next_sequence[partition] if producer != _ANONYMOUS else NO_SEQUENCE
        return bytes(
            build_batch(
                records,
                codec=self._settings.codec,
                level=self._settings.level,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
            )
        )

    async def _send_once(self, partition: TopicPartition, batch: bytes) -> int:
        connection = await self._client.connect_to_leader(partition)
        version = self._choose_version(connection)
        values = self._request_values(partition, batch)
        if self._settings.acks == ACKS_NONE:
            body = encode_body(fit(request_class(PRODUCE.key, version), values))
            await connection.tell(PRODUCE, version, (body,))
            return UNKNOWN_OFFSET
        patience = self._settings.replication_timeout_ms / 1000
        answer = await connection.call(PRODUCE, values, version=version, extra_seconds=patience)
        return _read_offset(partition, cast("ProduceResponse", answer))

    def _choose_version(self, connection: BrokerConnection) -> int:
        version = connection.choose_version(PRODUCE)
        if self._settings.codec is Codec.ZSTD and version < _FIRST_WITH_ZSTD:
            raise UnsupportedVersionError(f"{connection.address} is too old for zstd batches")
        return version

    def _request_values(self, partition: TopicPartition, batch: bytes) -> dict[str, object]:
        return {
            "transactional_id": None,
            "acks": self._settings.acks,
            "timeout": self._settings.replication_timeout_ms,
            "topic_data": [
                {
                    "name": partition.topic,
                    "partition_data": [{"index": partition.partition, "records": batch}],
                }
            ],
        }

    async def _introduce(self) -> ProducerIdentity:
        """Get a producer id, once; batches that nobody confirms fully go without."""
        async with self._introducing:
            if self._producer is None:
                if self._settings.acks != ACKS_ALL:
                    self._producer = _ANONYMOUS
                else:
                    self._producer = await self._client.retry(self._ask_identity)
            return self._producer

    async def _ask_identity(self) -> ProducerIdentity:
        try:
            return await ask_identity_once(self._client)
        except UnsupportedByBrokerError:
            return _ANONYMOUS


def _read_offset(partition: TopicPartition, answer: ProduceResponse) -> int:
    """The offset of the first record; raises the partition's error."""
    row = answer.responses[0].partition_responses[0]
    if row.error_code is ErrorCode.none:
        return row.base_offset
    message = getattr(row, "error_message", None)  # from version 8 on
    error = error_for(row.error_code, message, str(partition))
    if isinstance(error, DuplicateSequenceError):
        return UNKNOWN_OFFSET  # an earlier attempt was taken; its answer got lost
    raise error
