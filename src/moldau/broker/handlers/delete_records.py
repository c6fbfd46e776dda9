"""DeleteRecords, versions 0 to 2.

Moves the log start offset forward; whole segments before it are deleted by retention.

v1 throttle after the answer; v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kio.schema.delete_records.v2 import DeleteRecordsRequest

API = serves("delete_records", first=0, last=2)


def handle(request: DeleteRecordsRequest, context: RequestContext) -> dict[str, object]:
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _delete(topic.name, wanted.partition_index, wanted.offset, context)
                    for wanted in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _delete(topic: str, index: int, offset: int, context: RequestContext) -> dict[str, object]:
    try:
        partition = context.services.partitions.require_leader(topic, index)
        low_watermark = partition.delete_records(offset)
    except KafkaError as error:
        return {"partition_index": index, "low_watermark": -1, "error_code": error.code}
    return {
        "partition_index": index,
        "low_watermark": low_watermark,
        "error_code": ErrorCode.none,
    }
