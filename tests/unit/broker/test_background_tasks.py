"""A background duty that fails is begun again, or ends the broker; it is never just logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moldau.broker.background_tasks import (
    FIRST_PAUSE_SECONDS,
    MOST_FAILURES,
    WINDOW_SECONDS,
    BackgroundTasks,
    pause_before_restart,
)
from moldau.broker.run import run_broker
from moldau.broker.server import BrokerServer
from moldau.cluster.controller import Controller
from moldau.coordinators.groups.coordinator import GroupCoordinator
from moldau.coordinators.groups.shard import GroupShard
from moldau.errors import BrokerFailedError
from moldau.model import TopicPartition
from moldau.records.record_batch import build_batch
from moldau.replication.isr_keeper import IsrKeeper
from moldau.replication.partitions import Partitions
from moldau.replication.replica_fetcher import ReplicaFetcher
from moldau.simulation.manual_clock import wait_until_idle
from moldau.storage.log_store import LogStore
from moldau.tasks import TaskSupervisor
from moldau.testing import ManualClock

from .cluster_stage import Cluster, play
from .test_broker_in_memory import World

MANY = 1_000_000


class Surprise(Exception):
    """What nobody foresaw."""


# The rule


def test_pauses_grow_until_a_duty_is_given_up() -> None:
    failed_at: list[float] = []
    pauses = []
    for number in range(MOST_FAILURES):
        failed_at.append(float(number))
        pauses.append(pause_before_restart(failed_at, float(number)))
    assert pauses[0] == FIRST_PAUSE_SECONDS
    assert pauses[-1] is None
    grown = [pause for pause in pauses if pause is not None]
    assert grown == sorted(grown)


def test_failures_of_long_ago_do_not_count() -> None:
    failed_at = [float(number) for number in range(MOST_FAILURES)]
    now = WINDOW_SECONDS + MOST_FAILURES
    assert pause_before_restart([*failed_at, now], now) == FIRST_PAUSE_SECONDS


# The shell


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.given_up: list[str] = []
        self.unseen: list[str] = []
        supervisor = TaskSupervisor(lambda name, error: self.unseen.append(name))
        self.duties = BackgroundTasks(
            supervisor, self.clock, lambda name, error: self.given_up.append(f"{name}: {error}")
        )


def on_stage(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Stage()
        await story(stage)
        assert not stage.unseen

    asyncio.run(run())


def test_a_kept_duty_that_fails_is_begun_again() -> None:
    async def story(stage: Stage) -> None:
        begun: list[int] = []

        async def duty() -> None:
            begun.append(1)
            if len(begun) < 3:
                raise Surprise("again")
            await stage.clock.sleep(MANY)

        task = stage.duties.keep("duty", duty)
        await stage.clock.advance(60)
        assert len(begun) == 3
        assert not stage.given_up
        task.cancel()
        await wait_until_idle()

    on_stage(story)


def test_a_kept_duty_that_fails_again_and_again_ends_the_broker() -> None:
    async def story(stage: Stage) -> None:
        async def duty() -> None:
            raise Surprise("always")

        stage.duties.keep("duty", duty)
        await stage.clock.advance(WINDOW_SECONDS)
        assert stage.given_up == ["duty: always"]

    on_stage(story)


def test_a_required_duty_that_fails_ends_the_broker() -> None:
    async def story(stage: Stage) -> None:
        async def duty() -> None:
            raise Surprise("once")

        stage.duties.require("duty", duty())
        await wait_until_idle()
        assert stage.given_up == ["duty: once"]

    on_stage(story)


def test_a_duty_that_is_cancelled_has_not_failed() -> None:
    async def story(stage: Stage) -> None:
        tasks = [
            stage.duties.keep("kept", lambda: stage.clock.sleep(MANY)),
            stage.duties.require("required", stage.clock.sleep(MANY)),
        ]
        await wait_until_idle()
        for task in tasks:
            task.cancel()
        await wait_until_idle()
        assert [task.cancelled() for task in tasks] == [True, True]
        assert not stage.given_up

    on_stage(story)


# Each kind, in a whole broker


async def fail(*_: object) -> None:
    raise Surprise("broken on purpose")


@pytest.mark.parametrize(
    ("owner", "method"),
    [(Partitions, "apply"), (IsrKeeper, "_update_isrs")],
    ids=["applying of metadata", "in-sync sets"],
)
def test_a_broker_ends_when_a_required_duty_fails(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    method: str,
) -> None:
    async def story() -> None:
        world = World()
        broker = await world.start()
        monkeypatch.setattr(owner, method, fail)
        creating = asyncio.ensure_future(world.create("t"))
        await world.clock.advance(60)
        assert broker.failure is not None
        assert "broken on purpose" in await broker.wait_until_failed()
        creating.cancel()
        monkeypatch.undo()
        await broker.stop()

    asyncio.run(story())
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)


def test_a_broker_ends_when_reading_metadata_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        world = World()
        broker = await world.start()
        publisher = broker.services.publisher
        monkeypatch.setattr(type(publisher), "_refresh_source", fail)
        assert world.store is not None
        other = world.store.session()
        await other.create("/brokers/topics/by-hand", b"{}")
        await world.clock.advance(60)
        assert broker.failure is not None
        assert "broken on purpose" in broker.failure
        await other.close()
        monkeypatch.undo()
        await broker.stop()

    asyncio.run(story())


class FailsOnce:
    """In the place of a method: fails at its first call, and leaves the next ones to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
        self.calls = 0
        original = getattr(owner, method)
        counter = self

        async def instead(one: object, *arguments: object) -> object:
            counter.calls += 1
            if counter.calls == 1:
                raise Surprise("broken on purpose")
            return await original(one, *arguments)

        monkeypatch.setattr(owner, method, instead)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Controller, "_process_with_retries"),
        (GroupCoordinator, "_expire_offsets"),
    ],
    ids=["controller", "expiry of offsets"],
)
def test_a_kept_duty_goes_on_in_a_broker(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    async def story() -> None:
        broken = FailsOnce(monkeypatch, owner, method)
        world = World(offsets_retention_check_interval_ms="1000")
        broker = await world.start()
        await world.clock.advance(60)
        await world.create("t")
        assert broken.calls > 1
        assert broker.failure is None
        assert (await world.produce("t", b"v")).error_code.value == 0
        assert broker.services.publisher.image.controller_id == 1
        await broker.stop()

    asyncio.run(story())


def test_maintenance_goes_on_in_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        begun: list[int] = []
        original = LogStore.maintain

        async def maintain(store: LogStore, high_watermarks: object) -> None:
            begun.append(1)
            if len(begun) == 1:
                raise Surprise("broken on purpose")
            await original(store, high_watermarks)  # type: ignore[arg-type]

        monkeypatch.setattr(LogStore, "maintain", maintain)
        world = World()
        broker: BrokerServer = await world.start()
        await world.clock.advance(10)
        assert len(begun) == 2
        assert broker.failure is None
        await broker.stop()

    asyncio.run(story())


def test_a_follower_whose_copying_failed_copies_on(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = FailsOnce(monkeypatch, ReplicaFetcher, "_use_answer")

    async def story(cluster: Cluster) -> None:
        first, second = await cluster.start(1, 2)
        await cluster.create(first, "t", [1, 2])
        key = TopicPartition("t", 0)
        batch = memoryview(build_batch([(1, None, b"v", ())]))
        first.services.partitions.require_leader("t", 0).append_as_leader(batch, 1)
        await cluster.until(lambda: second.services.log_store.logs[key].log_end_offset == 1)
        assert broken.calls > 1

    play(story)


def test_groups_whose_loading_failed_are_loaded_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        world = World(offsets_topic_num_partitions="1")
        broker = await world.start()
        await world.create("t")
        assert (await commit(world, 5)) == 0
        await broker.stop()
        broken = FailsOnce(monkeypatch, GroupShard, "load")
        broker = await world.start()
        await world.clock.advance(10)
        assert broken.calls > 1
        assert (await commit(world, 6)) == 0
        await broker.stop()

    asyncio.run(story())


async def commit(world: World, offset: int) -> int:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    asking = asyncio.ensure_future(
        world.ask(
            8,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "t", "partitions": [partition]}],
        )
    )
    await world.clock.advance(5)
    answer = await asking
    code: int = answer.topics[0].partitions[0].error_code.value
    return code


def test_moldau_start_ends_with_a_message_when_the_broker_cannot_go_on(tmp_path: Path) -> None:
    def break_it(broker: BrokerServer) -> None:
        broker._tasks.require("a duty", fail())

    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with pytest.raises(BrokerFailedError, match=r"a duty failed: .*broken on purpose"):
        asyncio.run(run_broker(static, break_it))
