"""Takes a producer's batches to brokers and brings the answers back. A shell.

`Sending` has a link to each broker: requests leave in the order in which they were handed over, and
every one comes back exactly once through `on_answers`. What an answer means is the machine's
decision. One task for each link sends; answers arrive by callback.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import BrokerConnection, Response
from moldau.client.rules.producer_batches import ProducerBatch
from moldau.client.rules.producer_instructions import PartitionAnswer
from moldau.config.client_options import ACKS_NONE, ProducerOptions
from moldau.errors import (
    BrokerUnreachableError,
    ClientError,
    ConnectionLostError,
    KafkaError,
    MalformedFrameError,
    MoldauError,
    UnsupportedVersionError,
)
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import PRODUCE
from moldau.wire.produce_frame import (
    Buffer,
    ProduceAnswer,
    encode_produce_request,
    group_by_topic,
    parse_produce_response,
)
from moldau.workers import Workers

_FIRST_WITH_ZSTD = 7
_CONFIRMED = PartitionAnswer()

Batch: TypeAlias = ProducerBatch[Any]
Answered: TypeAlias = tuple[Batch, PartitionAnswer]
OnAnswers: TypeAlias = Callable[[int, Sequence[Answered], float], None]
"""Of the broker, its answers, and the seconds for which it wants to be left alone (KIP-219)."""


class Sending:
    """The links of one producer."""

    def __init__(
        self,
        client: ClusterClient,
        options: ProducerOptions,
        workers: Workers | None,
        tasks: TaskSupervisor,
        on_answers: OnAnswers,
    ) -> None:
        self._client = client
        self._exchange = ProduceExchange(options)
        self._workers = workers if self._exchange.compresses else None
        self._tasks = tasks
        self._on_answers = on_answers
        self._links: dict[int, BrokerLink] = {}

    def limit_version(self, last_version: int | None) -> None:
        """Send no later version from now on."""
        self._exchange.last_version = last_version

    def send(self, broker_id: int, batches: Sequence[Batch]) -> None:
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = BrokerLink(
                broker_id, self._client, self._exchange, self._workers, self._on_answers
            )
            self._tasks.spawn(f"batches to broker {broker_id}", link.run())
        link.send(batches)


class BrokerLink:
    """A producer's line to one broker."""

    def __init__(
        self,
        broker_id: int,
        client: ClusterClient,
        exchange: ProduceExchange,
        workers: Workers | None,
        on_answers: OnAnswers,
    ) -> None:
        self._broker_id = broker_id
        self._client = client
        self._exchange = exchange
        self._workers = workers
        self._on_answers = on_answers
        self._outbox: deque[Sequence[Batch]] = deque()
        self._has_work = asyncio.Event()

    def send(self, batches: Sequence[Batch]) -> None:
        self._outbox.append(batches)
        self._has_work.set()

    async def run(self) -> None:
        """Send what is handed over, until cancelled."""
        while True:
            await self._has_work.wait()
            while self._outbox:
                await self._send(self._outbox[0])
            self._has_work.clear()

    async def _send(self, batches: Sequence[Batch]) -> None:
        try:
            arrived, version = await self._post(batches)
        except (KafkaError, ClientError) as error:
            self._return_all(error)
            return
        self._outbox.popleft()
        if arrived is None:
            self._give_back([(batch, _CONFIRMED) for batch in batches])
            return
        arrived.add_done_callback(lambda future: self._on_arrival(future, version, batches))

    async def _post(self, batches: Sequence[Batch]) -> tuple[asyncio.Future[Response] | None, int]:
        connection = await self._client.connect_to_broker(self._broker_id)
        version = self._exchange.choose_version(connection)
        if self._workers is not None:
            await self._workers.run(lambda: self._exchange.encode_batches(batches))
        else:
            self._exchange.encode_batches(batches)
        body = self._exchange.request_body(version, batches)
        if self._exchange.acks == ACKS_NONE:
            await connection.send_without_answer(PRODUCE, version, body)
            return None, version
        return await connection.post(PRODUCE, version, body), version

    def _return_all(self, error: KafkaError | ClientError) -> None:
        """The first request failed; those behind it never left, and must not overtake it."""
        first, *others = self._outbox
        self._outbox.clear()
        self._give_back(same_answer(first, error))
        for batches in others:
            self._give_back(same_answer(batches, BrokerUnreachableError(str(error))))

    def _on_arrival(
        self, arrived: asyncio.Future[Response], version: int, batches: Sequence[Batch]
    ) -> None:
        if arrived.cancelled():
            self._give_back(same_answer(batches, ClientError("the producer is closed")))
            return
        failure = arrived.exception()
        if failure is not None:
            known = failure if isinstance(failure, MoldauError) else ClientError(repr(failure))
            self._give_back(same_answer(batches, known))
            return
        answers, throttle_time_ms = self._exchange.read(version, arrived.result(), batches)
        self._on_answers(self._broker_id, answers, throttle_time_ms / 1000)

    def _give_back(self, answers: Sequence[Answered]) -> None:
        self._on_answers(self._broker_id, answers, 0.0)


