"""ListPartitionReassignments, version 0: the partitions that are being moved (KIP-455).

Null asks for all of them; partitions that are not being moved are left out. The time-out is not
used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kio.schema.list_partition_reassignments.v0 import ListPartitionReassignmentsRequest

from moldau.broker.api import RequestContext, Values, error_values, group_by_topic, serves
from moldau.broker.authorization import authorize
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.errors import KafkaError
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import LIST_PARTITION_REASSIGNMENTS

API = serves(LIST_PARTITION_REASSIGNMENTS, needs=AclOperation.DESCRIBE)


def handle(request: ListPartitionReassignmentsRequest, context: RequestContext) -> Values:
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
        authorize(context, API)
        moving = context.services.admin.list_reassignments(wanted)
    except KafkaError as refused:
        error = refused
    return {**error_values(error), "topics": list(_topics(moving))}


def _topics(moving: Mapping[TopicPartition, PartitionState]) -> Iterable[Values]:
    for topic, states in group_by_topic(moving).items():
        yield {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "replicas": state.replicas,
                    "adding_replicas": state.adding_replicas,
                    "removing_replicas": state.removing_replicas,
                }
                for number, state in states.items()
            ],
        }
