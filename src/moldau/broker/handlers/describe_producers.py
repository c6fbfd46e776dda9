"""DescribeProducers, version 0: the active producers of a partition, and how far each has written.

Every replica answers, as in Kafka: `kafka-transactions find-hanging --broker-id` sends it to a
broker that need not be the leader.
"""

from __future__ import annotations

from kio.schema.describe_producers.v0 import DescribeProducersRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import require_topic
from moldau.errors import KafkaError
from moldau.model import AclOperation
from moldau.wire.apis import DESCRIBE_PRODUCERS

API = serves(DESCRIBE_PRODUCERS)


def handle(request: DescribeProducersRequest, context: RequestContext) -> Values:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _describe(topic.name, index, context) for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _describe(topic: str, index: int, context: RequestContext) -> Values:
    try:
        require_topic(context, AclOperation.READ, topic)
        partition = context.services.partitions.require_any_replica(topic, index)
    except KafkaError as error:
        return {"partition_index": index, **error_values(error), "active_producers": []}
    return {
        "partition_index": index,
        **error_values(None),
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": -1
                if producer.transaction_first_offset is None
                else producer.transaction_first_offset,
            }
            for producer in partition.log.active_producers()
        ],
    }
