"""What the console asks about groups and transactions, and does to them, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import moldau
import moldau.testing
from moldau.client.admin.values import ConfigChange, ConfigOperation, ConfigResource, NewTopic
from moldau.client.rules.offsets import AtBeginning
from moldau.console.cluster import Cluster
from moldau.console.groups import (
    choose_groups,
    complete_rows,
    find_readers,
    list_groups,
    perform_reset,
    plan_group_reset,
    read_group,
)
from moldau.console.paging import PageRequest
from moldau.console.settings import ConsoleSettings
from moldau.console.topics import create_topic, require_topic
from moldau.console.transactions import abort_transaction, read_transaction
from moldau.errors import ConfigurationError, ProducerFencedError


def ask(
    work: Callable[[Cluster], Awaitable[None]], bootstrap: str, *, is_read_only: bool = False
) -> None:
    async def run() -> None:
        settings = ConsoleSettings(bootstrap=bootstrap, is_read_only=is_read_only)
        cluster = Cluster(settings)
        try:
            await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(run())


def test_a_share_group_shows_its_members_and_is_reset() -> None:
    async def work(cluster: Cluster) -> None:
        await create_topic(cluster, NewTopic(name="jobs", partitions=1))
        async with moldau.AsyncProducer(broker.bootstrap) as producer:
            for number in range(10):
                await producer.send("jobs", b"%d" % number)
        earliest = ConfigChange(
            name="share.auto.offset.reset", operation=ConfigOperation.SET, value="earliest"
        )
        await cluster.admin.alter_configs({ConfigResource.group("workers"): (earliest,)})
        async with moldau.AsyncQueue(
            broker.bootstrap, group="workers", topic="jobs", client_id="worker"
        ) as queue:
            for _ in range(10):
                async with await queue.take(60.0):
                    pass
            seen = await read_group(cluster, "workers")
            assert seen.is_shared
            assert seen.description is not None
            assert [one.client_id for one in seen.description.members] == ["worker"]
            assert [str(row.partition) for row in seen.rows] == ["jobs-0"]
        (row,) = await complete_rows(
            cluster, choose_groups(await list_groups(cluster), PageRequest())
        )
        assert (row.kind, row.members) == ("share", 0)
        assert row.lag == 0

        planned = await plan_group_reset(cluster, "workers", None, AtBeginning(), is_shared=True)
        assert [(one.before, one.after) for one in planned] == [(10, 0)]
        assert not await perform_reset(cluster, "workers", planned, is_shared=True)
        seen = await read_group(cluster, "workers")
        assert [(one.committed, one.lag) for one in seen.rows] == [(0, 10)]

        readers = await find_readers(cluster, await require_topic(cluster, "jobs"))
        assert [(one.name, one.lag) for one in readers.rows] == [("workers", 10)]
        assert readers.not_asked == 0

    with moldau.testing.broker() as broker:
        ask(work, broker.bootstrap)


def test_a_transaction_is_aborted_as_by_a_producer_that_starts_anew() -> None:
    async def work(cluster: Cluster) -> None:
        await create_topic(cluster, NewTopic(name="ledger"))
        async with moldau.AsyncProducer(broker.bootstrap, transactional_id="till") as producer:
            await producer.begin_transaction()
            await producer.send("ledger", b"42")
            await producer.flush()
            assert (await read_transaction(cluster, "till")).state == "Ongoing"
            await abort_transaction(cluster, "till")
            assert (await read_transaction(cluster, "till")).state != "Ongoing"
            with pytest.raises(ProducerFencedError):
                await producer.commit_transaction()

    with moldau.testing.broker() as broker:
        ask(work, broker.bootstrap)


def test_a_read_only_console_aborts_nothing() -> None:
    async def work(cluster: Cluster) -> None:
        with pytest.raises(ConfigurationError, match="read-only"):
            await abort_transaction(cluster, "till")
        with pytest.raises(ConfigurationError, match="read-only"):
            await perform_reset(cluster, "workers", (), is_shared=True)

    with moldau.testing.broker() as broker:
        ask(work, broker.bootstrap, is_read_only=True)
