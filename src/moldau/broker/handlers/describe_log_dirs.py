"""DescribeLogDirs, versions 1 to 5.

The log directories of this broker, what is in them and how full their volumes are. A replica that
moves between two of them is in both, in the new one as a future replica.

v2 flexible; v3 a top-level error; v4 the volume's total and usable bytes; v5 cordoned directories
(none here).
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from kio.schema.describe_log_dirs.v5 import DescribeLogDirsRequest

from moldau.broker.api import (
    RequestContext,
    Slices,
    Values,
    answered_class,
    encode_array,
    encode_element,
    serves,
)
from moldau.broker.authorization import find_refusal
from moldau.errors import ErrorCode
from moldau.model import AclOperation, TopicPartition
from moldau.storage.log_dirs import DirectoryReport
from moldau.wire.apis import DESCRIBE_LOG_DIRS
from moldau.wire.shape import EncodedArray

API = serves(
    DESCRIBE_LOG_DIRS,
    needs=AclOperation.DESCRIBE,
    droppable=("total_bytes", "usable_bytes", "is_cordoned"),
)

_FIRST_WITH_ERROR = 3

Wanted = set[tuple[str, int]] | None
"""None asks for every partition."""

_PARTITIONS_AT_ONCE = 300
"""Before others have the loop: a millisecond."""


class _Replica(NamedTuple):
    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> Values:
    if find_refusal(context, API) is not None:
        refused: Values = {"results": []}
        if context.version >= _FIRST_WITH_ERROR:
            refused["error_code"] = ErrorCode.cluster_authorization_failed
        return refused
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    services = context.services
    reports = await services.workers.run(services.log_store.describe)
    slices = Slices(_PARTITIONS_AT_ONCE)
    values: Values = {
        "results": [
            await _directory_values(report, wanted, context.version, slices) for report in reports
        ]
    }
    if context.version >= _FIRST_WITH_ERROR:
        values["error_code"] = ErrorCode.none
    return values


async def _directory_values(
    report: DirectoryReport, wanted: Wanted, version: int, slices: Slices
) -> Values:
    return {
        "error_code": ErrorCode.none if report.online else ErrorCode.kafka_storage_error,
        "log_dir": str(report.folder.absolute()),
        "topics": await _encode_topics(report, wanted, version, slices),
        "total_bytes": report.total_bytes,
        "usable_bytes": report.usable_bytes,
        "is_cordoned": False,
    }


async def _encode_topics(
    report: DirectoryReport, wanted: Wanted, version: int, slices: Slices
) -> EncodedArray:
    """A broker may have tens of thousands of partitions."""
    topics: dict[str, list[_Replica]] = {}
    current = (_Replica(key, size_bytes, 0, False) for key, size_bytes in report.sizes.items())
    futures = (_Replica(key, *future, True) for key, future in report.futures.items())
    for replica in chain(current, futures):
        if wanted is None or tuple(replica.topic_partition) in wanted:
            topics.setdefault(replica.topic_partition.topic, []).append(replica)
        await slices.piece_done()
    topic_class = answered_class(API, version, "results", "topics")
    partition_class = answered_class(API, version, "results", "topics", "partitions")
    encoded = []
    for name, replicas in topics.items():
        rows = map(_partition_values, replicas)
        partitions = await encode_array(partition_class, rows, API, slices)
        encoded.append(encode_element(topic_class, {"name": name, "partitions": partitions}, API))
    return EncodedArray(encoded)


def _partition_values(replica: _Replica) -> Values:
    return {
        "partition_index": replica.topic_partition.partition,
        "partition_size": replica.size_bytes,
        "offset_lag": replica.offset_lag,
        "is_future_key": replica.is_future,
    }
