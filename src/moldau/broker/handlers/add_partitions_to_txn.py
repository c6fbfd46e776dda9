"""AddPartitionsToTxn, versions 0 to 5: a producer is about to write to partitions.

v1 throttle after the answer; v2 PRODUCER_FENCED; v3 flexible; v4 several transactions at once, for
brokers only, and `verify_only`; v5 TRANSACTION_ABORTABLE, and the transaction is one of version 2
(KIP-890). Leaders of partitions ask by v4 whether a partition belongs to the open transaction of a
producer, and by v5 add it in the producer's place.

All partitions of a request are added, or none: when one is unknown, the others are
OPERATION_NOT_ATTEMPTED, as in Kafka.

With an authorizer a producer needs WRITE of its transactional id and of each topic, a broker
CLUSTER_ACTION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kio.schema.add_partitions_to_txn.v5 import AddPartitionsToTxnRequest
from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTransaction

from moldau.broker.api import RequestContext, Services, Values, serves
from moldau.broker.authorization import may_cluster, may_topic, may_transactional_id
from moldau.broker.coordinator_requests import error_for
from moldau.coordinators.runtime.shard import wait_for_answer
from moldau.coordinators.transactions.rules.transaction_metadata import IdAndEpoch
from moldau.coordinators.transactions.rules.transactions import AddPartitions
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import ADD_PARTITIONS_TO_TXN

API = serves(ADD_PARTITIONS_TO_TXN)

_FIRST_WITH_SEVERAL = 4
_FIRST_OF_VERSION_2 = 5
_AT_ONCE = 200  # transactions of one request

Errors = Mapping[TopicPartition, ErrorCode]


async def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> Values:
    if context.version >= _FIRST_WITH_SEVERAL:
        if not may_cluster(context, AclOperation.CLUSTER_ACTION):
            return _refuse_broker()
        return await add(request, context.services)
    old: Any = request
    partitions = _partitions_of(old.v3_and_below_topics)
    denied = _find_denied(old.v3_and_below_transactional_id, partitions, context)
    errors = denied or await _add_one(
        old.v3_and_below_transactional_id,
        old.v3_and_below_producer_id,
        old.v3_and_below_producer_epoch,
        partitions,
        0,
        context.services,
    )
    told = {one: error_for(error, context.version) for one, error in errors.items()}
    return {"results_by_topic_v3_and_below": _topics(told)}


def _refuse_broker() -> Values:
    return {"error_code": ErrorCode.cluster_authorization_failed, "results_by_transaction": []}


def _find_denied(
    transactional_id: str, partitions: frozenset[TopicPartition], context: RequestContext
) -> Errors:
    """Codes for all partitions, or nothing where the producer may write to each of them."""
    if context.services.authorizer is None:
        return {}
    if not may_transactional_id(context, AclOperation.WRITE, transactional_id):
        return dict.fromkeys(partitions, ErrorCode.transactional_id_authorization_failed)
    topics = {one.topic for one in partitions}
    denied = {one for one in topics if not may_topic(context, AclOperation.WRITE, one)}
    if not denied:
        return {}
    refused, not_attempted = (
        ErrorCode.topic_authorization_failed,
        ErrorCode.operation_not_attempted,
    )
    return {one: refused if one.topic in denied else not_attempted for one in partitions}


async def add(request: AddPartitionsToTxnRequest, services: Services) -> Values:
    """Also for this broker's own partitions, without a socket. Transactions of one request do not
    wait for each other: a broker that asks for many sends nothing else until it has the answer."""
    version = 2 if request.__version__ >= _FIRST_OF_VERSION_2 else 0
    results: list[Values] = []
    for first in range(0, len(request.transactions), _AT_ONCE):
        some = request.transactions[first : first + _AT_ONCE]
        work = (_add_or_verify(one, version, services) for one in some)
        results += (
            {"transactional_id": one.transactional_id, "topic_results": _topics(errors)}
            for one, errors in zip(some, await asyncio.gather(*work), strict=True)
        )
    return {"error_code": ErrorCode.none, "results_by_transaction": results}


async def _add_or_verify(
    transaction: AddPartitionsToTxnTransaction, version: int, services: Services
) -> Errors:
    partitions = _partitions_of(transaction.topics)
    transactional_id = transaction.transactional_id
    producer = IdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if not transaction.verify_only:
        return await _add_one(transactional_id, *producer, partitions, version, services)
    try:
        verified = services.transactions.verify_partitions(transactional_id, producer, partitions)
        return await wait_for_answer(verified)
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)


async def _add_one(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    version: int,
    services: Services,
) -> Errors:
    if not transactional_id:
        return dict.fromkeys(partitions, ErrorCode.invalid_request)
    unknown = {one for one in partitions if not _is_known(one, services)}
    if unknown:
        not_attempted = ErrorCode.operation_not_attempted
        return {
            one: ErrorCode.unknown_topic_or_partition if one in unknown else not_attempted
            for one in partitions
        }
    event = AddPartitions(
        transactional_id=transactional_id,
        producer=IdAndEpoch(producer_id, producer_epoch),
        partitions=partitions,
        version=version,
    )
    try:
        answer = await services.transactions.add_partitions(event)
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)
    return dict.fromkeys(partitions, answer.error)


def _is_known(one: TopicPartition, services: Services) -> bool:
    topic = services.image.topics.get(one.topic)
    return topic is not None and topic.find_partition(one.partition) is not None


def _partitions_of(topics: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(one.name, number) for one in topics for number in one.partitions
    )


def _topics(errors: Errors) -> list[Values]:
    topics: dict[str, list[Values]] = {}
    for one in sorted(errors):
        row: Values = {"partition_index": one.partition, "partition_error_code": errors[one]}
        topics.setdefault(one.topic, []).append(row)
    return [{"name": name, "results_by_partition": rows} for name, rows in topics.items()]
