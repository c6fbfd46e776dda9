"""What a Fetch finds in the partitions that it is about, for a consumer and for a follower.

Which partitions those are, how long the request waits and how it is answered is the handler's
business (`handlers.fetch`); what may be read of a partition is known to the partition. A shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.broker.authorization import require_topic
from moldau.broker.fetch_session import AskedOnce, SessionPartition, TopicReference
from moldau.broker.request_context import RequestContext
from moldau.errors import KafkaError, UnknownTopicIdError
from moldau.metrics.figures import TopicTraffic
from moldau.model import READ_COMMITTED, AclOperation, BrokerId
from moldau.replication.partition import Partition
from moldau.replication.partition_reads import FollowedRead, PartitionRead
from moldau.replication.rules.read_replica import RACK_AWARE_SELECTOR
from moldau.wire.fetch_frame import FetchPartition, FetchRequest

FIRST_WITH_RACK = 11
"""From this version on a consumer can be sent to a follower, and so may read from one."""


class FoundPartition(NamedTuple):
    """What was found in one partition: a read, another replica to read from, or an error."""

    wanted: SessionPartition | AskedOnce
    read: PartitionRead | None
    error: KafkaError | None
    preferred_replica: int = -1
    is_at_rest: bool = False  # the same fetch finds nothing else until something happens
    traffic: TopicTraffic | None = None  # where what is sent is counted


def find_name(topic: TopicReference, context: RequestContext) -> str | None:
    if isinstance(topic, str):
        return topic
    found = context.services.image.topics_by_id.get(topic)
    return None if found is None else found.name


def read_partitions(
    partitions: Sequence[SessionPartition | AskedOnce],
    request: FetchRequest,
    context: RequestContext,
    *,
    is_first: bool,
) -> tuple[list[FoundPartition], int]:
    """Read partitions within the limits; the first that has records may exceed them with one batch.

    A follower's request tells how far it has come when it comes, and not again while it waits.
    """
    limit_bytes = min(request.max_bytes, context.services.options.fetch_max_bytes)
    is_consumer = request.replica_id < 0
    results: list[FoundPartition] = []
    size_bytes = 0
    for wanted in partitions:
        try:
            left_bytes, min_one = limit_bytes - size_bytes, size_bytes == 0
            if is_consumer:
                result = _read_for_consumer(wanted, left_bytes, min_one, request, context)
            else:
                result = _read_for_follower(
                    wanted, left_bytes, min_one, request, context, counts=is_first
                )
        except KafkaError as error:
            results.append(FoundPartition(wanted, None, error))
            continue
        results.append(result)
        read = result.read
        if read is not None and read.records is not None:
            size_bytes += read.records.length
    return results, size_bytes


def _read_for_consumer(
    wanted: SessionPartition | AskedOnce,
    limit_bytes: int,
    min_one: bool,
    request: FetchRequest,
    context: RequestContext,
) -> FoundPartition:
    services, topic = context.services, wanted.topic
    index, leader_epoch, offset, last_fetched_epoch, _, max_bytes, _, _ = wanted.request
    name = topic if isinstance(topic, str) else _require_name(topic, context)
    if services.authorizer is not None and not wanted.is_allowed:
        require_topic(context, AclOperation.READ, name)
        if isinstance(wanted, SessionPartition):
            wanted.is_allowed = True
    partitions = services.partitions
    read_committed = request.isolation_level == READ_COMMITTED
    is_choosing = False  # whom to read from: other brokers may come that are nearer
    if context.version < FIRST_WITH_RACK:
        partition = partitions.require_leader(name, index)
    else:
        partition = partitions.require_replica(name, index)
    if name is not topic:
        _check_topic(partition, topic)
    if leader_epoch >= 0:
        partition.check_epoch(leader_epoch)
    read = partition.read(
        offset,
        min(max_bytes, limit_bytes),
        read_committed=read_committed,
        min_one=min_one,
        last_fetched_epoch=last_fetched_epoch,
    )
    if request.rack_id and partition.is_leader:
        preferred = _find_preferred(partition, request.rack_id, wanted.request, context)
        if preferred is not None:
            return FoundPartition(wanted, read._replace(records=None), None, preferred)
        is_choosing = services.options.replica_selector_class is not None
    end_offset = read.last_stable_offset if read_committed else read.high_watermark
    is_at_rest = offset >= end_offset and not is_choosing
    return FoundPartition(wanted, read, None, -1, is_at_rest, partition.traffic)


def _find_preferred(
    partition: Partition, rack: str, request: FetchPartition, context: RequestContext
) -> BrokerId | None:
    services = context.services
    if services.options.replica_selector_class != RACK_AWARE_SELECTOR:
        return None
    racks = {broker.id: broker.rack for broker in services.image.brokers.values()}
    return partition.state.find_read_replica(rack, racks, request.fetch_offset)


def _read_for_follower(
    wanted: SessionPartition | AskedOnce,
    limit_bytes: int,
    min_one: bool,
    request: FetchRequest,
    context: RequestContext,
    *,
    counts: bool,
) -> FoundPartition:
    partition_request = wanted.request
    name = _require_name(wanted.topic, context)
    services = context.services
    partition = services.partitions.require_leader(name, partition_request.partition)
    _check_topic(partition, wanted.topic)
    replica = BrokerId(request.replica_id)
    is_held_back = services.leader_quota.holds_back(partition, replica)
    followed = FollowedRead(
        replica,
        request.replica_epoch,
        partition_request.current_leader_epoch,
        partition_request.fetch_offset,
        partition_request.last_fetched_epoch,
        partition_request.log_start_offset,
    )
    read = partition.followers.read(
        followed,
        0 if is_held_back else min(partition_request.partition_max_bytes, limit_bytes),
        min_one=min_one and not is_held_back,
        counts=counts,
    )
    if read.records is not None:
        services.leader_quota.record(partition, read.records.length, replica)
    is_at_rest = partition.followers.is_at_rest(followed)
    return FoundPartition(wanted, read, None, -1, is_at_rest, partition.traffic)


def _require_name(topic: TopicReference, context: RequestContext) -> str:
    name = find_name(topic, context)
    if name is None:
        raise UnknownTopicIdError(f"there is no topic with id {topic}")
    return name


def _check_topic(partition: Partition, topic: TopicReference) -> None:
    """A topic that was made again under its name may not be the one that is open here yet."""
    if not isinstance(topic, str) and partition.topic_id != topic:
        raise UnknownTopicIdError(f"{partition.topic_partition} is about to be opened as {topic}")
