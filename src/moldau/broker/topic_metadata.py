"""How topics and brokers look to a client: shared by Metadata and DescribeTopicPartitions.

A rule: an image in, the values of an answer out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypedDict

from moldau.cluster.rules.metadata_image import (
    BrokerState,
    Endpoint,
    PartitionState,
)
from moldau.errors import ErrorCode
from moldau.model import INTERNAL_TOPICS, BrokerId


class PartitionValues(TypedDict):
    """One partition in the words of Metadata."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[BrokerId, ...]
    isr_nodes: tuple[BrokerId, ...]
    offline_replicas: list[BrokerId]


def partition_values(
    number: int, state: PartitionState, alive: Collection[BrokerId]
) -> PartitionValues:
    has_leader = state.leader in alive
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": number,
        "leader_id": state.leader if has_leader else -1,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [broker for broker in state.replicas if broker not in alive],
    }


def bare_topic_values(
    name: str | None, topic_id: object, error: ErrorCode = ErrorCode.none
) -> dict[str, object]:
    """A topic without partitions, or none at all."""
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }


def reachable_endpoints(
    brokers: Mapping[BrokerId, BrokerState], listener_name: str
) -> dict[BrokerId, Endpoint]:
    """Where a client of this listener reaches each broker; brokers without it are left out."""
    found = {}
    for broker in brokers.values():
        endpoint = broker.find_endpoint(listener_name)
        if endpoint is not None:
            found[broker.id] = endpoint
    return found
