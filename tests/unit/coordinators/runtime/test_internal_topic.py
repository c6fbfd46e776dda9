"""The topics of coordinators, as they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.runtime.internal_topic import (
    WAIT_SECONDS,
    InternalTopic,
    plan_internal_topic,
)
from moldau.errors import CoordinatorNotAvailableError, InvalidReplicationFactorError
from moldau.model import (
    GROUP_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    LeaderEpoch,
    TopicId,
)
from moldau.simulation.manual_clock import ManualClock, wait_until_idle

IN_A_CLUSTER = {"zookeeper.connect": "127.0.0.1:2181"}


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_a_state_topic_has_three_replicas_in_a_cluster_and_one_on_a_broker_alone(name: str):
    assert plan_internal_topic(name, BrokerOptions.resolve({})).replication_factor == 1
    assert plan_internal_topic(name, BrokerOptions.resolve(IN_A_CLUSTER)).replication_factor == 3


@pytest.mark.parametrize(
    ("name", "partitions", "replicas"),
    [
        (
            GROUP_OFFSETS_TOPIC,
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
        ),
        (
            TRANSACTION_STATE_TOPIC,
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
        ),
        (
            SHARE_GROUP_STATE_TOPIC,
            "share.coordinator.state.topic.num.partitions",
            "share.coordinator.state.topic.replication.factor",
        ),
    ],
)
def test_a_state_topic_has_what_somebody_set(name: str, partitions: str, replicas: str):
    spec = plan_internal_topic(name, BrokerOptions.resolve({partitions: "7", replicas: "2"}))
    assert (spec.name, spec.partition_count, spec.replication_factor) == (name, 7, 2)


class TooFewBrokers:
    """A maker of topics that refuses, in the words that it is given."""

    def __init__(self, *refusals: str) -> None:
        self._refusals = iter(refusals)

    async def create_topic(self, spec: TopicSpec) -> object:
        raise InvalidReplicationFactorError(next(self._refusals))


async def _nothing() -> None:
    pass


def test_what_keeps_a_state_topic_from_being_made_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Clients ask for their coordinator ten times a second."""
    refusals = ("only 1 broker is alive",) * 3 + ("only 2 brokers are alive",) * 3

    async def story() -> None:
        topic = InternalTopic(
            GROUP_OFFSETS_TOPIC,
            options=lambda: BrokerOptions.resolve({}),
            creator=TooFewBrokers(*refusals),
            image=lambda: MetadataImage(cluster_id="c"),
            wait_until_applied=_nothing,
            spawn=lambda name, work: asyncio.create_task(work, name=name),
            clock=ManualClock(),
        )
        for _ in refusals:
            with pytest.raises(CoordinatorNotAvailableError):
                await topic.ensure()

    asyncio.run(story())
    assert [record.args[1] for record in caplog.records if record.args] == [  # type: ignore[index]
        "only 1 broker is alive",
        "only 2 brokers are alive",
    ]


class Stage:
    """A cluster in which making the topic takes as long as the test wants."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.image = MetadataImage(cluster_id="cluster")
        self.is_allowed = asyncio.Event()
        self.made = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.topic = InternalTopic(
            GROUP_OFFSETS_TOPIC,
            options=lambda: BrokerOptions.resolve({}),
            creator=self,
            image=lambda: self.image,
            wait_until_applied=self._nothing,
            spawn=self._spawn,
            clock=self.clock,
        )

    async def _nothing(self) -> None: ...

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))
        return self._tasks[-1]

    async def create_topic(self, spec: TopicSpec) -> TopicState:
        self.made += 1
        await self.is_allowed.wait()
        state = PartitionState(
            leader=BrokerId(1),
            leader_epoch=LeaderEpoch(0),
            isr=(BrokerId(1),),
            replicas=(BrokerId(1),),
        )
        topic = TopicState(
            name=spec.name,
            topic_id=TopicId(UUID(int=7)),
            partitions=(state,) * spec.partition_count,
            configs={},
        )
        self.image = replace(self.image, topics={spec.name: topic})
        return topic


def test_who_needs_the_topic_waits_for_a_moment_and_is_told_to_ask_again() -> None:
    async def story() -> None:
        stage = Stage()
        for _ in range(3):
            asked = asyncio.ensure_future(stage.topic.ensure())
            await wait_until_idle()
            assert not asked.done()
            await stage.clock.advance(WAIT_SECONDS)
            with pytest.raises(CoordinatorNotAvailableError):
                await asked
        assert stage.made == 1  # by a task of its own, which goes on
        late = asyncio.ensure_future(stage.topic.ensure())
        await wait_until_idle()
        stage.is_allowed.set()
        await late
        await stage.topic.ensure()
        assert stage.made == 1

    asyncio.run(story())


def test_who_goes_away_does_not_take_the_topic_along() -> None:
    async def story() -> None:
        stage = Stage()
        asked = asyncio.ensure_future(stage.topic.ensure())
        await wait_until_idle()
        asked.cancel()
        await wait_until_idle()
        stage.is_allowed.set()
        await stage.topic.ensure()
        assert stage.made == 1

    asyncio.run(story())
