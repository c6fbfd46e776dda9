"""What the console asks a cluster for, and when it asks nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, cast

from moldau.client.admin.values import (
    Broker,
    ClusterDescription,
    ListedOffset,
    LogDirDescription,
    TopicMetadata,
)
from moldau.client.rules.cluster_metadata import Address, PartitionMetadata
from moldau.console.cluster import Cluster
from moldau.console.settings import ConsoleSettings
from moldau.console.watch import WATCH_SECONDS, ConsoleWatch
from moldau.errors import ClusterUnreachableError
from moldau.model import TopicPartition
from moldau.simulation.manual_clock import ManualClock

SETTINGS = ConsoleSettings(bootstrap="h:1")
CLUSTER = ClusterDescription(
    cluster_id="c", controller_id=1, brokers=(Broker(id=1, address=Address("h", 1)),)
)
TOPIC = TopicMetadata(
    name="clicks",
    partitions=(
        PartitionMetadata(index=0, leader_id=1, replicas=(1,), in_sync_replicas=(1,)),
        PartitionMetadata(index=1, leader_id=-1, replicas=(2,), in_sync_replicas=(2,)),
        PartitionMetadata(index=2, leader_id=2, replicas=(2,), in_sync_replicas=(2,)),
    ),
)


class ScriptedAdmin:
    """Answers at once; ten records come with every question about offsets."""

    def __init__(self) -> None:
        self.questions = 0
        self.is_away = False
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.end = 0
        self.asked_about: set[TopicPartition] = set()

    async def describe_cluster(self) -> ClusterDescription:
        self.questions += 1
        if self.is_away:
            raise ClusterUnreachableError("nobody answers")
        return CLUSTER

    async def list_topics(self) -> Mapping[str, TopicMetadata]:
        await self.goes_on.wait()
        return {"clicks": TOPIC}

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListedOffset]:
        self.questions += 1
        self.end += 10
        self.asked_about |= wanted.keys()
        return {one: ListedOffset(offset=self.end) for one in wanted}

    async def describe_log_dirs(
        self, broker_ids: Collection[int]
    ) -> Mapping[int, tuple[LogDirDescription, ...]]:
        self.questions += 1
        return dict.fromkeys(broker_ids, ())


Story = Callable[[ConsoleWatch, ScriptedAdmin, ManualClock], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    async def run() -> None:
        clock, admin = ManualClock(), ScriptedAdmin()
        watch = ConsoleWatch(
            cast("Cluster", SimpleNamespace(admin=admin, settings=SETTINGS)), clock
        )
        watch.start()
        try:
            await story(watch, admin, clock)
        finally:
            await watch.stop()

    asyncio.run(run())


def test_nothing_is_asked_while_nobody_looks() -> None:
    async def story(watch: ConsoleWatch, admin: ScriptedAdmin, clock: ManualClock) -> None:
        await clock.advance(60)
        assert admin.questions == 0
        watch.keep_watching()
        await clock.advance(WATCH_SECONDS)
        assert admin.questions > 10
        await clock.advance(WATCH_SECONDS)
        asked = admin.questions
        await clock.advance(3600)
        assert admin.questions == asked

    play(story)


def test_the_rate_is_that_of_partitions_that_somebody_leads() -> None:
    async def story(watch: ConsoleWatch, admin: ScriptedAdmin, clock: ManualClock) -> None:
        watch.keep_watching()
        await clock.advance(5)
        assert admin.asked_about == {TopicPartition("clicks", 0)}
        assert watch.rates == {"clicks": 10.0}
        assert watch.histories.total.records.last == 10.0

    play(story)


def test_a_cluster_that_is_away_is_asked_until_it_is_back() -> None:
    async def story(watch: ConsoleWatch, admin: ScriptedAdmin, clock: ManualClock) -> None:
        watch.keep_watching()
        await clock.advance(3)
        assert watch.trouble is None
        admin.is_away = True
        since_ms = clock.now_ms()
        await clock.advance(10)
        trouble = watch.trouble
        assert trouble is not None
        assert trouble.message == "nobody answers"
        assert trouble.since_ms - since_ms <= 2000
        assert watch.view is not None  # what was known stays
        admin.is_away = False
        watch.keep_watching()
        await clock.advance(3)
        assert watch.trouble is None

    play(story)


def test_a_cluster_that_takes_its_time_is_said_to_be_away_and_seen_all_the_same() -> None:
    async def story(watch: ConsoleWatch, admin: ScriptedAdmin, clock: ManualClock) -> None:
        admin.goes_on.clear()
        watch.keep_watching()
        await clock.advance(9)
        assert watch.trouble is not None
        assert watch.trouble.message == "the cluster did not answer in time"
        assert watch.view is None
        admin.goes_on.set()
        await clock.advance(0.1)
        assert watch.trouble is None
        assert watch.view is not None

    play(story)
