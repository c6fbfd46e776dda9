"""Brokers for a producer to talk to, in one process and on a virtual clock.

They keep what they are sent and number it, as brokers do, unless the test has put a mishap in the
way: each Produce request takes the next of `mishaps`, and is served when there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from client.scripted_broker import NO_ANSWER, Instead, Request, ScriptedBroker, Stage, metadata
from moldau.client.producer.producer import AsyncProducer
from moldau.errors import ErrorCode, KafkaError
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.record import Record
from moldau.records.record_batch import records_of
from moldau.storage.rules.producer_state import (
    Duplicate,
    ProducerEntry,
    apply_batch,
    check_sequence,
)

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22
TOPIC = "rivers"

T = TypeVar("T")
Answer = Mapping[str, object] | Instead
Mishap = Callable[[Request], Answer] | ErrorCode | Instead


class ProducerStage(Stage):
    """One or more brokers with one topic, and the producers that a test makes."""

    def __init__(self, broker_count: int = 1, leaders: Iterable[int] = (1,)) -> None:
        super().__init__(broker_count)
        self.topics = {TOPIC: list(leaders)}
        self.logs: dict[int, list[Record]] = {}
        self.headers: list[BatchHeader] = []  # of every batch that came
        self.mishaps: deque[Mishap] = deque()
        self.throttle_ms = 0
        self.log_append_time_ms = -1
        self.producer_id_errors: deque[ErrorCode] = deque()
        self._entries: dict[tuple[int, int], ProducerEntry] = {}
        for broker in self.brokers:
            broker.scripts[METADATA] = self._answer_metadata
            broker.scripts[INIT_PRODUCER_ID] = self._answer_producer_id
            broker.scripts[PRODUCE] = self._answer_produce

    @property
    def broker(self) -> ScriptedBroker:
        return self.brokers[0]

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.logs.get(partition, [])]

    def produce_requests(self) -> list[Request]:
        return [one for broker in self.brokers for one in broker.asked(PRODUCE)]

    def make_producer(self, bootstrap: str = "b1:9092", **options: Any) -> AsyncProducer:
        return AsyncProducer(
            bootstrap, network=self.network.host("client"), clock=self.clock, **options
        )

    def run(self, story: Callable[[AsyncProducer], Coroutine[Any, Any, T]], **options: Any) -> T:
        """Play a story with a producer that is closed at its end."""

        async def whole() -> T:
            async with self.make_producer(**options) as producer:
                return await story(producer)

        return self.play(whole)

    # What the brokers answer

    def _answer_metadata(self, request: Request) -> Answer:
        return metadata(self.topics, brokers=len(self.brokers))(request)

    def _answer_producer_id(self, request: Request) -> Answer:
        error = self.producer_id_errors.popleft() if self.producer_id_errors else ErrorCode.none
        return {"throttle_time": 0, "error_code": error, "producer_id": 7, "producer_epoch": 0}

    def _answer_produce(self, request: Request) -> Answer:
        mishap = self.mishaps.popleft() if self.mishaps else None
        if isinstance(mishap, Instead):
            return mishap
        if callable(mishap) and not isinstance(mishap, ErrorCode):
            return mishap(request)
        answer = self.serve(request, mishap)
        return answer if request.acks else NO_ANSWER

    def serve(self, request: Request, error: ErrorCode | None = None) -> Answer:
        """Write the batches, or refuse them all."""
        return {
            "responses": [
                {
                    "name": topic.name,
                    "partition_responses": [
                        self._take(row.index, row.records, error) for row in topic.partition_data
                    ],
                }
                for topic in request.topic_data
            ],
            "throttle_time": self.throttle_ms,
        }

    def _take(self, partition: int, batch: bytes, error: ErrorCode | None) -> Mapping[str, object]:
        header = read_header(batch)
        self.headers.append(header)
        offset = -1
        if error is None:
            try:
                offset = self._append(partition, batch, header)
            except KafkaError as refusal:
                error = refusal.code
        return {
            "index": partition,
            "error_code": error or ErrorCode.none,
            "base_offset": offset,
            "log_append_time": self.log_append_time_ms,
            "log_start_offset": 0,
            "record_errors": (),
            "error_message": None,
        }

    def _append(self, partition: int, batch: bytes, header: BatchHeader) -> int:
        entry = self._entries.get((partition, header.producer_id))
        if header.has_producer:
            found = check_sequence(entry, header)
            if isinstance(found, Duplicate):
                return found.first_offset
        log = self.logs.setdefault(partition, [])
        offset = len(log)
        log += records_of(batch, header._replace(base_offset=offset))
        if header.has_producer:
            key = (partition, header.producer_id)
            self._entries[key] = apply_batch(entry, header, offset)
        return offset


def refuse_records(code: ErrorCode, faults: Mapping[int, str]) -> Mishap:
    """Refuse the only batch of a request, blaming some of its records."""

    def answer(request: Request) -> Answer:
        (topic,) = request.topic_data
        (row,) = topic.partition_data
        return {
            "responses": [
                {
                    "name": topic.name,
                    "partition_responses": [
                        {
                            "index": row.index,
                            "error_code": code,
                            "base_offset": -1,
                            "log_append_time": -1,
                            "log_start_offset": -1,
                            "record_errors": [
                                {"batch_index": index, "batch_index_error_message": fault}
                                for index, fault in faults.items()
                            ],
                            "error_message": "some records are bad",
                        }
                    ],
                }
            ],
            "throttle_time": 0,
        }

    return answer
