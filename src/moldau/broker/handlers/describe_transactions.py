"""DescribeTransactions, version 0: what the coordinator knows of transactional ids."""

from __future__ import annotations

from kio.schema.describe_transactions.v0 import DescribeTransactionsRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_see, may_transactional_id
from moldau.coordinators.runtime.shard import wait_for_answer
from moldau.coordinators.transactions.rules.transaction_metadata import TransactionMetadata
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation, AclResourceType
from moldau.wire.apis import DESCRIBE_TRANSACTIONS

API = serves(DESCRIBE_TRANSACTIONS)


async def handle(request: DescribeTransactionsRequest, context: RequestContext) -> Values:
    described = [await _describe(one, context) for one in request.transactional_ids]
    return {"transaction_states": described}


async def _describe(transactional_id: str, context: RequestContext) -> Values:
    if not transactional_id:
        return _refuse(transactional_id, ErrorCode.invalid_request)
    if not may_transactional_id(context, AclOperation.DESCRIBE, transactional_id):
        return _refuse(transactional_id, ErrorCode.transactional_id_authorization_failed)
    try:
        asked = context.services.transactions.describe(transactional_id)
        found = await wait_for_answer(asked)
    except KafkaError as error:
        return _refuse(transactional_id, error.code)
    if found is None:
        return _refuse(transactional_id, ErrorCode.transactional_id_not_found)
    return _values(found, context)


def _values(found: TransactionMetadata, context: RequestContext) -> Values:
    """Without the topics that the client may not know of."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        if may_see(context, AclResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(partition)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": found.transactional_id,
        "transaction_state": found.state.label,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }


def _refuse(transactional_id: str, error: ErrorCode) -> Values:
    return {
        "error_code": error,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }
