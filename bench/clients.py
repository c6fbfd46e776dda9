"""confluent-kafka against Moldau and, in turns, against librdkafka's own mock broker.

The mock broker is written in C, keeps a little data in memory and checks nothing: how close the
broker comes to it is how little of it a client notices. Client and server are separate processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.measure import CPU_PER_GB, MB_PER_SECOND, Measured, least, measure, most, take_turns
from bench.processes import ServerProcess, running_broker, serving_module
from bench.raw_client import RawClient
from bench.report import Outcome, Table
from bench.scale import Scale
from bench.throughput import record_name

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer, TopicPartition

_PARTITIONS = 4  # what the mock broker gives a new topic
_KEPT_BYTES = 4 << 20  # of a partition: less than the mock broker keeps
_TOPICS = 4
_SMALL_RECORD_BYTES = 400
_POLL_SECONDS = 10.0
_CONSUMED_AT_ONCE = 10_000

_quiet = logging.getLogger("bench.clients")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def run(scale: Scale) -> Outcome:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        note = "confluent-kafka is not installed: pip install confluent-kafka"
        return Outcome(tables=[Table(title="Clients: skipped", columns=("why",), rows=[(note,)])])
    table = Table(
        title="confluent-kafka, one client, 4 partitions, no compression",
        columns=(
            "client",
            "records",
            "MB/s",
            "mock MB/s",
            "speed against mock",
            "broker CPU s/GB",
            "mock CPU s/GB",
        ),
        note="mock: librdkafka's broker in C, in memory, without checks and without a disk.",
    )
    for record_bytes in scale.record_sizes:
        with running_broker() as broker, serving_module("bench.mock_cluster") as mock:
            with RawClient(broker) as client:
                for topic in _topics():
                    client.create_topic(topic, partitions=_PARTITIONS)
            _compare(table, scale, "producer", record_bytes, broker, mock, _rounds_of_produce)
            _compare(table, scale, "consumer", record_bytes, broker, mock, _rounds_of_consume)
    return Outcome(tables=[table])


def _topics() -> list[str]:
    return [f"topic-{number}" for number in range(_TOPICS)]


Rounds = Callable[[ServerProcess, Scale, int], Callable[[], Measured]]


def _compare(
    table: Table,
    scale: Scale,
    name: str,
    record_bytes: int,
    broker: ServerProcess,
    mock: ServerProcess,
    rounds_of: Rounds,
) -> None:
    found = take_turns(
        scale.rounds,
        {
            "broker": rounds_of(broker, scale, record_bytes),
            "mock": rounds_of(mock, scale, record_bytes),
        },
    )
    speed = most(found["broker"], MB_PER_SECOND)
    mock_speed = most(found["mock"], MB_PER_SECOND)
    table.add(
        name,
        record_name(record_bytes),
        speed,
        mock_speed,
        speed / mock_speed,
        least(found["broker"], CPU_PER_GB),
        least(found["mock"], CPU_PER_GB),
    )


def _rounds_of_produce(
    server: ServerProcess, scale: Scale, record_bytes: int
) -> Callable[[], Measured]:
    producer = _producer(server)
    # The client's own work for each record is what takes long with small ones.
    count = scale.client_bytes // max(record_bytes, _SMALL_RECORD_BYTES)
    topic = _topics()[0]

    def run_round() -> Measured:
        return measure(
            server,
            lambda: _send(producer, topic, bytes(record_bytes), count),
            requests=count,
            payload_bytes=count * record_bytes,
        )

    return run_round


def _producer(server: ServerProcess) -> Producer:
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": server.bootstrap,
        "acks": 1,
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
    }
    return Producer(settings, logger=_quiet)


def _send(producer: Producer, topic: str, value: bytes, count: int) -> None:
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(_POLL_SECONDS):
        raise RuntimeError("not everything was acknowledged")


def _rounds_of_consume(
    server: ServerProcess, scale: Scale, record_bytes: int
) -> Callable[[], Measured]:
    """Reads what the topics keep from the beginning, as often as it takes."""
    from confluent_kafka import Consumer, TopicPartition

    share = scale.client_bytes * record_bytes // max(record_bytes, _SMALL_RECORD_BYTES)
    kept = min(_KEPT_BYTES, max(record_bytes, share // _TOPICS // _PARTITIONS))
    producer = _producer(server)
    for topic in _topics():
        _send(producer, topic, bytes(record_bytes), kept // record_bytes * _PARTITIONS)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # A round ends with a long poll at the end of the log, and the next one waits for it.
            "fetch.wait.max.ms": 5,
        },
        logger=_quiet,
    )
    parts = []
    for topic in _topics():
        for number in range(_PARTITIONS):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number))
            parts.append(TopicPartition(topic, number, end - kept // record_bytes))
    count = len(parts) * (kept // record_bytes)

    def run_round() -> Measured:
        return measure(
            server,
            lambda: _receive(consumer, parts, count),
            requests=count,
            payload_bytes=count * record_bytes,
        )

    return run_round


def _receive(consumer: Consumer, parts: list[TopicPartition], count: int) -> None:
    consumer.assign(parts)
    while count > 0:
        messages = consumer.consume(min(count, _CONSUMED_AT_ONCE), timeout=_POLL_SECONDS)
        if not messages:
            raise RuntimeError(f"{count} records did not arrive")
        # What is no record is a complaint about the group, of which these partitions have no need.
        count -= sum(message.error() is None for message in messages)
    consumer.unassign()
