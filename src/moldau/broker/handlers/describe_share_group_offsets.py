"""DescribeShareGroupOffsets, versions 0 and 1: how far share groups have come in their partitions.

The coordinator of a group answers. It knows in which partitions the group has a state, and asks
their share coordinators for it. A partition in which nothing has been read yet has the start offset
-1. v1 the lag (KIP-1226): records after the start offset that are not done with; -1 where it is
not known. With an authorizer it takes DESCRIBE of the group and of the topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from kio.schema.describe_share_group_offsets.v1 import DescribeShareGroupOffsetsRequest
from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequestGroup

from moldau.broker.api import RequestContext, Services, Values, serves
from moldau.broker.authorization import may_see, may_topic, require_group
from moldau.coordinators.groups.rules.share_records import StateTopics
from moldau.coordinators.shares.rules.records import NO_COUNT, NO_START_OFFSET, SharePartitionKey
from moldau.coordinators.shares.rules.share_states import StateAnswer
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation, AclResourceType, TopicPartition, records_behind
from moldau.wire.apis import DESCRIBE_SHARE_GROUP_OFFSETS

API = serves(DESCRIBE_SHARE_GROUP_OFFSETS, droppable=("lag",))

_NO_LAG = -1


class _Wanted(NamedTuple):
    """A topic of a group, and the partitions that are asked for."""

    name: str
    topic_id: UUID | None
    partitions: tuple[int, ...]
    is_denied: bool = False

    @property
    def error(self) -> ErrorCode:
        if self.is_denied:
            return ErrorCode.topic_authorization_failed
        if self.topic_id is None:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.none


async def handle(request: DescribeShareGroupOffsetsRequest, context: RequestContext) -> Values:
    return {
        "groups": [await _describe(group, context) for group in request.groups],
    }


async def _describe(
    group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> Values:
    services = context.services
    error, message = ErrorCode.none, None
    topics: list[Values] = []
    try:
        require_group(context, AclOperation.DESCRIBE, group.group_id)
        states = await services.groups.find_state_topics(group.group_id)
        wanted = _wanted(group, states, context)
        topics = await _describe_topics(group.group_id, wanted, states, services)
    except KafkaError as fault:
        error, message = fault.code, str(fault)
    return {
        "group_id": group.group_id,
        "topics": topics,
        "error_code": error,
        "error_message": message,
    }


def _wanted(
    group: DescribeShareGroupOffsetsRequestGroup, states: StateTopics, context: RequestContext
) -> list[_Wanted]:
    if group.topics is None:
        return [
            _Wanted(topic.name, topic_id, tuple(sorted(topic.partitions)))
            for topic_id, topic in states.initialized.items()
            if may_see(context, AclResourceType.TOPIC, topic.name)
        ]
    found = []
    for row in group.topics:
        topic = context.services.image.topics.get(row.topic_name)
        is_denied = not may_topic(context, AclOperation.DESCRIBE, row.topic_name)
        topic_id = None if topic is None or is_denied else topic.topic_id
        partitions = tuple(row.partitions)
        found.append(_Wanted(row.topic_name, topic_id, partitions, is_denied))
    return found


async def _describe_topics(
    group_id: str, wanted: Sequence[_Wanted], states: StateTopics, services: Services
) -> list[Values]:
    keys = {
        TopicPartition(topic.name, partition): SharePartitionKey(
            group_id, topic.topic_id, partition
        )
        for topic in wanted
        if topic.topic_id is not None
        for partition in topic.partitions
        if states.has_initialized(topic.topic_id, partition)
    }
    told = await services.share_persister.summarize(list(keys.values()))
    answers = dict(zip(keys, told, strict=True))
    ends = await services.share_lag.find_ends(list(keys))
    return [
        {
            "topic_name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [
                _shape(TopicPartition(topic.name, partition), topic.error, answers, ends)
                for partition in topic.partitions
            ],
        }
        for topic in wanted
    ]


def _shape(
    key: TopicPartition,
    error: ErrorCode,
    answers: dict[TopicPartition, StateAnswer],
    ends: dict[TopicPartition, int],
) -> Values:
    answer = answers.get(key, StateAnswer(error))
    return {
        "partition_index": key.partition,
        "start_offset": answer.start_offset,
        "leader_epoch": answer.leader_epoch,
        "lag": _lag(answer, ends.get(key)),
        "error_code": answer.error,
        "error_message": answer.message,
    }


def _lag(answer: StateAnswer, end: int | None) -> int:
    if end is None or answer.start_offset == NO_START_OFFSET:
        return _NO_LAG
    if answer.delivery_complete_count == NO_COUNT:
        return _NO_LAG
    return records_behind(answer.start_offset + answer.delivery_complete_count, end)
