"""AddOffsetsToTxn, versions 0 to 4: a producer is about to commit a group's offsets in its
transaction.

The group's partition of `__consumer_offsets` becomes a part of the transaction, so that its end
reaches the group's coordinator. v1 throttle after the answer; v2 PRODUCER_FENCED; v3 flexible; v4
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from kio.schema.add_offsets_to_txn.v4 import AddOffsetsToTxnRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import require_group, require_transactional_id
from moldau.broker.coordinator_requests import error_for
from moldau.coordinators.transactions.rules.transaction_metadata import IdAndEpoch
from moldau.coordinators.transactions.rules.transactions import AddPartitions
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import ADD_OFFSETS_TO_TXN

API = serves(ADD_OFFSETS_TO_TXN)


async def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> Values:
    try:
        error = await _add(request, context)
    except KafkaError as refusal:
        error = refusal.code
    return {"error_code": error_for(error, context.version)}


async def _add(request: AddOffsetsToTxnRequest, context: RequestContext) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.invalid_request
    require_transactional_id(context, AclOperation.WRITE, request.transactional_id)
    require_group(context, AclOperation.READ, request.group_id)
    services = context.services
    topic = services.groups.topic
    await topic.ensure()
    number = topic.find_partition(request.group_id)
    if number is None:
        return ErrorCode.coordinator_not_available
    event = AddPartitions(
        transactional_id=request.transactional_id,
        producer=IdAndEpoch(request.producer_id, request.producer_epoch),
        partitions=frozenset({TopicPartition(topic.name, number)}),
    )
    return (await services.transactions.add_partitions(event)).error
