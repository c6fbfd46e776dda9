"""Asks transaction coordinators whether a transaction has a partition, or adds it (KIP-890).

Before the first batch of a transaction, and before the first offsets that a group commits in one,
the leader of the partition asks with AddPartitionsToTxn: `verify_only` for producers that have
added the partition themselves, without it for those of transaction version 2, which leave that to
the broker. A coordinator on this broker is asked without a socket.

Questions to another broker go in lanes, by the partition of the transaction log: one request is
under way in each, and what comes meanwhile goes with the next one. So a coordinator that cannot
write holds up its own lane.

A shell, owned by the event loop. How a refusal is told to a producer is a rule, at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from moldau.broker.api import RequestContext
from moldau.broker.inter_broker import send_request
from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.runtime.internal_topic import partition_for
from moldau.errors import (
    ClientError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
    KafkaError,
    NotEnoughReplicasError,
    TransactionAbortableError,
)
from moldau.model import TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from moldau.net.peer import Peer
from moldau.records.batch_header import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_FLAG, read_header
from moldau.replication.partition import Partition
from moldau.storage.log import AppendResult
from moldau.storage.rules.producer_state import MUST_BE_OPEN, NOT_REQUIRED
from moldau.wire.apis import ADD_PARTITIONS_TO_TXN
from moldau.wire.shape import fit
from moldau.wire.versions import request_class, response_class

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v5 import AddPartitionsToTxnResponse
    from kio.static.protocol import Payload

_log = logging.getLogger("moldau.coordinators")

_VERIFYING_VERSION: Final = 4
_ADDING_VERSION: Final = 5
_LANES: Final = 4
_PAUSE_SECONDS: Final = 0.02
_ATTEMPTS: Final = 6
"""A producer of transaction version 2 goes on as soon as its last transaction is decided; the
coordinator may have yet to hear that the last marker is written. So often is it asked again."""

Codes = Mapping[TopicPartition, ErrorCode]
AskLocal = Callable[["Payload"], Awaitable[Mapping[str, object]]]
"""Has this broker's coordinator answer AddPartitionsToTxn, in the words of version 5."""

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.request_timed_out,
    }
)
_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_ADDING: Final = 12


class Question(NamedTuple):
    """One transaction, and the partitions about which its coordinator is asked."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    adds: bool  # to the transaction; otherwise the coordinator is only asked

    @property
    def version(self) -> int:
        return _ADDING_VERSION if self.adds else _VERIFYING_VERSION


class _Waiting(NamedTuple):
    question: Question
    answer: asyncio.Future[Codes]


class _Lane:
    """The way of some questions to one broker; one request at a time."""

    def __init__(self, peer: Peer, version: int) -> None:
        self.peer = peer
        self.version = version
        self.waiting: list[_Waiting] = []
        self.is_busy = False


class TransactionVerifier:
    """See the module. `connect` makes the way to a broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
        connect: Callable[[BrokerId], Peer],
        ask_local: AskLocal,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._clock = clock
        self._connect = connect
        self._ask_local = ask_local
        self._spawn = spawn
        self._timeout_ms = timeout_ms
        self._lanes: dict[tuple[BrokerId, int, int], _Lane] = {}

    async def ask(self, question: Question) -> Codes:
        """What the coordinator says of each partition; raises nothing."""
        codes = await self._ask_once(question)
        for _ in range(_ATTEMPTS):
            if ErrorCode.concurrent_transactions not in codes.values():
                break
            await self._clock.sleep(_PAUSE_SECONDS)
            codes = await self._ask_once(question)
        return codes

    async def _ask_once(self, question: Question) -> Codes:
        topic = self._image().topics.get(TRANSACTION_STATE_TOPIC)
        number = 0
        state = None
        if topic is not None:
            number = partition_for(question.transactional_id, len(topic.partitions))
            state = topic.find_partition(number)
        if state is None or state.leader < 0:
            return _same_code(question, ErrorCode.coordinator_not_available)
        if state.leader == self._broker_id:
            request = fit(
                request_class(ADD_PARTITIONS_TO_TXN.key, _ADDING_VERSION), _values_of([question])
            )
            values = await self._ask_local(request)
            message_class = response_class(ADD_PARTITIONS_TO_TXN.key, _ADDING_VERSION)
            message = fit(message_class, {"throttle_time": 0, **values})
            return _codes_for(question, cast("AddPartitionsToTxnResponse", message))
        return await self._ask_other(question, state.leader, number % _LANES)

    def _ask_other(self, question: Question, broker: BrokerId, lane: int) -> Awaitable[Codes]:
        key = (broker, question.version, lane)
        found = self._lanes.get(key)
        if found is None:
            found = self._lanes[key] = _Lane(self._connect(broker), question.version)
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        found.waiting.append(_Waiting(question, answer))
        if not found.is_busy:
            found.is_busy = True
            self._spawn(f"questions to transaction coordinators on {broker}", self._run(found))
        return answer

    async def _run(self, lane: _Lane) -> None:
        """Send what waits, until nothing does."""
        some: list[_Waiting] = []
        try:
            while lane.waiting:
                some = _take_distinct(lane.waiting)
                await self._send(lane, some)
        finally:
            lane.is_busy = False
            # Only when this ends before its time: a request that is never answered would hold up
            # the end of the broker for ever.
            for one in (*some, *lane.waiting):
                one.answer.cancel()
            lane.waiting.clear()

    async def _send(self, lane: _Lane, some: Sequence[_Waiting]) -> None:
        try:
            response: AddPartitionsToTxnResponse = await send_request(
                lane.peer,
                ADD_PARTITIONS_TO_TXN,
                lane.version,
                _values_of(one.question for one in some),
                client_id=f"broker-{self._broker_id}",
                timeout_seconds=self._timeout_ms() / 1000,
            )
        except (ClientError, KafkaError) as error:
            _log.info("a transaction coordinator does not answer: %s", error)
            for question, waiting in some:
                _resolve(waiting, _same_code(question, ErrorCode.network_exception))
            return
        for question, waiting in some:
            _resolve(waiting, _codes_for(question, response))

    async def close(self) -> None:
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            await lane.peer.close()


