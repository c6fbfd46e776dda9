"""ListOffsets, versions 1 to 11.

The first offset at or after a time, or one of the special times: -1 latest, -2 earliest, -3 the
record with the highest timestamp, -4 earliest local (the same as earliest: nothing is tiered), -5
latest tiered (none).

v2 isolation level and throttle time; v4 leader epochs; v6 flexible; v7 max timestamp; v8 earliest
local; v9 latest tiered; v10 a time-out; v11 earliest pending upload (-6, none here).

With read_committed, latest is the last stable offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kio.schema.list_offsets.v11 import ListOffsetsRequest
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition

API = serves("list_offsets", first=1, last=11, droppable=("throttle_time", "leader_epoch"))


async def handle(request: ListOffsetsRequest, context: RequestContext) -> dict[str, object]:
    read_committed = getattr(request, "isolation_level", 0) == 1
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _find(topic.name, wanted, read_committed, context)
                    for wanted in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


async def _find(
    topic: str, wanted: ListOffsetsPartition, read_committed: bool, context: RequestContext
) -> dict[str, object]:
    index = wanted.partition_index
    try:
        partition = context.services.partitions.require_leader(topic, index)
        partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
        found = await partition.find_offset(wanted.timestamp, read_committed=read_committed)
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }
