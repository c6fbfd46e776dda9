"""AlterPartitionReassignments, versions 0 to 1: moves partitions to other brokers (KIP-455).

A list of replicas begins a move or redirects one that is under way; null cancels it. The answer
leaves when the move has begun; ListPartitionReassignments shows how long it lasts.

v1 may forbid that the number of replicas changes.

The time-out is not used.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsRequest

from moldau.broker.api import RequestContext, Values, error_values, group_by_topic, serves
from moldau.broker.authorization import audit_change, authorize
from moldau.cluster.elections import Outcomes
from moldau.errors import KafkaError
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import ALTER_PARTITION_REASSIGNMENTS

API = serves(
    ALTER_PARTITION_REASSIGNMENTS,
    needs=AclOperation.ALTER,
    changes_cluster=True,
    droppable=("allow_replication_factor_change",),
)

_TOLD = 20  # partitions in a line of the audit log


async def handle(request: AlterPartitionReassignmentsRequest, context: RequestContext) -> Values:
    targets = {
        TopicPartition(topic.name, row.partition_index): row.replicas
        for topic in request.topics
        for row in topic.partitions
    }
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    error: KafkaError | None = None
    outcomes: Outcomes = {}
    try:
        authorize(context, API)
        outcomes = await context.services.admin.alter_reassignments(
            targets, may_change_factor=may_change_factor
        )
        await context.services.wait_until_applied()
    except KafkaError as refused:
        error = refused
    audit_change(context, ", ".join(map(str, list(targets)[:_TOLD])), error)
    return {
        "allow_replication_factor_change": may_change_factor,
        **error_values(error),
        "responses": list(_responses(outcomes)),
    }


def _responses(outcomes: Outcomes) -> Iterable[Values]:
    for topic, errors in group_by_topic(outcomes).items():
        rows = [{"partition_index": one, **error_values(error)} for one, error in errors.items()]
        yield {"name": topic, "partitions": rows}
