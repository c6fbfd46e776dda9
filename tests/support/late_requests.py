"""A transactional producer over two connections, and a proxy that keeps requests of one back while
others overtake them, as a network with a broken path does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema

from moldau.errors import ErrorCode
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import build_batch, records_of
from moldau.wire.shape import fit
from support.broker_process import BrokerProcess
from support.topics import Topics
from support.waiting import eventually
from support.wire_client import WireClient

PRODUCE, FETCH, FIND_COORDINATOR, INIT, ADD_PARTITIONS, END = 0, 1, 10, 22, 24, 26
TIMEOUT = timedelta(seconds=30)


class HoldingProxy:
    """One connection to a broker; what the client sends waits until it is let go."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.go = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection(("127.0.0.1", self._broker_port)) as broker:
            back = threading.Thread(target=_pump, args=(broker, client), daemon=True)
            back.start()
            _pump(client, broker, self.go)
            back.join()

    def close(self) -> None:
        self.go.set()
        self._thread.join(30)
        self._listener.close()


def _pump(source: socket.socket, target: socket.socket, go: threading.Event | None = None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if go is not None:
                go.wait()
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class LateProducer:
    """A transactional producer that speaks over two connections."""

    def __init__(self, direct: WireClient, broker: BrokerProcess, topic: str) -> None:
        self.direct = direct
        self.broker = broker
        self.topic = topic
        self.producer_id, self.epoch = self._init()

    def ask(self, key: int, version: int, **values: object) -> Any:
        return self.direct.ask(fit(load_request_schema(key, version), values))

    def _init(self) -> tuple[int, int]:
        def find() -> bool:
            found = self.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=("late",))
            return bool(found.coordinators[0].error_code is ErrorCode.none)

        eventually(find, "a transaction coordinator")
        answers: list[Any] = []

        def init() -> bool:
            answers.append(
                self.ask(
                    INIT,
                    4,
                    transactional_id="late",
                    transaction_timeout=60_000,
                    producer_id=-1,
                    producer_epoch=-1,
                )
            )
            return bool(answers[-1].error_code is ErrorCode.none)

        eventually(init, "a producer id")
        return answers[-1].producer_id, answers[-1].producer_epoch

    def produce_request(self, value: bytes, version: int, sequence: int = 0) -> Any:
        now_ms = int(time.time() * 1000)  # with that of the markers in one segment
        batch = build_batch(
            [(now_ms, None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        values = {
            "transactional_id": "late",
            "acks": -1,
            "timeout": TIMEOUT,
            "topic_data": [
                {"name": self.topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}
            ],
        }
        return fit(load_request_schema(PRODUCE, version), values)

    def produce(self, value: bytes, version: int, sequence: int = 0) -> ErrorCode:
        """Until the former transaction is completed, the producer has to come again."""
        codes: list[ErrorCode] = []

        def send() -> bool:
            answer = self.direct.ask(self.produce_request(value, version, sequence))
            codes.append(code_of(answer))
            return codes[-1] is not ErrorCode.not_enough_replicas

        eventually(send, "a produce that is taken or refused")
        return codes[-1]

    def add_partition(self) -> None:
        def add() -> bool:
            answer = self.ask(
                ADD_PARTITIONS,
                3,
                v3_and_below_transactional_id="late",
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": self.topic, "partitions": [0]}],
            )
            (result,) = answer.results_by_topic_v3_and_below
            code = result.results_by_partition[0].partition_error_code
            return bool(code is ErrorCode.none)

        eventually(add, "a partition in the transaction")

    def end(self, version: int, *, commit: bool) -> None:
        def end() -> bool:
            answer = self.ask(
                END,
                version,
                transactional_id="late",
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            if answer.error_code is ErrorCode.none and version >= 5:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return bool(answer.error_code is ErrorCode.none)

        eventually(end, "the end of the transaction")

    def read(self) -> tuple[list[bytes], int, int]:
        """What a reader of decided transactions sees, the last stable offset, the end."""
        row = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        answer = self.ask(
            FETCH,
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": self.topic, "partitions": [row]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        found = answer.responses[0].partitions[0]
        aborted = {one.first_offset for one in found.aborted_transactions or ()}
        data = memoryview(bytes(found.records or b""))
        values = [
            record.value or b""
            for position, header in walk_headers(data)
            if not header.is_control and header.base_offset not in aborted
            for record in records_of(data[position : position + header.size_bytes], header)
        ]
        return values, found.last_stable_offset, found.high_watermark


def code_of(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.responses[0].partition_responses[0].error_code
    return code


@contextlib.contextmanager
def late_producer(broker: BrokerProcess) -> Iterator[LateProducer]:
    """With a topic of its own."""
    with WireClient(broker.port) as direct:
        yield LateProducer(direct, broker, Topics(broker.bootstrap).create())


@contextlib.contextmanager
def held_back(producer: LateProducer, request: Any) -> Iterator[tuple[HoldingProxy, WireClient]]:
    """A request that was sent, and has not arrived."""
    proxy = HoldingProxy(producer.broker.port)
    try:
        with WireClient(proxy.port) as late:
            late.send_request(request)
            yield proxy, late
    finally:
        proxy.close()
