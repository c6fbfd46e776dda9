"""DescribeTopicPartitions, version 0 (KIP-966).

Topics in pages: at most `response_partition_limit` partitions, then a cursor where to go on. Topics
are sorted by name; an empty list asks for all. Of each partition also who may lead although it is
not in sync, and who was the last known to have everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.describe_topic_partitions.v0 import DescribeTopicPartitionsRequest

from moldau.broker.api import RequestContext, Slices, Values, answered_class, encode_array, serves
from moldau.broker.authorization import may_topic, topic_operations, visible_topics
from moldau.broker.topic_metadata import bare_topic_values, partition_values
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.errors import ErrorCode
from moldau.model import AclOperation, find_topic_name_fault
from moldau.wire.apis import DESCRIBE_TOPIC_PARTITIONS

API = serves(DESCRIBE_TOPIC_PARTITIONS)

_PARTITIONS_AT_ONCE = 200
"""Before others have the loop: two milliseconds."""


async def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> Values:
    image = context.services.image
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
    most = context.services.options.max_request_partition_size_limit
    left = max(1, min(request.response_partition_limit, most))
    slices = Slices(_PARTITIONS_AT_ONCE)
    topics: list[Values] = []
    named = {topic.name for topic in request.topics}
    for name in sorted(named or visible_topics(context, image.topics)):
        if name < first_name:
            continue
        if named and not may_topic(context, AclOperation.DESCRIBE, name):
            topics.append(bare_topic_values(name, None, ErrorCode.topic_authorization_failed))
            continue
        begin = max(0, first_partition) if name == first_name else 0
        if left == 0:
            return _page(topics, (name, begin))
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        numbers = range(len(topic.partitions))[begin : begin + left]
        topics.append(await _describe(topic, numbers, image, slices, context))
        left -= len(numbers)
        if numbers and numbers.stop < len(topic.partitions):
            return _page(topics, (name, numbers.stop))
    return _page(topics, None)


async def _describe(
    topic: TopicState, numbers: range, image: MetadataImage, slices: Slices, context: RequestContext
) -> Values:
    partition_class = answered_class(API, API.last, "topics", "partitions")
    rows = _partition_rows(topic, numbers, image)
    return {
        **bare_topic_values(topic.name, topic.topic_id),
        "partitions": await encode_array(partition_class, rows, API, slices),
        "topic_authorized_operations": topic_operations(context, topic.name),
    }


def _partition_rows(topic: TopicState, numbers: range, image: MetadataImage) -> Iterator[Values]:
    for number in numbers:
        state = topic.partitions[number]
        yield {
            **partition_values(number, state, image.brokers),
            # Empty and not null, which the protocol would allow: Java's admin client takes no null.
            "eligible_leader_replicas": state.elr,
            "last_known_elr": state.last_known_elr,
        }


def _missing(name: str) -> Values:
    illegal = find_topic_name_fault(name) is not None
    error = ErrorCode.invalid_topic_exception if illegal else ErrorCode.unknown_topic_or_partition
    return bare_topic_values(name, None, error)


def _page(topics: list[Values], cursor: tuple[str, int] | None) -> Values:
    return {
        "topics": topics,
        "next_cursor": None
        if cursor is None
        else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
