"""The JSON of the nodes under `/admin`, by which tools ask the controller for something.

Kafka's old tools write `/admin/delete_topics/T` (empty), `/admin/reassign_partitions` and
`/admin/preferred_replica_election`. The first gets content when the controller begins the
deletion: only then is the topic gone for everybody. Codecs only; who reads and writes them:
`topic_deletion`, `reassignments`, `elections`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.cluster import layout
from moldau.cluster.node_fields import NodeFields, is_integer, is_integers
from moldau.errors import MalformedNodeError
from moldau.model import BrokerId, TopicId, TopicPartition, format_uuid, parse_uuid


class WantedReplicas(NamedTuple):
    """A partition and the brokers that it shall go to."""

    partition: TopicPartition
    replicas: tuple[BrokerId, ...]


def encode_deletion(topic_id: TopicId) -> bytes:
    return _json({"version": 1, "topic_id": format_uuid(topic_id)})


def find_topic_to_delete(topic: str, data: bytes) -> TopicId | None:
    """The topic whose deletion has begun; None for a mere request."""
    if not data:
        return None
    try:
        text = NodeFields(layout.delete_topic_path(topic), data).find_text("topic_id")
        return None if text is None else TopicId(parse_uuid(text))
    except (MalformedNodeError, ValueError):
        return None  # what tools write there is a request, whatever it says


def encode_reassignment(wanted: Iterable[WantedReplicas]) -> bytes:
    partitions = [
        {"topic": one.partition.topic, "partition": one.partition.partition, "replicas": one[1]}
        for one in wanted
    ]
    return _json({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes) -> list[WantedReplicas]:
    fields = NodeFields(layout.REASSIGN_PARTITIONS, data)
    wanted = []
    for item in fields.objects("partitions"):
        replicas = item.get("replicas")
        if not is_integers(replicas):
            raise fields.fault("partitions", "a list of topics, partitions and replicas")
        brokers = tuple(BrokerId(broker) for broker in replicas)
        wanted.append(WantedReplicas(_partition(fields, item), brokers))
    return wanted


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    fields = NodeFields(layout.PREFERRED_ELECTION, data)
    return [_partition(fields, item) for item in fields.objects("partitions")]


def encode_log_dir_failure(broker_id: BrokerId) -> bytes:
    """Event 1: a log directory failed."""
    return _json({"version": 1, "broker": broker_id, "event": 1})


def _partition(fields: NodeFields, item: Mapping[str, object]) -> TopicPartition:
    topic, partition = item.get("topic"), item.get("partition")
    if not isinstance(topic, str) or not is_integer(partition):
        raise fields.fault("partitions", "a list of topics and partitions")
    return TopicPartition(topic, partition)


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
