"""Takes the acknowledgements of a request to their share partitions: of ShareAcknowledge, and of a
ShareFetch that brings some along.

A shell without state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from moldau.broker.api import RequestContext
from moldau.broker.authorization import require_group, require_topic
from moldau.errors import (
    InvalidRequestError,
    KafkaError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)
from moldau.model import AclOperation, TopicId, TopicPartition
from moldau.replication.partition import Partition
from moldau.shares.rules.acknowledgements import AcknowledgementBatch, split_by_type
from moldau.shares.share_partition import SharePartition
from moldau.shares.share_sessions import MemberKey, SessionPartitionKey

if TYPE_CHECKING:
    from kio.schema.share_acknowledge.v2.request import AcknowledgePartition, AcknowledgeTopic
    from kio.schema.share_fetch.v2.request import FetchPartition, FetchTopic

_LONGEST_MEMBER_ID = 36
_PROTOCOL = "share"

Acknowledged = dict[SessionPartitionKey, KafkaError | None]
"""What became of the acknowledgements of each partition that had some; None where they count."""


def require_member(
    group_id: str | None, member_id: str | None, context: RequestContext
) -> MemberKey:
    """Who sends a request, and may. Members make up their ids."""
    if _PROTOCOL not in context.services.options.group_coordinator_rebalance_protocols:
        raise UnsupportedVersionError(
            "group.coordinator.rebalance.protocols of this broker has no `share`"
        )
    if not group_id:
        raise InvalidRequestError("the request names no group")
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise InvalidRequestError("the request has no member id, or a long one")
    require_group(context, AclOperation.READ, group_id)
    return MemberKey(group_id, member_id)


def require_partition(topic_id: UUID, index: int, context: RequestContext) -> Partition:
    """The partition that this broker leads, by its topic's id, for a client that may read it."""
    name = _require_topic_name(topic_id, context)
    partition = context.services.partitions.require_leader(name, index)
    if partition.topic_id != topic_id:
        raise UnknownTopicIdError(f"{partition.topic_partition} is opened as another topic")
    return partition


def _require_topic_name(topic_id: UUID, context: RequestContext) -> str:
    topic = context.services.image.topics_by_id.get(TopicId(topic_id))
    if topic is None:
        raise UnknownTopicIdError(f"there is no topic with id {topic_id}")
    require_topic(context, AclOperation.READ, topic.name)
    return topic.name


def _require_shared(
    member: MemberKey, topic_id: UUID, index: int, context: RequestContext
) -> SharePartition:
    """The share partition from which the member has acquired records. This broker may be without a
    session with the store: an acknowledgement needs none (SHR-11)."""
    key = TopicPartition(_require_topic_name(topic_id, context), index)
    found = context.services.shares.partitions.find(key, member.group_id)
    if found is not None and found.key.topic_id == topic_id:
        return found
    require_partition(topic_id, index, context)  # the leader may be another broker
    raise UnknownTopicError(f"nothing of {key} was acquired here by group {member.group_id!r}")


async def acknowledge(
    member: MemberKey,
    topics: Iterable[FetchTopic | AcknowledgeTopic],
    context: RequestContext,
    *,
    may_renew: bool,
) -> Acknowledged:
    """Answers when everything is stored, or refused."""
    settings = context.services.shares.settings_of(member.group_id)
    may_renew = may_renew and settings.may_renew
    answers: Acknowledged = {}
    waiting: dict[SessionPartitionKey, Awaitable[None]] = {}
    for topic in topics:
        topic_id = topic.topic_id or UUID(int=0)
        for partition in topic.partitions:
            if not partition.acknowledgement_batches:
                continue
            key: SessionPartitionKey = (topic_id, partition.partition_index)
            answers[key] = None
            try:
                stored = _begin(member, topic_id, partition, context, may_renew)
            except KafkaError as error:
                answers[key] = error
                continue
            if stored is not None:
                waiting[key] = stored
    for key, stored in waiting.items():
        try:
            await stored
        except KafkaError as error:
            answers[key] = error
    return answers


def _begin(
    member: MemberKey,
    topic_id: UUID,
    partition: FetchPartition | AcknowledgePartition,
    context: RequestContext,
    may_renew: bool,
) -> Awaitable[None] | None:
    batches = [
        AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
        for batch in partition.acknowledgement_batches
    ]
    ranges = split_by_type(batches, may_renew=may_renew)
    found = _require_shared(member, topic_id, partition.partition_index, context)
    return found.acknowledge(member.member_id, ranges)
