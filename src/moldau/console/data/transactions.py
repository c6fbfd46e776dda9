"""Asks about transactions: the ids of all coordinators, and more about those of a page. A shell."""

from __future__ import annotations

from collections.abc import Collection

from moldau.client.transaction_values import TransactionListing
from moldau.clock import Clock
from moldau.console.data.cluster import Cluster
from moldau.console.rules.transaction_rows import TransactionRow, with_details


async def list_transactions(cluster: Cluster) -> Collection[TransactionListing]:
    return (await cluster.admin.list_transactions()).values()


async def complete_rows(
    cluster: Cluster, rows: Collection[TransactionRow], clock: Clock
) -> list[TransactionRow]:
    if not rows:
        return []
    described = await cluster.admin.describe_transactions([row.transactional_id for row in rows])
    return with_details(rows, described, clock.now_ms())
