"""What the console reads of topics, asked as its pages ask it, without a browser."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

import moldau
import moldau.testing
from moldau.client.admin.values import NewTopic
from moldau.console.cluster import Cluster
from moldau.console.record_view import KeptRecord
from moldau.console.records import (
    SEARCH_HITS,
    Ranges,
    Search,
    find_bounds,
    newest,
    read_page,
    search,
)
from moldau.console.settings import ConsoleSettings
from moldau.console.topics import create_topic
from moldau.errors import ConfigurationError


def ask(bootstrap: str, work: Callable[[Cluster], Awaitable[None]], **settings: bool) -> None:
    async def run() -> None:
        cluster = Cluster(ConsoleSettings(bootstrap=bootstrap, **settings))  # type: ignore[arg-type]
        try:
            await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(run())


async def find(
    cluster: Cluster, text: str, ranges: Ranges, *, newest_first: bool = False
) -> tuple[list[KeptRecord], Ranges]:
    """The hits of one search, and what is left of it."""
    hits: list[KeptRecord] = []
    left: Ranges = {}
    found = search(
        cluster, Search(text=text), ranges, read_committed=False, newest_first=newest_first
    )
    async with aclosing(found) as steps:
        async for step in steps:
            hits, left = step.hits, {} if step.is_done else step.left
    return hits, left


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_search_with_many_hits_goes_on_where_it_stopped(newest_first: bool) -> None:
    async def work(cluster: Cluster) -> None:
        await create_topic(cluster, NewTopic(name="many", partitions=2))
        async with moldau.AsyncProducer(broker.bootstrap, compression_type="zstd") as producer:
            for number in range(250):
                await producer.send("many", b"needle %d" % number, partition=number % 2)
        ranges = await find_bounds(cluster, "many", None)
        found: set[bytes | None] = set()
        turns = 0
        while ranges:
            hits, ranges = await find(cluster, "NEEDLE", ranges, newest_first=newest_first)
            assert len(hits) <= SEARCH_HITS
            found |= {one.value.data for one in hits}
            turns += 1
        assert found == {b"needle %d" % number for number in range(250)}
        assert turns == 3

    with moldau.testing.broker() as broker:
        ask(broker.bootstrap, work)


def test_a_search_for_the_newest_begins_at_the_end() -> None:
    async def work(cluster: Cluster) -> None:
        await create_topic(cluster, NewTopic(name="long", partitions=1))
        async with moldau.AsyncProducer(broker.bootstrap) as producer:
            for number in range(300):
                await producer.send("long", b"needle %d" % number)
        ranges = await find_bounds(cluster, "long", None)
        hits, left = await find(cluster, "needle", ranges, newest_first=True)
        assert [one.offset for one in hits] == list(range(299, 199, -1))
        (rest,) = left.values()
        assert tuple(rest) == (0, 200)
        hits, left = await find(cluster, "needle 2", ranges, newest_first=True)
        assert [one.offset for one in hits] == [*range(299, 199, -1)]

    with moldau.testing.broker() as broker:
        ask(broker.bootstrap, work)


def test_aborted_records_are_shown_unless_only_committed_ones_are_wanted() -> None:
    async def work(cluster: Cluster) -> None:
        await create_topic(cluster, NewTopic(name="ledger"))
        async with moldau.AsyncProducer(broker.bootstrap, transactional_id="t") as producer:
            async with producer.transaction():
                await producer.send("ledger", b"kept")
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send("ledger", b"dropped")
                    await producer.flush()
                    raise ZeroDivisionError
        bounds = await find_bounds(cluster, "ledger", 0)
        for read_committed, expected in ((False, [b"dropped", b"kept"]), (True, [b"kept"])):
            page = await read_page(
                cluster, newest(bounds), bounds, 50, read_committed=read_committed
            )
            assert [one.value.data for one in page.records] == expected
            assert not page.has_more

    with moldau.testing.broker() as broker:
        ask(broker.bootstrap, work)


def test_a_read_only_console_changes_nothing() -> None:
    async def work(cluster: Cluster) -> None:
        with pytest.raises(ConfigurationError, match="read-only"):
            await create_topic(cluster, NewTopic(name="refused"))
        assert "refused" not in await cluster.admin.list_topics()

    with moldau.testing.broker() as broker:
        ask(broker.bootstrap, work, is_read_only=True)
