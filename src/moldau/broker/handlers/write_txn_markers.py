"""WriteTxnMarkers, versions 1 and 2: a transaction coordinator ends transactions in partitions.

Appends a control batch to each named partition that this broker leads, and answers when it is
committed: a coordinator that has the answer may let the next transaction begin. On a partition of
`__consumer_offsets` the offsets that were committed in the transaction become visible, or go. A
marker that comes again is answered as the first time (TXP-3); one of a coordinator that has been
replaced is refused with TRANSACTION_COORDINATOR_FENCED, one of a former epoch of the producer with
INVALID_PRODUCER_EPOCH.

v1 flexible; v2 the transaction version of each marker, by which those with a bumped epoch are known
(KIP-890, KIP-1228).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker

from moldau.broker.api import RequestContext, Services, Values, serves
from moldau.broker.authorization import may_cluster, may_see
from moldau.broker.commit_waits import Uncommitted, wait_until_committed
from moldau.errors import ErrorCode, KafkaError
from moldau.model import (
    CLUSTER_NAME,
    GROUP_OFFSETS_TOPIC,
    AclOperation,
    AclResourceType,
    TopicPartition,
)
from moldau.records.record_batch import ControlType, EndTransactionMarker
from moldau.replication.partition import Partition
from moldau.wire.apis import WRITE_TXN_MARKERS

API = serves(WRITE_TXN_MARKERS)

_Place = tuple[int, TopicPartition]
"""The number of a marker in the request, and a partition that it names."""


class _Written(NamedTuple):
    place: _Place
    uncommitted: Uncommitted


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> Values:
    # ALTER is for administrators who end transactions that hang (KIP-664).
    may_alter = may_see(context, AclResourceType.CLUSTER, CLUSTER_NAME, AclOperation.ALTER)
    if not may_alter and not may_cluster(context, AclOperation.CLUSTER_ACTION):
        refused = ErrorCode.cluster_authorization_failed
        return _answer(request, lambda number, topic_partition: refused)
    return await write(request, context.services)


async def write(request: WriteTxnMarkersRequest, services: Services) -> Values:
    """The answer, when every marker is committed or refused; also for a coordinator here."""
    deadline = services.clock.monotonic() + services.options.request_timeout_ms / 1000
    codes: dict[_Place, ErrorCode] = {}
    written: list[_Written] = []
    for number, marker in enumerate(request.markers):
        for topic in marker.topics:
            for index in topic.partition_indexes:
                place = (number, TopicPartition(topic.name, index))
                try:
                    written.append(_Written(place, _write(place[1], marker, services)))
                except KafkaError as error:
                    codes[place] = error.code
    await _finish(written, codes, deadline, services)
    return _answer(request, lambda number, topic_partition: codes[number, topic_partition])


def _answer(
    request: WriteTxnMarkersRequest, code_of: Callable[[int, TopicPartition], ErrorCode]
) -> Values:
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": index,
                                "error_code": code_of(number, TopicPartition(topic.name, index)),
                            }
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for number, marker in enumerate(request.markers)
        ]
    }


def _write(
    topic_partition: TopicPartition, wanted: WritableTxnMarker, services: Services
) -> Uncommitted:
    partition = services.partitions.require_leader(*topic_partition)
    control_type = ControlType.COMMIT if wanted.transaction_result else ControlType.ABORT
    marker = EndTransactionMarker(control_type, wanted.coordinator_epoch)
    producer_id, producer_epoch = wanted.producer_id, wanted.producer_epoch
    transaction_version: int = getattr(wanted, "transaction_version", 0)
    end_offset: int
    if topic_partition.topic == GROUP_OFFSETS_TOPIC:
        end_offset = services.groups.end_transaction(
            topic_partition.partition, marker, producer_id, producer_epoch, transaction_version
        )
    else:
        end_offset = partition.append_marker(
            marker, producer_id, producer_epoch, transaction_version
        )
    return Uncommitted(partition, partition.leader_epoch, end_offset)


async def _finish(
    written: list[_Written], codes: dict[_Place, ErrorCode], deadline: float, services: Services
) -> None:
    """Put the code of each marker that was written in its place, when it is known."""
    flushed: dict[Partition, KafkaError | None] = {}
    for _, (partition, _, _) in written:
        if partition.log.flush_is_due and partition not in flushed:
            flushed[partition] = await _flush(partition)
    errors = await wait_until_committed([one.uncommitted for one in written], deadline, services)
    for (place, (partition, _, _)), error in zip(written, errors, strict=True):
        failure = error or flushed.get(partition)
        codes[place] = ErrorCode.none if failure is None else failure.code


async def _flush(partition: Partition) -> KafkaError | None:
    """`flush.messages` asks that a record is on the disk before it is acknowledged."""
    try:
        await partition.log.flush()
    except KafkaError as error:
        return error
    return None
