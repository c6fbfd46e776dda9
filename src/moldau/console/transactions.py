"""Transactions: the ids of all coordinators as rows, those with an open one first; ending one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin.values import (
    UNDECIDED_OR_COMPLETING,
    TransactionDescription,
    TransactionListing,
)
from moldau.clock import Clock
from moldau.console.cluster import Cluster
from moldau.console.paging import PageRequest, matches, natural_key
from moldau.errors import KafkaError
from moldau.ops.formatting import duration_text, time_text


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRow:
    """A transactional id; age and partitions are those of what is open."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator_id: int
    age_seconds: float | None = None
    timeout_seconds: float | None = None
    partitions: int | None = None

    @property
    def is_open(self) -> bool:
        return self.state in UNDECIDED_OR_COMPLETING

    @property
    def is_late(self) -> bool:
        """Open for longer than its producer has asked for: its coordinator should have ended it."""
        return (
            self.is_open
            and self.age_seconds is not None
            and self.timeout_seconds is not None
            and self.age_seconds > self.timeout_seconds
        )


def choose_transactions(
    listings: Collection[TransactionListing], request: PageRequest, *, only_open: bool
) -> Sequence[TransactionRow]:
    rows = [
        TransactionRow(
            transactional_id=one.transactional_id,
            state=one.state,
            producer_id=one.producer_id,
            coordinator_id=one.coordinator_id,
        )
        for one in listings
        if matches(one.transactional_id, request.search)
        and (not only_open or one.state in UNDECIDED_OR_COMPLETING)
    ]
    return sorted(rows, key=lambda row: (not row.is_open, natural_key(row.transactional_id)))


def with_details(
    rows: Collection[TransactionRow],
    described: Mapping[str, TransactionDescription | KafkaError],
    now_ms: int,
) -> list[TransactionRow]:
    """The rows of a page, with what their coordinators know beside."""
    return [_with_details(row, described.get(row.transactional_id), now_ms) for row in rows]


def _with_details(
    row: TransactionRow, found: TransactionDescription | KafkaError | None, now_ms: int
) -> TransactionRow:
    if not isinstance(found, TransactionDescription):
        return row
    started = found.started_ms
    return TransactionRow(
        transactional_id=row.transactional_id,
        state=found.state,
        producer_id=found.producer_id,
        coordinator_id=found.coordinator_id,
        age_seconds=None if started is None else max(0, now_ms - started) / 1000,
        timeout_seconds=found.timeout_ms / 1000,
        partitions=len(found.partitions),
    )


def transaction_facts(found: TransactionDescription, now_ms: int) -> Sequence[tuple[str, str]]:
    """What a page says of one transactional id, name by name."""
    started = found.started_ms if found.state in UNDECIDED_OR_COMPLETING else None
    age = None if started is None else max(0, now_ms - started) / 1000
    since = "nothing is open" if started is None else f"{time_text(started)} UTC"
    return (
        ("State", found.state),
        ("Open since", since if age is None else f"{since}, for {duration_text(age)}"),
        ("Time-out", duration_text(found.timeout_ms / 1000)),
        ("Producer", f"id {found.producer_id}, epoch {found.producer_epoch}"),
        ("Coordinator", f"broker {found.coordinator_id}"),
    )
