"""ShareAcknowledge, versions 1 and 2: what became of records that a member has acquired (KIP-932).

An acknowledgement is answered when the share coordinator has stored it. All of a partition's count,
or none. With epoch -1 the share session is closed, and what is left is released. The delivery is
counted, as in Kafka 4.3: a record that every consumer abandons comes to its end.

v2 renewals (KIP-1222), and how long the locks last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from uuid import UUID

from kio.schema.share_acknowledge.v2 import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.request import AcknowledgePartition, AcknowledgeTopic
from kio.schema.share_fetch.v2.request import FetchPartition, FetchTopic

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import require_group, require_topic
from moldau.broker.topic_metadata import CurrentLeaders
from moldau.coordinators.shares.rules.in_flight import AcknowledgementBatch, split_by_type
from moldau.coordinators.shares.share_partition import SharePartition
from moldau.coordinators.shares.share_session import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    MemberKey,
    SessionPartitionKey,
)
from moldau.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    KafkaError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)
from moldau.model import AclOperation, TopicId, TopicPartition
from moldau.replication.partition import Partition
from moldau.wire.apis import SHARE_ACKNOWLEDGE

API = serves(SHARE_ACKNOWLEDGE, droppable=("acquisition_lock_timeout",))

_FIRST_WITH_RENEWALS = 2


async def handle(request: ShareAcknowledgeRequest, context: RequestContext) -> Values:
    shares = context.services.shares
    try:
        member = require_member(request.group_id, request.member_id, context)
        if request.share_session_epoch == OPENING_EPOCH:
            raise InvalidShareSessionEpochError("a share session is opened by ShareFetch")
        session = shares.sessions.require(member, request.share_session_epoch)
    except KafkaError as error:
        return _refuse(error)
    may_renew = context.version >= _FIRST_WITH_RENEWALS and request.is_renew_ack
    answers = await acknowledge(member, request.topics, context, may_renew=may_renew)
    if request.share_session_epoch == CLOSING_EPOCH:
        shares.leave(session)
    return _answer(answers, shares.settings_of(member.group_id).lock_ms, context)


def _refuse(error: KafkaError) -> Values:
    return {
        **error_values(error),
        "acquisition_lock_timeout": 0,
        "responses": [],
        "node_endpoints": [],
    }


def _answer(answers: Acknowledged, lock_ms: int, context: RequestContext) -> Values:
    leaders = CurrentLeaders(context)
    topics: dict[UUID, list[Values]] = {}
    for (topic_id, index), error in answers.items():
        code = ErrorCode.none if error is None else error.code
        leader_id, leader_epoch = leaders.find(topic_id, index, code.value) or (-1, -1)
        topics.setdefault(topic_id, []).append(
            {
                "partition_index": index,
                "error_code": code,
                "error_message": None if error is None else str(error),
                "current_leader": {"leader_id": leader_id, "leader_epoch": leader_epoch},
            }
        )
    return {
        **error_values(None),
        "acquisition_lock_timeout": lock_ms,
        "responses": [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in topics.items()
        ],
        "node_endpoints": [
            {"node_id": node_id, "host": host, "port": port, "rack": rack}
            for node_id, host, port, rack in leaders.endpoints
        ],
    }


# Takes the acknowledgements of a request to their share partitions: of ShareAcknowledge, and of a
# ShareFetch that brings some along.
#
# A shell without state.


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
