"""Gathers what `moldau cluster info` and `moldau cluster status` show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moldau.cli.options import use_command_config
from moldau.cli.session import with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import ClusterDescription, EligibleLeaders, SpokenVersions
from moldau.client.rules.cluster_metadata import Broker, PartitionMetadata, TopicMetadata
from moldau.errors import ClientError, MoldauError
from moldau.model import NO_BROKER, TopicPartition

if TYPE_CHECKING:
    from moldau.cli.local_cluster import LocalCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A cluster as its brokers tell it at one moment."""

    cluster: ClusterDescription
    topics: Mapping[str, TopicMetadata]
    versions: Mapping[int, SpokenVersions | ClientError]

    @property
    def answering(self) -> Mapping[int, SpokenVersions]:
        return {
            broker_id: answer
            for broker_id, answer in self.versions.items()
            if isinstance(answer, SpokenVersions)
        }

    @property
    def features(self) -> Mapping[str, int]:
        """Finalized in the cluster: every broker says the same."""
        return next((one.features for one in self.answering.values()), {})

    @property
    def has_racks(self) -> bool:
        return any(broker.rack is not None for broker in self.cluster.brokers)

    def summary(self) -> Iterator[tuple[str, str]]:
        partitions = list(self._partitions())
        internal = sum(topic.is_internal for topic in self.topics.values())
        controller = self.cluster.controller_id
        yield "controller", "none" if controller == NO_BROKER else f"broker {controller}"
        yield "brokers", str(len(self.cluster.brokers))
        yield "topics", f"{len(self.topics)} ({internal} internal)"
        yield "partitions", f"{len(partitions)} with {_count_replicas(partitions)} replicas"
        yield (
            "state",
            f"{_count_behind(partitions)} under-replicated, {_count_offline(partitions)} offline",
        )
        if self.features:
            told = [f"{name}={level}" for name, level in sorted(self.features.items())]
            yield "features", told[0]
            yield from (("", one) for one in told[1:])

    def broker_rows(self) -> list[tuple[str, ...]]:
        leads, replicas = self._count_by_broker()
        return [
            (
                f"{broker.id}{'*' if broker.id == self.cluster.controller_id else ''}",
                str(broker.address),
                *((broker.rack or "-",) if self.has_racks else ()),
                str(leads[broker.id]),
                str(replicas[broker.id]),
                self._show_spoken(broker),
            )
            for broker in self.cluster.brokers
        ]

    def api_rows(self) -> list[tuple[str, ...]]:
        answers = self.answering
        names = dict.fromkeys(name for one in answers.values() for name in one.apis)
        return [
            (
                name,
                *(
                    f"{one.apis[name].first}-{one.apis[name].last}" if name in one.apis else "-"
                    for one in answers.values()
                ),
            )
            for name in names
        ]

    def to_document(self) -> dict[str, object]:
        partitions = list(self._partitions())
        leads, replicas = self._count_by_broker()
        controller = self.cluster.controller_id
        return {
            "cluster_id": self.cluster.cluster_id,
            "controller": None if controller == NO_BROKER else controller,
            "features": dict(self.features),
            "topics": len(self.topics),
            "internal_topics": sum(topic.is_internal for topic in self.topics.values()),
            "partitions": len(partitions),
            "replicas": _count_replicas(partitions),
            "under_replicated": _count_behind(partitions),
            "offline": _count_offline(partitions),
            "brokers": [
                {
                    "id": broker.id,
                    "host": broker.address.host,
                    "port": broker.address.port,
                    "rack": broker.rack,
                    "leads": leads[broker.id],
                    "replicas": replicas[broker.id],
                    **self._spoken_document(broker),
                }
                for broker in self.cluster.brokers
            ],
        }

    def _partitions(self) -> Iterator[PartitionMetadata]:
        for topic in self.topics.values():
            yield from topic.partitions

    def _count_by_broker(self) -> tuple[Counter[int], Counter[int]]:
        leads: Counter[int] = Counter()
        replicas: Counter[int] = Counter()
        for partition in self._partitions():
            leads[partition.leader_id] += 1
            replicas.update(partition.replicas)
        return leads, replicas

    def _show_spoken(self, broker: Broker) -> str:
        answer = self.versions[broker.id]
        if isinstance(answer, ClientError):
            return f"no answer: {answer}"
        level = "before Kafka 2.7" if answer.release is None else f"Kafka {answer.release} or later"
        return f"{level}, {len(answer.apis)} APIs"

    def _spoken_document(self, broker: Broker) -> dict[str, object]:
        answer = self.versions[broker.id]
        if isinstance(answer, ClientError):
            return {"error": str(answer)}
        return {
            "release": answer.release,
            "apis": {
                name: {"first": served.first, "last": served.last}
                for name, served in answer.apis.items()
            },
        }


async def describe_info(admin: AsyncAdmin) -> ClusterInfo:
    cluster = await admin.describe_cluster()
    return ClusterInfo(
        cluster=cluster,
        topics=await admin.list_topics(),
        versions=await admin.describe_versions([broker.id for broker in cluster.brokers]),
    )


