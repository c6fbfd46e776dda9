"""The transactional batches of one produce request: which of them begin a transaction somewhere.

Those wait until the coordinator has confirmed the transaction, all of a request with one question;
the others are appended at once. A shell, owned by the request.
"""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.broker.request_context import RequestContext
from moldau.broker.transaction_verifier import Codes, Question, find_refusal
from moldau.errors import InvalidRequestError
from moldau.model import TopicPartition
from moldau.records.batch_header import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    TRANSACTIONAL_FLAG,
    read_header,
)
from moldau.replication.partition import Partition
from moldau.storage.log import AppendResult
from moldau.storage.rules.transaction_verification import MUST_BE_OPEN, NOT_REQUIRED

_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_ADDING: Final = 12

_Producer = tuple[int, int]
"""Producer id and epoch: one in a request, unless a client breaks the rules."""


class ProducedTransactions:
    """`append` for each batch, then `append_later` for each that has to wait."""

    def __init__(self, transactional_id: str, context: RequestContext) -> None:
        self._transactional_id = transactional_id
        self._services = context.services
        self._adds = context.version >= _FIRST_ADDING
        self._knows_abortable = context.version >= _FIRST_WITH_ABORTABLE
        self._verifications: dict[TopicPartition, int] = {}  # one for each: see `append`
        self._unconfirmed: dict[_Producer, set[TopicPartition]] = {}
        self._asked: dict[_Producer, asyncio.Task[Codes]] = {}

    def append(self, partition: Partition, batch: memoryview, acks: int) -> AppendResult | None:
        """As `Partition.append_as_leader`; None also for a batch that begins a transaction."""
        if partition.topic_partition in self._verifications:
            raise InvalidRequestError("a partition is there once in a transactional request")
        verification = self._begin(partition, batch)
        self._verifications[partition.topic_partition] = verification
        if verification > MUST_BE_OPEN:
            return None
        return partition.append_as_leader(batch, acks, verification)

    def _begin(self, partition: Partition, batch: memoryview) -> int:
        if len(batch) < HEADER_BYTES or not batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG:
            return NOT_REQUIRED
        options = self._services.options
        if not (self._adds or options.transaction_partition_verification_enable):
            return NOT_REQUIRED
        header = read_header(batch)
        verification = partition.begin_verification(header, bumps_epochs=self._adds)
        if verification > MUST_BE_OPEN:
            producer = header.producer_id, header.producer_epoch
            self._unconfirmed.setdefault(producer, set()).add(partition.topic_partition)
        return verification

    async def append_later(
        self, partition: Partition, batch: memoryview, acks: int
    ) -> AppendResult:
        """Append a batch when the coordinator has confirmed its transaction, by a worker if a look
        inside takes long."""
        verification = self._verifications[partition.topic_partition]
        if verification <= MUST_BE_OPEN:
            return await partition.append_in_worker(batch, acks, verification)
        header = read_header(batch)
        is_appended = False
        try:
            codes = await self._ask((header.producer_id, header.producer_epoch))
            code = codes[partition.topic_partition]
            refusal = find_refusal(code, knows_abortable=self._knows_abortable)
            if refusal is not None:
                raise refusal
            result = partition.append_as_leader(batch, acks, verification)
            if result is None:
                result = await partition.append_in_worker(batch, acks, verification)
            is_appended = True
            return result
        finally:
            if not is_appended:
                partition.end_verification(header.producer_id, verification)

    async def _ask(self, producer: _Producer) -> Codes:
        """What the coordinator says of all partitions of the request, once."""
        task = self._asked.get(producer)
        if task is None:
            partitions = frozenset(self._unconfirmed[producer])
            question = Question(self._transactional_id, *producer, partitions, self._adds)
            ask = self._services.transaction_verifier.ask(question)
            task = self._asked[producer] = asyncio.get_running_loop().create_task(ask)
        return await asyncio.shield(task)
