"""DeleteRecords, versions 0 to 2.

Moves the log start offset forward; whole segments before it are deleted by retention. The answer
leaves when every replica whose broker lives has done so, or the time-out is over.

v1 throttle after the answer; v2 flexible.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.delete_records.v2 import DeleteRecordsRequest
from kio.schema.delete_records.v2.request import DeleteRecordsPartition

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import audit_change, require_topic
from moldau.errors import ErrorCode, KafkaError, PolicyViolationError
from moldau.model import AclOperation
from moldau.replication.partition import Partition
from moldau.wire.apis import DELETE_RECORDS

API = serves(DELETE_RECORDS)


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> Values:
    deadline = context.services.clock.monotonic() + request.timeout.total_seconds()
    begun = [
        (topic.name, [_begin(topic.name, row, context) for row in topic.partitions])
        for topic in request.topics
    ]
    return {
        "topics": [
            {
                "name": name,
                "partitions": [await _finish(one, deadline, context) for one in partitions],
            }
            for name, partitions in begun
        ]
    }


class _Begun(NamedTuple):
    """A deletion that the leader has done; the followers have yet to."""

    number: int
    partition: Partition | None
    offset: int
    error_code: ErrorCode = ErrorCode.none


def _begin(topic: str, row: DeleteRecordsPartition, context: RequestContext) -> _Begun:
    index = row.partition_index
    try:
        require_topic(context, AclOperation.DELETE, topic)
        partition = context.services.partitions.require_leader(topic, index)
        _require_deletion(topic, partition.log.options.cleanup_policy)
        begun = _Begun(index, partition, partition.delete_records(row.offset))
        audit_change(context, f"Topic:{topic}-{index} up to {row.offset}")
        return begun
    except KafkaError as error:
        audit_change(context, f"Topic:{topic}-{index}", error)
        return _Begun(index, None, -1, error.code)


def _require_deletion(topic: str, cleanup_policy: frozenset[str]) -> None:
    """A topic that is compacted alone is there for the last record of every key, as in Kafka."""
    if cleanup_policy == {"compact"}:
        raise PolicyViolationError(
            f"{topic} has cleanup.policy=compact: its records are not deleted; add delete to it"
        )


async def _finish(begun: _Begun, deadline: float, context: RequestContext) -> Values:
    partition, error_code = begun.partition, begun.error_code
    if partition is None:
        return _answer(begun.number, -1, error_code)
    clock = context.services.clock
    while partition.is_leader and partition.low_watermark < begun.offset:
        left_ms = (deadline - clock.monotonic()) * 1000
        if left_ms <= 0:
            return _answer(begun.number, -1, ErrorCode.request_timed_out)
        purgatory = context.services.purgatory
        await purgatory.wait_for_change(partition.topic_partition, left_ms)
    if not partition.is_leader:
        return _answer(begun.number, -1, ErrorCode.not_leader_or_follower)
    return _answer(begun.number, partition.low_watermark, error_code)


def _answer(index: int, low_watermark: int, error_code: ErrorCode) -> Values:
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": error_code}
