"""Asks about transactions: the ids of all coordinators, and more about those of a page; ends one.
A shell."""

from __future__ import annotations

from collections.abc import Collection

from moldau.client.transaction_values import TransactionDescription, TransactionListing
from moldau.clock import Clock
from moldau.console.data.cluster import Cluster
from moldau.console.rules.transaction_rows import TransactionRow, with_details
from moldau.errors import KafkaError


async def list_transactions(cluster: Cluster) -> Collection[TransactionListing]:
    return (await cluster.admin.list_transactions()).values()


async def complete_rows(
    cluster: Cluster, rows: Collection[TransactionRow], clock: Clock
) -> list[TransactionRow]:
    if not rows:
        return []
    described = await cluster.admin.describe_transactions([row.transactional_id for row in rows])
    return with_details(rows, described, clock.now_ms())


async def read_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    found = (await cluster.admin.describe_transactions((transactional_id,)))[transactional_id]
    if isinstance(found, KafkaError):
        raise found
    return found


async def abort_transaction(cluster: Cluster, transactional_id: str) -> None:
    """As a producer with this id that starts anew: its coordinator aborts what is open, in all
    partitions, and its former producer may write nothing more."""
    cluster.require_writable()
    async with cluster.transactional_producer(transactional_id) as producer:
        await producer.begin_transaction()
        await producer.abort_transaction()