def _count_replicas(partitions: Sequence[PartitionMetadata]) -> int:
    return sum(len(one.replicas) for one in partitions)


def _count_behind(partitions: Sequence[PartitionMetadata]) -> int:
    return sum(len(one.in_sync_replicas) < len(one.replicas) for one in partitions)


def _count_offline(partitions: Sequence[PartitionMetadata]) -> int:
    return sum(one.leader_id == NO_BROKER for one in partitions)


_NOBODY_ELSE = EligibleLeaders()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    address: str
    pid: int | None
    mode: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    id: int
    address: str
    pid: int | None
    is_registered: bool
    is_controller: bool

    @property
    def state(self) -> str:
        if self.pid is None:
            return "stopped"
        return "in the cluster" if self.is_registered else "not in the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    nodes: Sequence[NodeView]
    brokers: Sequence[BrokerView]
    topics: Sequence[TopicMetadata]
    leaders: Mapping[TopicPartition, EligibleLeaders] = field(default_factory=dict)
    """Who may lead beside those in sync, of the partitions that have such replicas."""

    @property
    def controller_id(self) -> int | None:
        return next((broker.id for broker in self.brokers if broker.is_controller), None)

    @property
    def is_whole(self) -> bool:
        serving = all(node.mode is not None for node in self.nodes)
        return serving and all(broker.pid and broker.is_registered for broker in self.brokers)

    def count_under_replicated(self) -> int:
        return sum(
            len(partition.in_sync_replicas) < len(partition.replicas)
            for topic in self.topics
            for partition in topic.partitions
        )

    def count_leaderless(self) -> int:
        return sum(
            partition.leader_id == NO_BROKER
            for topic in self.topics
            for partition in topic.partitions
        )

    def to_document(self, *, internal: bool) -> dict[str, object]:
        return {
            "zookeeper": [
                {"address": node.address, "pid": node.pid, "mode": node.mode} for node in self.nodes
            ],
            "brokers": [
                {
                    "id": broker.id,
                    "address": broker.address,
                    "pid": broker.pid,
                    "registered": broker.is_registered,
                    "controller": broker.is_controller,
                }
                for broker in self.brokers
            ],
            "controller": self.controller_id,
            "topics": [
                {
                    "topic": topic.name,
                    "partitions": [
                        _to_document(partition, self.leaders_of(topic.name, partition.index))
                        for partition in topic.partitions
                    ],
                }
                for topic in self.shown_topics(internal=internal)
            ],
            "under_replicated": self.count_under_replicated(),
            "leaderless": self.count_leaderless(),
        }

    def leaders_of(self, topic: str, partition: int) -> EligibleLeaders:
        return self.leaders.get(TopicPartition(topic, partition), _NOBODY_ELSE)

    def shown_topics(self, *, internal: bool) -> list[TopicMetadata]:
        return [topic for topic in self.topics if internal or not topic.is_internal]


def look_at(cluster: LocalCluster) -> ClusterView:
    secured = cluster.plan.secure_folder
    if secured is not None:
        use_command_config(secured.client_properties)
    description, topics, leaders = _ask_brokers(cluster)
    registered = {broker.id for broker in description.brokers} if description else set()
    controller_id = description.controller_id if description else NO_BROKER
    return ClusterView(
        nodes=[
            NodeView(address=node.address, pid=node.find_pid(), mode=node.mode())
            for node in cluster.zookeeper.nodes
        ],
        brokers=[
            BrokerView(
                id=broker.id,
                address=broker.address,
                pid=broker.process.find_pid(),
                is_registered=broker.id in registered,
                is_controller=broker.id == controller_id,
            )
            for broker in cluster.brokers
        ],
        topics=topics,
        leaders=leaders,
    )


_Answers = tuple[
    ClusterDescription | None, Sequence[TopicMetadata], Mapping[TopicPartition, EligibleLeaders]
]


def _ask_brokers(cluster: LocalCluster) -> _Answers:
    """Nothing when nobody answers: the processes are shown all the same."""
    running = ",".join(broker.address for broker in cluster.brokers if broker.process.is_running)
    if not running:
        return None, (), {}

    async def ask(admin: AsyncAdmin) -> _Answers:
        description = await admin.describe_cluster()
        topics = await admin.list_topics()
        leaders = await admin.describe_eligible_leaders(topics) if topics else {}
        some = {key: each for key, each in leaders.items() if each != _NOBODY_ELSE}
        return description, [topics[name] for name in sorted(topics)], some

    try:
        return with_admin(running, ask)
    except MoldauError:
        return None, (), {}


def _to_document(partition: PartitionMetadata, leaders: EligibleLeaders) -> dict[str, object]:
    return {
        "partition": partition.index,
        "leader": None if partition.leader_id == NO_BROKER else partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync_replicas),
        "eligible_leader_replicas": list(leaders.eligible),
        "last_known_eligible_replicas": list(leaders.last_known),
    }
