"""What `moldau cluster status` knows: the processes, and what the brokers say of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moldau.cli.cluster.local_cluster import LocalCluster
from moldau.cli.connection_options import use_command_config
from moldau.cli.session import with_admin
from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import ClusterDescription, EligibleLeaders
from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import NO_BROKER

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
