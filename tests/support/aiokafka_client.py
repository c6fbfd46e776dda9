"""aiokafka, as the tests of all clients want it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from support.rows import Got, Row
from support.waiting import PATIENCE_SECONDS

NAME = "aiokafka"
ODD_ROWS = (Row(b"null header", b"v", (("null", None),), 1_700_000_000_101),)


@contextlib.asynccontextmanager
async def admin_client(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def producer(bootstrap: str, **options: object) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, **options)  # type: ignore[arg-type]
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@contextlib.asynccontextmanager
async def consumer(bootstrap: str, **options: object) -> AsyncIterator[AIOKafkaConsumer]:
    client = AIOKafkaConsumer(bootstrap_servers=bootstrap, **options)  # type: ignore[arg-type]
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


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
    async def run() -> list[int]:
        async with producer(
            bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=5,
        ) as client:
            return await send(client, topic, rows, partition=partition)

    return asyncio.run(run())


async def send(
    client: AIOKafkaProducer, topic: str, rows: Sequence[Row], *, partition: int = 0
) -> list[int]:
    sent = [
        await client.send(
            topic,
            row.value,
            row.key,
            partition,
            row.timestamp_ms,
            list(row.headers),
        )
        for row in rows
    ]
    await client.flush()
    answers = await asyncio.gather(*sent)
    return [-1 if answer is None else answer.offset for answer in answers]


def consume(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    start: int = 0,
    **options: object,
) -> list[Got]:
    async def run() -> list[Got]:
        async with consumer(bootstrap, **options) as client:
            assigned = TopicPartition(topic, partition)
            client.assign([assigned])
            client.seek(assigned, start)
            return await poll(client, count)

    return asyncio.run(run())


async def poll(client: AIOKafkaConsumer, count: int) -> list[Got]:
    found: list[Got] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < count:
            batches = await client.getmany(timeout_ms=200, max_records=count - len(found))
            for records in batches.values():
                found += map(Got.of, records)
    return found
