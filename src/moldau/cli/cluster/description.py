"""Gathers all that `moldau cluster info` shows of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import ClusterDescription, SpokenVersions
from moldau.client.rules.cluster_metadata import Broker, PartitionMetadata, TopicMetadata
from moldau.errors import ClientError
from moldau.model.protocol_numbers import NO_BROKER


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