def _take_distinct(waiting: list[_Waiting]) -> list[_Waiting]:
    """Take the questions that fit into one request, which has a transactional id once."""
    taken: dict[str, _Waiting] = {}
    rest: list[_Waiting] = []
    for one in waiting:
        if one.answer.done():
            continue  # nobody waits for it any more
        if taken.setdefault(one.question.transactional_id, one) is not one:
            rest.append(one)
    waiting[:] = rest
    return list(taken.values())


def _resolve(answer: asyncio.Future[Codes], codes: Codes) -> None:
    if not answer.done():
        answer.set_result(codes)


def _values_of(questions: Iterable[Question]) -> dict[str, object]:
    return {
        "transactions": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "verify_only": not one.adds,
                "topics": _by_topic(one.partitions),
            }
            for one in questions
        ]
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [{"name": name, "partitions": numbers} for name, numbers in topics.items()]


def _codes_for(question: Question, response: AddPartitionsToTxnResponse) -> Codes:
    if response.error_code is not ErrorCode.none:
        return _same_code(question, response.error_code)
    codes = dict(_same_code(question, ErrorCode.unknown_server_error))
    for result in response.results_by_transaction:
        if result.transactional_id != question.transactional_id:
            continue
        for topic in result.topic_results:
            for row in topic.results_by_partition:
                codes[TopicPartition(topic.name, row.partition_index)] = row.partition_error_code
    return codes


def _same_code(question: Question, code: ErrorCode) -> Codes:
    return dict.fromkeys(question.partitions, code)


# What a producer is told


def find_refusal(code: ErrorCode, *, knows_abortable: bool) -> KafkaError | None:
    """What a produce is refused with; None when the coordinator has confirmed it.

    Errors that pass are told as NOT_ENOUGH_REPLICAS, as Kafka does: every producer tries again on
    it, and none refreshes its metadata.
    """
    if code is ErrorCode.none:
        return None
    if code in _RETRIABLE:
        return NotEnoughReplicasError(f"the transaction coordinator cannot tell now: {code.name}")
    match code:
        case ErrorCode.producer_fenced | ErrorCode.invalid_producer_epoch:
            return InvalidProducerEpochError("a newer producer has the transactional id")
        case ErrorCode.invalid_producer_id_mapping:
            return InvalidProducerIdMappingError(
                "the producer id is not the one of the transactional id"
            )
        case ErrorCode.transaction_abortable if knows_abortable:
            return TransactionAbortableError("the partition is not in the transaction")
        case _:
            return InvalidTxnStateError(f"the partition is not in the transaction ({code.name})")


_Producer = tuple[int, int]
"""Producer id and epoch: one in a request, unless a client breaks the rules."""


class ProducedTransactions:
    """The transactional batches of one produce request: which of them begin a transaction.

    Those wait until the coordinator has confirmed the transaction, all of a request with one
    question; the others are appended at once. `append` for each batch, then `append_later` for each
    that has to wait.
    """

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
