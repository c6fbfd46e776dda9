"""The rooms of a cluster put together around one store in memory, for the tests of the shells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from uuid import UUID

from moldau.cluster.broker_registration import BrokerRegistration, ensure_znodes
from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.cluster.config_writer import ConfigRules
from moldau.cluster.controller import Controller, ControllerSettings
from moldau.cluster.controller_election import ControllerElection
from moldau.cluster.elections import Answers, Questions
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.broker_shutdown import ReplicaCondition, plan_broker_start
from moldau.cluster.rules.leader_election import LogEnd, RecoveryStrategy
from moldau.cluster.rules.metadata_image import BrokerState, Endpoint, MetadataImage, TopicState
from moldau.cluster.rules.topic_creation import TopicDefaults
from moldau.cluster.state_writer import StateWriter
from moldau.cluster.topic_deletion import TopicDeletion
from moldau.coordination.embedded import MEMORY, EmbeddedSession, EmbeddedStore
from moldau.errors import InvalidConfigError
from moldau.model import BrokerId, TopicId, TopicPartition
from moldau.simulation.manual_clock import ManualClock, wait_until_idle
from moldau.workers import InlineWorkers

PATIENCE = 30.0

Logs = Mapping[int, LogEnd]
"""How far the logs of a broker go, all of them; who is not in it does not answer."""


def check_configs(configs: Mapping[str, str]) -> None:
    for name, value in configs.items():
        if name.startswith("bad"):
            raise InvalidConfigError(f"{name}={value} is wrong")


def find_list_default(name: str) -> str | None:
    return "delete" if name == "cleanup.policy" else None


RULES = ConfigRules(check=check_configs, find_list_default=find_list_default)


class Member:
    """One broker of the cluster, without sockets and logs."""

    def __init__(
        self, store: EmbeddedStore, clock: ManualClock, broker_id: int, topic_ids: Iterator[int]
    ) -> None:
        self.id = BrokerId(broker_id)
        self.session: EmbeddedSession = store.session()
        self.clock = clock
        self._topic_ids = topic_ids
        self.settings = ControllerSettings()
        self._serving: asyncio.Task[None] | None = None
        self.seen: list[tuple[MetadataImage, MetadataImage, frozenset[str]]] = []

    async def join(
        self,
        *,
        rack: str | None = None,
        unclean: bool = False,
        min_in_sync: int = 1,
        condition: ReplicaCondition = ReplicaCondition.WHOLE,
        logs: Logs | None = None,
    ) -> None:
        """`condition` is that of its logs, when it comes back; `logs` how far those of all go."""
        strategy = RecoveryStrategy.AGGRESSIVE if unclean else RecoveryStrategy.NONE

        def strategy_of(topic: TopicState) -> RecoveryStrategy:
            return RecoveryStrategy(topic.configs.get("recovery", strategy.value))

        async def ask(questions: Questions) -> Answers:
            told = {} if logs is None else logs
            answers: dict[TopicPartition, dict[BrokerId, LogEnd]] = {}
            for broker, keys in questions.items():
                for key in keys:
                    if broker in told:
                        answers.setdefault(key, {})[broker] = told[broker]
            return answers

        self._min_in_sync = min_in_sync
        cluster_id = await ensure_znodes(self.session)
        self.publisher = MetadataPublisher(self.session, self.clock, cluster_id)
        self.controllership = ControllerElection(self.session, self.clock, self.publisher, self.id)
        deletion = TopicDeletion(self.session, self.publisher)
        self.controller = Controller(
            coordination=self.session,
            publisher=self.publisher,
            controllership=self.controllership,
            min_in_sync_of=lambda _: min_in_sync,
            strategy_of=strategy_of,
            ask_log_ends=ask,
            deletion=deletion,
            settings=lambda: self.settings,
            make_topic_id=self._next_topic_id,
        )
        self.admin = ClusterAdmin(
            coordination=self.session,
            publisher=self.publisher,
            controllership=self.controllership,
            defaults=lambda: TopicDefaults(partition_count=1, replication_factor=1),
            topic_config_rules=RULES,
            broker_config_rules=lambda broker_id: RULES,
            group_config_rules=RULES,
            elections=self.controller.elections,
            reassignments=self.controller.reassignments,
            deletion=deletion,
            choose=lambda _: 0,
            make_topic_id=self._next_topic_id,
        )
        self.states = StateWriter(self.session, self.publisher)
        await self.publisher.start()
        await self._come_back(condition)
        endpoint = Endpoint(listener_name="PLAINTEXT", host=f"host{self.id}", port=9092)
        registration = BrokerRegistration(self.session, self.clock, self.publisher)
        self.broker = await registration.register(
            BrokerState(id=self.id, endpoints=(endpoint,), rack=rack)
        )
        self.publisher.subscribe(lambda *change: self.seen.append(change))

    async def _come_back(self, condition: ReplicaCondition) -> None:
        """As a broker does: if its logs have lost nothing, what it led it leads anew."""
        plan = plan_broker_start(
            self.image.topics.values(),
            self.id,
            self.image.brokers,
            lambda *_: condition,
            min_in_sync_of=lambda _: self._min_in_sync,
        )
        assert not await self.states.find_overtaken(plan)

    async def lead(self) -> None:
        await self.controller.start()

    async def elect_leaders(self) -> None:
        term = self.controllership.require_term()
        await self.controller.elections.elect(term, self.image.topics.keys())

    async def serve(self) -> None:
        """Claim the controllership whenever it is free, and do its duties."""
        await self.controller.start()
        self._serving = asyncio.create_task(self.controller.run())

    async def leave(self) -> None:
        await self.stop()
        await self.session.close()

    async def stop(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait((self._serving,))
        await self.publisher.stop()

    @property
    def image(self) -> MetadataImage:
        return self.publisher.image

    def topic(self, name: str) -> TopicState:
        return self.publisher.image.topics[name]

    def _next_topic_id(self) -> TopicId:
        return TopicId(UUID(int=next(self._topic_ids)))


class Stage:
    """A store, a clock, and any number of members."""

    def __init__(self, store: EmbeddedStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.members: list[Member] = []
        self._topic_ids = count(1)

    async def join(self, broker_id: int, **options: Any) -> Member:
        member = Member(self.store, self.clock, broker_id, self._topic_ids)
        await member.join(**options)
        self.members.append(member)
        return member

    async def cluster(self, *broker_ids: int, **options: Any) -> list[Member]:
        """Brokers that each serve; the first one is the controller."""
        members = []
        for broker_id in broker_ids:
            member = await self.join(broker_id, **options)
            await member.serve()
            members.append(member)
        await wait_until_idle()
        return members

    async def join_and_lead(self, broker_id: int, **options: Any) -> Member:
        member = await self.join(broker_id, **options)
        await member.lead()
        return member


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    clock = ManualClock()
    store = await EmbeddedStore.open(MEMORY, clock=clock, workers=InlineWorkers())
    made = Stage(store, clock)
    try:
        yield made
    finally:
        for member in made.members:
            await member.stop()
        await store.close()


def play(story: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run a story on a stage of its own."""

    async def run() -> None:
        async with stage() as made:
            await asyncio.wait_for(story(made), PATIENCE)

    asyncio.run(run())
