"""ListOffsets, versions 1 to 11.

The first offset at or after a time, or one of the special times: -1 latest, -2 earliest, -3 the
record with the highest timestamp, -4 earliest local (the same as earliest: nothing is tiered), -5
latest tiered (none).

v2 isolation level and throttle time; v4 leader epochs; v6 flexible; v7 max timestamp; v8 earliest
local; v9 latest tiered; v10 a time-out; v11 earliest pending upload (-6, none here).

With read_committed, latest is the last stable offset. A replica is told of what is not committed,
too. A leader that does not know yet what is committed answers OFFSET_NOT_AVAILABLE, or to versions
before 5 LEADER_NOT_AVAILABLE. With replica id -2 (Kafka's debugging consumer) any replica answers
for its own log, whoever leads: latest is where it ends, with the epoch of its last record.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.list_offsets.v11 import ListOffsetsRequest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_see, require_topic
from moldau.errors import ErrorCode, KafkaError, OffsetNotAvailableError
from moldau.model import CLUSTER_NAME, LATEST_TIMESTAMP, AclOperation, AclResourceType
from moldau.replication.offset_lookup import FoundOffset
from moldau.replication.partitions import Partitions
from moldau.wire.apis import LIST_OFFSETS

API = serves(LIST_OFFSETS, droppable=("leader_epoch",))


_FIRST_WITH_NOT_AVAILABLE = 5
_ANY_REPLICA = -2


class _Reader(NamedTuple):
    """Who asks."""

    read_committed: bool
    for_replica: bool
    of_any_replica: bool


async def handle(request: ListOffsetsRequest, context: RequestContext) -> Values:
    reader = _Reader(
        read_committed=getattr(request, "isolation_level", 0) == 1,
        for_replica=request.replica_id >= 0 or request.replica_id == _ANY_REPLICA,
        of_any_replica=request.replica_id == _ANY_REPLICA,
    )
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _find(topic.name, wanted, reader, context) for wanted in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


async def _find(
    topic: str, wanted: ListOffsetsPartition, reader: _Reader, context: RequestContext
) -> Values:
    index = wanted.partition_index
    try:
        if not (reader.for_replica and _is_broker(context)):
            require_topic(context, AclOperation.DESCRIBE, topic)
        found = await _find_offset(topic, wanted, reader, context.services.partitions)
    except OffsetNotAvailableError as error:
        is_old = context.version < _FIRST_WITH_NOT_AVAILABLE
        code = ErrorCode.leader_not_available if is_old else error.code
        return {"partition_index": index, "error_code": code}
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _is_broker(context: RequestContext) -> bool:
    """A controller asks brokers where their logs end."""
    action = AclOperation.CLUSTER_ACTION
    return may_see(context, AclResourceType.CLUSTER, CLUSTER_NAME, action)


async def _find_offset(
    topic: str, wanted: ListOffsetsPartition, reader: _Reader, partitions: Partitions
) -> FoundOffset:
    require = partitions.require_any_replica if reader.of_any_replica else partitions.require_leader
    partition = require(topic, wanted.partition_index)
    partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
    if reader.of_any_replica and wanted.timestamp == LATEST_TIMESTAMP:
        return partition.find_log_end()
    return await partition.find_offset(
        wanted.timestamp, read_committed=reader.read_committed, for_replica=reader.for_replica
    )
