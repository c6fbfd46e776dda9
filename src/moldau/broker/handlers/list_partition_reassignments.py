"""ListPartitionReassignments, version 0: the partitions that are being moved (KIP-455).

Null asks for all of them; partitions that are not being moved are left out. The time-out is not
used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from moldau.broker.api import RequestContext, serves
from moldau.broker.authorization import require_cluster
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import LIST_PARTITION_REASSIGNMENTS

if TYPE_CHECKING:
    from kio.schema.list_partition_reassignments.v0 import ListPartitionReassignmentsRequest

API = serves(LIST_PARTITION_REASSIGNMENTS)


def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> dict[str, object]:
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.name, number)
            for topic in request.topics
            for number in topic.partition_indexes
        }
    error: KafkaError | None = None
    moving: Mapping[TopicPartition, PartitionState] = {}
    try:
        require_cluster(context, AclOperation.DESCRIBE)
        moving = context.services.admin.list_reassignments(wanted)
    except KafkaError as refused:
        error = refused
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None else str(error),
        "topics": list(_topics(moving)),
    }


def _topics(moving: Mapping[TopicPartition, PartitionState]) -> Iterable[dict[str, object]]:
    for topic in dict.fromkeys(key.topic for key in moving):
        rows = {key.partition: state for key, state in moving.items() if key.topic == topic}
        yield {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "replicas": state.replicas,
                    "adding_replicas": state.adding_replicas,
                    "removing_replicas": state.removing_replicas,
                }
                for number, state in rows.items()
            ],
        }
