"""Internal topics of streams groups: how often a topic is tried that cannot be made."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from moldau.broker.auto_topic_creation import RETRY_SECONDS, WAIT_SECONDS, InternalTopics
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.coordinators.groups.rules.streams_topology import CreatableTopic
from moldau.errors import InvalidReplicationFactorError
from moldau.simulation.manual_clock import ManualClock, wait_until_idle

GOOD, BAD = CreatableTopic("good", 1, 0), CreatableTopic("bad", 1, 3)


class Maker:
    """Has too few brokers for three replicas until more come."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.has_brokers = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def create_topic(self, spec: TopicSpec) -> object:
        self.tried.append(spec.name)
        await self.may_go_on.wait()
        if spec.replication_factor > 1 and not self.has_brokers:
            raise InvalidReplicationFactorError("too few brokers")
        return None


class Stage:
    """Internal topics of a broker whose controller is `maker`."""

    def __init__(self) -> None:
        self.clock, self.maker = ManualClock(), Maker()
        self.tasks: set[asyncio.Task[None]] = set()
        self.made: list[CreatableTopic] = []
        self.topics = InternalTopics(self.maker, self.clock, self._spawn)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def make(self, *topics: CreatableTopic) -> dict[str, str]:
        return await self.topics.make(topics, self.made.append)


def test_what_cannot_be_made_is_not_tried_with_every_heartbeat() -> None:
    async def story() -> None:
        stage = Stage()
        for _ in range(3):
            assert await stage.make(GOOD, BAD) == {"bad": "too few brokers"}
        assert stage.maker.tried == ["good", "bad", "good", "good"]
        stage.maker.has_brokers = True
        assert await stage.make(BAD) == {"bad": "too few brokers"}
        await stage.clock.advance(RETRY_SECONDS)
        assert await stage.make(BAD) == {}
        assert stage.made == [GOOD, GOOD, GOOD, BAD]

    asyncio.run(story())


def test_a_slow_controller_is_waited_for_only_so_long() -> None:
    """What comes of it later is told to those who report then."""

    async def story() -> None:
        stage = Stage()
        stage.maker.may_go_on.clear()
        waiting = asyncio.create_task(stage.make(BAD))
        await wait_until_idle()
        assert await stage.make(BAD) == {}, "somebody else waits for it"
        assert not waiting.done()
        await stage.clock.advance(WAIT_SECONDS)
        assert await waiting == {}
        stage.maker.may_go_on.set()
        await wait_until_idle()
        assert not stage.tasks
        assert await stage.make(BAD) == {"bad": "too few brokers"}
        assert stage.maker.tried == ["bad"]

    asyncio.run(story())
