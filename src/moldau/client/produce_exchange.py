"""Batches into a Produce request, and its response into answers for the batches.

Answers for encoding, compression and matching; connections and attempts are `broker_link`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.connections import Answer, BrokerConnection
from moldau.client.rules.batch_delivery import PartitionAnswer
from moldau.client.rules.producer_batches import ProducerBatch
from moldau.config.client_options import ProducerOptions
from moldau.errors import (
    ConnectionLostError,
    KafkaError,
    MalformedFrameError,
    MoldauError,
    UnsupportedVersionError,
)
from moldau.model.protocol_numbers import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from moldau.records.batch_builder import build_batch
from moldau.records.compression import Codec
from moldau.wire.apis import PRODUCE
from moldau.wire.produce_client import (
    Buffer,
    ProduceAnswer,
    encode_produce_request,
    group_by_topic,
    parse_produce_response,
)

_FIRST_WITH_ZSTD = 7

Batch = ProducerBatch[Any]
Answered = tuple[Batch, PartitionAnswer]


class Exchanged(NamedTuple):
    """What a response says about the batches of its request."""

    answers: Sequence[Answered]
    throttle_time_ms: int = 0


class ProduceExchange:
    """Writes and reads for one producer."""

    def __init__(self, options: ProducerOptions) -> None:
        self.acks = options.acks
        self._timeout_ms = options.request_timeout_ms
        self._codec = Codec.parse(options.compression_type)
        self._level = options.compression_level

    @property
    def compresses(self) -> bool:
        return self._codec is not Codec.NONE

    def choose_version(self, connection: BrokerConnection) -> int:
        version = connection.choose_version(PRODUCE)
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
        )

    def request_body(self, version: int, batches: Sequence[Batch]) -> list[Buffer]:
        """A request with these batches, which are encoded."""
        topics = group_by_topic((*batch.partition, batch.encoded or b"") for batch in batches)
        return encode_produce_request(version, self.acks, self._timeout_ms, topics)

    def read(self, version: int, answer: Answer, batches: Sequence[Batch]) -> Exchanged:
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
