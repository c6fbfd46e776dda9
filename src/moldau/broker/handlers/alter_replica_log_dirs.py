"""AlterReplicaLogDirs, versions 1 to 2: moves replicas between the log directories of this broker.

The answer leaves when the copy in the other directory is there, still empty: DescribeLogDirs shows
it as a future replica with its lag until it takes the place of the log. A replica that is not here
yet is answered with REPLICA_NOT_AVAILABLE, and made in that directory when it is.

v2 flexible.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kio.schema.alter_replica_log_dirs.v2 import AlterReplicaLogDirsRequest

from moldau.broker.api import RequestContext, Services, Values, group_by_topic, serves
from moldau.broker.authorization import audit_change, authorize
from moldau.errors import ErrorCode, KafkaError, ReplicaNotAvailableError, StorageError
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import ALTER_REPLICA_LOG_DIRS

API = serves(ALTER_REPLICA_LOG_DIRS, needs=AclOperation.ALTER, changes_cluster=True)

_TOLD = 20  # partitions in a line of the audit log


async def handle(request: AlterReplicaLogDirsRequest, context: RequestContext) -> Values:
    targets = {
        TopicPartition(topic.name, number): Path(directory.path)
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    codes: dict[TopicPartition, ErrorCode] = {}
    refusal: KafkaError | None = None
    try:
        authorize(context, API)
    except KafkaError as error:
        refusal = error
        codes = dict.fromkeys(targets, error.code)
    else:
        for key, folder in targets.items():
            codes[key] = await _move(context.services, key, folder)
    audit_change(context, ", ".join(map(str, list(targets)[:_TOLD])), refusal)
    return {"results": list(_results(codes))}


async def _move(services: Services, key: TopicPartition, folder: Path) -> ErrorCode:
    moves, partition = services.log_store.moves, services.partitions.find(*key)
    try:
        moves.require_directory(folder)
        if services.partitions.is_offline(key):
            raise StorageError(f"the log directory of {key} is offline")
        if partition is None:
            moves.request_directory(key, folder)
            raise ReplicaNotAvailableError(f"there is no replica of {key} here yet")
        await moves.start_move(partition.log, folder)
    except KafkaError as error:
        return error.code
    return ErrorCode.none


def _results(codes: dict[TopicPartition, ErrorCode]) -> Iterable[Values]:
    for topic, errors in group_by_topic(codes).items():
        rows = [{"partition_index": one, "error_code": code} for one, code in errors.items()]
        yield {"topic_name": topic, "partitions": rows}
