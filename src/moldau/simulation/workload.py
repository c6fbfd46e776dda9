"""The clients of a simulated cluster: how they are made, who is there, and when they end. A shell.

Every partition of the main topic has a producer and a reader; there are an acks=1 producer, a
committer, and in most seeds a group. Families (`ClientFamily`) have clients of their own on topics
of their own: those of compaction and retention, of transactions, of share and streams groups.

After a power loss of all machines all clients are dismissed, and others are hired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final, Protocol, TypeVar

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import CreatedTopic, NewTopic
from moldau.client.cluster import ClientSettings, ClusterClient
from moldau.client.connections import ConnectionSettings
from moldau.client.rules.broker_errors import Backoff
from moldau.errors import ClientError, KafkaError, TopicExistsError
from moldau.model import TopicPartition
from moldau.replication.partition import Partition
from moldau.simulation.clients import (
    RACKS,
    AnyProducer,
    AnyReader,
    Client,
    ClientHabits,
    ClientProcess,
    ClientSetup,
    Committer,
    HastyProducer,
    OffsetBook,
    OffsetWatcher,
    SessionBook,
    SimulatedProducer,
    SimulatedReader,
    draw_random,
)
from moldau.simulation.consumer_groups import ConsumerGroupHistory, GroupHistory, SimulatedMember
from moldau.simulation.history import ClusterHistory
from moldau.simulation.machine import PORT, SimulatedMachine, World
from moldau.simulation.observer import ClusterObserver
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess

TOPIC: Final = "t"
_REQUEST_SECONDS: Final = 2.0
_API_SECONDS: Final = 6.0
_PAUSE_SECONDS: Final = 0.1

AnyClient = TypeVar("AnyClient", ClusterClient, AsyncAdmin)


class ServedCluster(SessionBook, Protocol):
    """What clients need of the cluster that they work on; `SimulatedCluster` is one."""

    world: World
    history: ClusterHistory
    observer: ClusterObserver
    habits: ClientHabits
    replicas_per_partition: int
    min_in_sync: int

    @property
    def machines(self) -> Mapping[int, SimulatedMachine]: ...

    @property
    def offsets(self) -> OffsetBook: ...


class ClientFamily(Protocol):
    """Clients that belong together, with topics of their own. A seed has some of the families."""

    is_on: bool

    def options(self, replicas: str, min_in_sync: str) -> Mapping[str, str]:
        """What brokers are told beside all that holds for every seed."""
        ...

    async def make_topics(self, workload: Workload) -> None: ...

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        """The suffix of their names tells generations apart."""
        ...


class Workload:
    """One for each run. Owned by the story's task."""

    def __init__(
        self,
        cluster: ServedCluster,
        partitions: list[TopicPartition],
        families: Sequence[ClientFamily],
    ) -> None:
        self.world = cluster.world
        self.machines = cluster.machines
        self.habits = cluster.habits
        self.partitions = partitions  # of the main topic, and others that operations have made
        self.bootstrap = ",".join(f"{each.host}:{PORT}" for each in self.machines.values())
        self.has_other_group = False  # it takes the place of the consumers' group: runs are short
        self.clients: list[Client] = []
        self._cluster = cluster
        self._history = cluster.history
        self._families = families
        self._tasks: list[asyncio.Task[None]] = []
        self._generation = 0  # of clients

    # Coming and going

    async def make_topics(self) -> None:
        """Those of all families."""
        for family in self._families:
            await family.make_topics(self)

    def start_clients(self) -> None:
        for partition in self.partitions:
            self._serve(partition)
        others = "0" + "'" * self._generation
        self._add(self.make_producer(f"b{others}", self.partitions[-1], HastyProducer))
        self._add(self.make_committer(f"g{others}", f"g{others}"))
        self._add(self.make_committer(f"r{others}", f"g{others}", OffsetWatcher))
        if not self.has_other_group:
            self._begin_group(f"m{others}")
        for family in self._families:
            for client in family.clients(self, others):
                self._add(client)

    def _begin_group(self, name: str) -> None:
        """Members that share the partitions; some seeds have none."""
        assignor = self.random_of(name).choice(("range", "cooperative-sticky", None))
        kind = ConsumerGroupHistory if assignor is None else GroupHistory
        group = kind(name, self._history.report)
        for number in range(self.habits.group_members):
            member = f"{name}-{number}"
            self._add(
                SimulatedMember(
                    self.setup(member),
                    client=self.open_client(member),
                    group=group,
                    topic=TOPIC,
                    assignor=assignor,
                    offsets=self._cluster.offsets,
                )
            )

    def serve_partition(self, partition: TopicPartition) -> None:
        """Let clients work on a partition that was added, or made anew, if they do not yet."""
        if partition not in self.partitions:
            self.partitions.append(partition)
            self._serve(partition)

    def _serve(self, partition: TopicPartition) -> None:
        suffix = str(partition.partition)
        if partition.topic != TOPIC:
            suffix = f"-{partition}"
        suffix += "'" * self._generation
        self._add(self.make_producer(f"a{suffix}", partition))
        self._add(self.make_reader(f"c{suffix}", partition))

    def _add(self, client: Client) -> None:
        self.clients.append(client)
        self._tasks.append(self.world.story.spawn(client.run()))

    def rest_producers(self, is_resting: bool = True) -> None:
        """Let producers send nothing new for a while."""
        for client in self.clients:
            client.is_resting = is_resting

    def dismiss_clients(self) -> None:
        """End all clients, whatever they are about to do."""
        for task in self._tasks:
            task.cancel()
        self.world.story.kept += [*self._tasks, *self.clients]
        self.release_clients()

    def hire_clients(self) -> None:
        """Others, in the place of those that were dismissed."""
        self._generation += 1
        self.start_clients()

    def stop(self) -> Iterator[tuple[Client, asyncio.Task[None]]]:
        """Tell all to come to an end; each with what has to be waited for."""
        for client in self.clients:
            client.is_stopping = True
        return zip(self.clients, self._tasks, strict=True)

    def release_clients(self) -> None:
        """Let go of all that lived."""
        self.clients.clear()
        self._tasks.clear()

    def leaders(self) -> Iterator[tuple[SimulatedMachine, Partition]]:
        """Every partition, as its leader holds it."""
        for place, state in sorted(self._cluster.observer.states.items()):
            machine = self.machines.get(state.leader)
            broker = None if machine is None else machine.broker
            held = None if broker is None else broker.services.partitions.find(*place)
            if machine is not None and held is not None and held.is_leader:
                yield machine, held

    # Making clients

    def random_of(self, name: str) -> Random:
        return self.world.streams.stream(f"client {name}")

    def setup(self, name: str) -> ClientSetup:
        return ClientSetup(name, self._history, self.random_of(name), self.open_process)

    def open_process(self, name: str) -> ClientProcess:
        process = SimulatedProcess(name, self.world.loop)
        self.world.story.kept.append(process)
        return ClientProcess(
            process=process,
            clock=ProcessClock(self.world.loop, process, start_ms=self.world.clock.now_ms()),
            host=self.world.network.host("clients"),
            bootstrap=self.bootstrap,
        )

    def open_client(self, name: str, opened: ClientProcess | None = None) -> ClusterClient:
        """For single requests: in a process of its own, or in one that is there."""
        return self._open(ClusterClient, name, opened)

    def open_admin(self, name: str) -> AsyncAdmin:
        return self._open(AsyncAdmin, name)

    def _open(
        self, kind: type[AnyClient], name: str, opened: ClientProcess | None = None
    ) -> AnyClient:
        opened = opened or self.open_process(name)
        random = draw_random(self.random_of(name))
        return kind(
            self.bootstrap,
            _settings(name),
            network=opened.host,
            clock=opened.clock,
            random=random,
        )

    async def make_topic(
        self, maker: str, topic: str, partitions: int, config: Mapping[str, str]
    ) -> None:
        """Have `maker` make a topic, however often it has to ask."""
        min_in_sync = str(self._cluster.min_in_sync)
        wanted = NewTopic(
            name=topic,
            partitions=partitions,
            replication_factor=self._cluster.replicas_per_partition,
            configs={"min.insync.replicas": min_in_sync, **config},
        )
        admin = self.open_admin(maker)
        while True:
            try:
                made = (await admin.create_topics([wanted]))[topic]
            except (KafkaError, ClientError):
                made = None
            if isinstance(made, CreatedTopic | TopicExistsError):
                return await admin.close()
            await self.world.clock.sleep(_PAUSE_SECONDS)

    def make_producer(
        self,
        name: str,
        partition: TopicPartition,
        kind: type[AnyProducer] = SimulatedProducer,  # type: ignore[assignment]
    ) -> AnyProducer:
        """One that writes with acks=all."""
        return kind(
            self.setup(name),
            partition=partition,
            habits=self.habits,
            sessions=self._cluster,
            now=self.world.loop.time,
        )

    def make_reader(
        self,
        name: str,
        partition: TopicPartition,
        kind: type[AnyReader] = SimulatedReader,  # type: ignore[assignment]
    ) -> AnyReader:
        return kind(
            self.setup(name),
            partition=partition,
            max_bytes=self.habits.fetch_max_bytes,
            rack=self.draw_rack(name),
        )

    def draw_rack(self, name: str) -> str:
        """The rack of a consumer that reads from the nearest replica."""
        return self.random_of(name).choice(RACKS) if self.habits.reads_nearest else ""

    def make_committer(self, name: str, group: str, kind: type[Committer] = Committer) -> Committer:
        return kind(
            self.setup(name),
            group=group,
            partition=self.partitions[0],
            offsets=self._cluster.offsets,
        )


def _settings(name: str) -> ClientSettings:
    connection = ConnectionSettings(
        client_id=name, connect_seconds=_REQUEST_SECONDS, request_seconds=_REQUEST_SECONDS
    )
    backoff = Backoff(first_seconds=0.02, max_seconds=0.2)
    return ClientSettings(connection=connection, timeout_seconds=_API_SECONDS, backoff=backoff)
