"""DescribeLogDirs, versions 1 to 5.

The log directories of this broker, what is in them and how full their volumes are.

v2 flexible; v3 a top-level error; v4 the volume's total and usable bytes; v5 cordoned directories
(none here).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.authorization import may_cluster
from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode
from moldau.model.acls import AclOperation
from moldau.storage.log_store import DirectoryReport
from moldau.wire.apis import DESCRIBE_LOG_DIRS

if TYPE_CHECKING:
    from kio.schema.describe_log_dirs.v5 import DescribeLogDirsRequest

API = serves(
    DESCRIBE_LOG_DIRS,
    droppable=("total_bytes", "usable_bytes", "is_cordoned"),
)

_FIRST_WITH_ERROR = 3

Wanted = set[tuple[str, int]] | None
"""None asks for every partition."""


async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> dict[str, object]:
    if not may_cluster(context, AclOperation.DESCRIBE):
        refused: dict[str, object] = {"throttle_time": 0, "results": []}
        if context.version >= _FIRST_WITH_ERROR:
            refused["error_code"] = ErrorCode.cluster_authorization_failed
        return refused
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    services = context.services
    reports = await services.workers.run(services.log_store.describe)
    values: dict[str, object] = {
        "throttle_time": 0,
        "results": [_directory_values(report, wanted) for report in reports],
    }
    if context.version >= _FIRST_WITH_ERROR:
        values["error_code"] = ErrorCode.none
    return values


def _directory_values(report: DirectoryReport, wanted: Wanted) -> dict[str, object]:
    topics: dict[str, list[dict[str, object]]] = {}
    for topic_partition, size_bytes in report.sizes.items():
        if wanted is None or tuple(topic_partition) in wanted:
            topics.setdefault(topic_partition.topic, []).append(
                {
                    "partition_index": topic_partition.partition,
                    "partition_size": size_bytes,
                    "offset_lag": 0,
                    "is_future_key": False,
                }
            )
    return {
        "error_code": ErrorCode.none if report.online else ErrorCode.kafka_storage_error,
        "log_dir": str(report.folder),
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        "total_bytes": report.total_bytes,
        "usable_bytes": report.usable_bytes,
        "is_cordoned": False,
    }
