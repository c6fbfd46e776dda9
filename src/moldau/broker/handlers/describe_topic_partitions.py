"""DescribeTopicPartitions, version 0 (KIP-966).

Topics in pages: at most `response_partition_limit` partitions, then a cursor where to go on. Topics
are sorted by name; an empty list asks for all. Of each partition also who may lead although it is
not in sync, and who was the last known to have everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.request_context import RequestContext
from moldau.broker.topic_metadata import TopicValues, bare_topic_values, topic_values
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode
from moldau.model.topic_names import find_name_fault
from moldau.wire.apis import DESCRIBE_TOPIC_PARTITIONS

if TYPE_CHECKING:
    from kio.schema.describe_topic_partitions.v0 import DescribeTopicPartitionsRequest

API = serves(DESCRIBE_TOPIC_PARTITIONS)


def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> dict[str, object]:
    image = context.services.image
    names = sorted({topic.name for topic in request.topics} or image.topics)
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
    most = context.services.options.max_request_partition_size_limit
    left = max(1, min(request.response_partition_limit, most))
    topics: list[TopicValues] = []
    for name in names:
        if name < first_name:
            continue
        begin = first_partition if name == first_name else 0
        if left == 0:
            return _page(topics, image, (name, begin))
        values = _describe(name, image)
        whole = values["partitions"]
        values["partitions"] = whole[begin : begin + left]
        topics.append(values)
        left -= len(values["partitions"])
        end = begin + len(values["partitions"])
        if end < len(whole):
            return _page(topics, image, (name, end))
    return _page(topics, image, None)


def _describe(name: str, image: MetadataImage) -> TopicValues:
    topic = image.topics.get(name)
    if topic is not None:
        return topic_values(topic, image)
    illegal = find_name_fault(name) is not None
    return bare_topic_values(
        name,
        None,
        ErrorCode.invalid_topic_exception if illegal else ErrorCode.unknown_topic_or_partition,
    )


def _page(
    topics: list[TopicValues], image: MetadataImage, cursor: tuple[str, int] | None
) -> dict[str, object]:
    return {
        "throttle_time": 0,
        "topics": [_with_eligible(topic, image) for topic in topics],
        "next_cursor": None
        if cursor is None
        else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }


def _with_eligible(topic: TopicValues, image: MetadataImage) -> dict[str, object]:
    """Empty lists: Java's admin client takes no null here, which the protocol would allow."""
    partitions = []
    for row in topic["partitions"]:
        state = image.find_partition(topic["name"] or "", row["partition_index"])
        elr, last_known = ((), ()) if state is None else (state.elr, state.last_known_elr)
        partitions.append({**row, "eligible_leader_replicas": elr, "last_known_elr": last_known})
    return {**topic, "partitions": partitions}
