"""Sends a test record. A shell."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from moldau.client.producer_values import RecordMetadata
from moldau.console.data.cluster import TIMEOUT_MS, Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingText:
    """What a person typed; None is a null. Partition None: as the partitioner says."""

    topic: str
    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str]] = ()
    partition: int | None = None


async def send_record(cluster: Cluster, record: OutgoingText) -> RecordMetadata:
    """Where it is, once it is in the log."""
    cluster.require_writable()
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        producer = await cluster.producer()
        sent = await producer.send(
            record.topic,
            None if record.value is None else record.value.encode(),
            None if record.key is None else record.key.encode(),
            partition=record.partition,
            headers=[(name, value.encode()) for name, value in record.headers],
        )
        await producer.flush()
        return await sent
