"""Asks for the metadata of the cluster and keeps the answer (`rules.cluster_metadata`). A shell."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.connection_pool import ConnectionPool
from moldau.client.connections import BrokerConnection
from moldau.client.rules.addresses import Address
from moldau.client.rules.cluster_metadata import (
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from moldau.client.rules.denials import lacking
from moldau.errors import KafkaError, UnknownTopicError
from moldau.model import NO_LEADER_EPOCH
from moldau.wire.apis import METADATA

if TYPE_CHECKING:
    from kio.schema.metadata.v13.response import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

_ALL_TOPICS = None
_DROPPABLE = frozenset(
    {
        "allow_auto_topic_creation",
        "include_topic_authorized_operations",
        "include_cluster_authorized_operations",
        "topic_id",
    }
)


class MetadataCache:
    """Owned by one client. `current` is what is known; `refresh` asks again."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.current = ClusterMetadata()
        self._pool = pool

    async def refresh(
        self, topics: Collection[str] | None = _ALL_TOPICS, *, may_create: bool = False
    ) -> ClusterMetadata:
        """Ask about these topics, or about all. `may_create` lets the broker make missing ones."""
        connection = await self._pool.to_any()
        answer = await _ask(connection, topics, may_create)
        self._pool.learn_brokers({row.id: row.address for row in answer.brokers.values()})
        self.current = answer if topics is None else answer.with_older(self.current)
        return self.current


async def _ask(
    connection: BrokerConnection, topics: Collection[str] | None, may_create: bool
) -> ClusterMetadata:
    values = {
        "topics": None if topics is None else [{"name": t, "topic_id": None} for t in topics],
        "allow_auto_topic_creation": may_create,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    answer = await connection.call(METADATA, values, _DROPPABLE)
    return _read(cast("MetadataResponse", answer))


def _read(answer: MetadataResponse) -> ClusterMetadata:
    code = getattr(answer, "error_code", ErrorCode.none)  # from version 13 on
    if code is not ErrorCode.none:
        raise error_for(code, None, "metadata")
    brokers: dict[int, Broker] = {
        row.node_id: Broker(id=row.node_id, address=Address(row.host, row.port), rack=row.rack)
        for row in answer.brokers
    }
    topics = [_read_topic(row) for row in answer.topics]
    return ClusterMetadata(
        cluster_id=getattr(answer, "cluster_id", None),  # from version 2 on
        controller_id=answer.controller_id,
        brokers=MappingProxyType(brokers),
        topics=MappingProxyType({topic.name: topic for topic in topics}),
    )


def _read_topic(row: MetadataResponseTopic) -> TopicMetadata:
    name = row.name or ""
    failed = row.error_code is not ErrorCode.none
    return TopicMetadata(
        name=name,
        topic_id=getattr(row, "topic_id", None),  # from version 10 on
        is_internal=row.is_internal,
        partitions=tuple(map(_read_partition, sorted(row.partitions, key=_index_of))),
        error=_topic_error(row.error_code, name) if failed else None,
    )


def _topic_error(code: ErrorCode, name: str) -> KafkaError:
    if code is ErrorCode.unknown_topic_or_partition:
        return UnknownTopicError(f"there is no topic {name!r}")
    is_denied = code is ErrorCode.topic_authorization_failed
    message = lacking("Describe", f"Topic:{name}") if is_denied else None
    return error_for(code, message, f"topic {name!r}")


def _index_of(row: MetadataResponsePartition) -> int:
    return row.partition_index


def _read_partition(row: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        index=row.partition_index,
        leader_id=row.leader_id,
        leader_epoch=getattr(row, "leader_epoch", NO_LEADER_EPOCH),  # from version 7 on
        replicas=tuple(row.replica_nodes),
        in_sync_replicas=tuple(row.isr_nodes),
        offline_replicas=tuple(getattr(row, "offline_replicas", ())),  # from version 5 on
    )
