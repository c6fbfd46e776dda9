"""kafka-python, as the tests of all clients want it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from support.rows import Got, Row
from support.waiting import PATIENCE_SECONDS

NAME = "kafka-python"
ODD_ROWS: tuple[Row, ...] = ()


@contextlib.contextmanager
def admin_client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def producer(bootstrap: str, **options: object) -> Iterator[KafkaProducer]:
    client = KafkaProducer(bootstrap_servers=bootstrap, **options)
    try:
        yield client
    finally:
        client.close(PATIENCE_SECONDS)


@contextlib.contextmanager
def consumer(bootstrap: str, **options: object) -> Iterator[KafkaConsumer]:
    client = KafkaConsumer(bootstrap_servers=bootstrap, **options)
    try:
        yield client
    finally:
        client.close(autocommit=False)


def produce(
    bootstrap: str,
    topic: str,
    rows: Sequence[Row],
    *,
    partition: int = 0,
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
) -> list[int]:
    with producer(
        bootstrap,
        compression_type=None if codec == "none" else codec,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        linger_ms=5,
    ) as client:
        return send(client, topic, rows, partition=partition)


def send(
    client: KafkaProducer, topic: str, rows: Sequence[Row], *, partition: int = 0
) -> list[int]:
    sent = [
        client.send(
            topic,
            value=row.value,
            key=row.key,
            headers=list(row.headers),
            partition=partition,
            timestamp_ms=row.timestamp_ms,
        )
        for row in rows
    ]
    client.flush(PATIENCE_SECONDS)
    return [future.get(PATIENCE_SECONDS).offset for future in sent]


def consume(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    start: int = 0,
    **options: object,
) -> list[Got]:
    with consumer(bootstrap, **options) as client:
        assigned = TopicPartition(topic, partition)
        client.assign([assigned])
        client.seek(assigned, start)
        return poll(client, count)


def poll(client: KafkaConsumer, count: int) -> list[Got]:
    found: list[Got] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        for records in client.poll(200, max_records=count - len(found)).values():
            found += map(Got.of, records)
    return found
