"""OffsetForLeaderEpoch, versions 2 to 4.

Where a leader epoch ended in this log: followers truncate to it, consumers notice with it that
records they have read were lost (KIP-320).

v3 names the replica that asks; v4 is flexible.

With an authorizer a follower needs CLUSTER_ACTION, a consumer DESCRIBE of each topic.
"""

from __future__ import annotations

from kio.schema.offset_for_leader_epoch.v4 import OffsetForLeaderEpochRequest
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderPartition

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_see, require_topic
from moldau.errors import ErrorCode, KafkaError
from moldau.model import CLUSTER_NAME, AclOperation, AclResourceType
from moldau.wire.apis import OFFSET_FOR_LEADER_EPOCH

API = serves(OFFSET_FOR_LEADER_EPOCH)


def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> Values:
    action = AclOperation.CLUSTER_ACTION
    is_broker = may_see(context, AclResourceType.CLUSTER, CLUSTER_NAME, action)
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _find(topic.topic, wanted, context, is_broker=is_broker)
                    for wanted in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _find(
    topic: str, wanted: OffsetForLeaderPartition, context: RequestContext, *, is_broker: bool
) -> Values:
    try:
        if not is_broker:
            require_topic(context, AclOperation.DESCRIBE, topic)
        partition = context.services.partitions.require_leader(topic, wanted.partition)
        partition.check_epoch(wanted.current_leader_epoch)
    except KafkaError as error:
        return {"partition": wanted.partition, "error_code": error.code}
    epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    return {
        "partition": wanted.partition,
        "error_code": ErrorCode.none,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