class Exchanged(NamedTuple):
    """What a response says about the batches of its request."""

    answers: Sequence[Answered]
    throttle_time_ms: int = 0


class ProduceExchange:
    """Batches into a Produce request, and its response into answers for the batches."""

    def __init__(self, options: ProducerOptions) -> None:
        self.acks = options.acks
        self._timeout_ms = options.request_timeout_ms
        self._codec = Codec.parse(options.compression_type)
        self._level = options.compression_level
        self._transactional_id = options.transactional_id
        self.last_version: int | None = None  # that may be sent; None for the last that is known

    @property
    def compresses(self) -> bool:
        return self._codec is not Codec.NONE

    def choose_version(self, connection: BrokerConnection) -> int:
        version = connection.choose_version(PRODUCE, at_most=self.last_version)
        if self._codec is Codec.ZSTD and version < _FIRST_WITH_ZSTD:
            raise UnsupportedVersionError(f"{connection.address} is too old for zstd batches")
        return version

    def encode_batches(self, batches: Iterable[Batch]) -> None:
        """Bring batches into the form in which they are sent, each once."""
        for batch in batches:
            if batch.encoded is None:
                batch.encoded = self._encode(batch)

    def _encode(self, batch: Batch) -> bytearray:
        identity, sequence = batch.identity, batch.base_sequence
        return build_batch(
            batch.rows,
            codec=self._codec,
            level=self._level,
            producer_id=NO_PRODUCER_ID if identity is None else identity.id,
            producer_epoch=NO_PRODUCER_EPOCH if identity is None else identity.epoch,
            base_sequence=NO_SEQUENCE if sequence is None else sequence,
            transactional=self._transactional_id is not None,
        )

    def request_body(self, version: int, batches: Sequence[Batch]) -> list[Buffer]:
        """A request with these batches, which are encoded."""
        topics = group_by_topic((*batch.partition, batch.encoded or b"") for batch in batches)
        return encode_produce_request(
            version, self.acks, self._timeout_ms, topics, self._transactional_id
        )

    def read(self, version: int, answer: Response, batches: Sequence[Batch]) -> Exchanged:
        """What the response says; of a batch that it does not mention the answer is lost."""
        try:
            answers, throttle_time_ms = parse_produce_response(
                version, answer.frame, answer.position
            )
        except MalformedFrameError as error:
            lost = ConnectionLostError(f"the answer cannot be read: {error}")
            return Exchanged(same_answer(batches, lost))
        told = {(row.topic, row.partition): row for row in answers}
        return Exchanged(
            [(batch, _answer_for(batch, told.get(batch.partition))) for batch in batches],
            throttle_time_ms,
        )


def same_answer(batches: Iterable[Batch], error: MoldauError) -> Sequence[Answered]:
    """The answer of a request that failed as a whole."""
    answer = PartitionAnswer(error)
    return [(batch, answer) for batch in batches]


def _answer_for(batch: Batch, row: ProduceAnswer | None) -> PartitionAnswer:
    if row is None:
        return PartitionAnswer(
            ConnectionLostError(f"the answer does not say what became of {batch.partition}")
        )
    if not row.error_code:
        return PartitionAnswer(None, row.base_offset, row.log_append_time_ms)
    return PartitionAnswer(_error_of(row, batch), record_faults=row.record_errors)


def _error_of(row: ProduceAnswer, batch: Batch) -> KafkaError:
    try:
        code = ErrorCode(row.error_code)
    except ValueError:  # newer than this client
        code = ErrorCode.unknown_server_error
    return error_for(code, row.error_message, str(batch.partition))
