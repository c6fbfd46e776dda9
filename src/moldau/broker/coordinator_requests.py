"""What the handlers of requests to coordinators share: from the coordinator's answer to the
client's, descriptions of groups, and requests about share states.

An answer may be there at once or later, and the coordinator may turn out to be another broker
before or while it is awaited; all of that ends in one shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from moldau.broker.api import RequestContext, Values, error_values
from moldau.broker.authorization import (
    NOT_ASKED,
    find_cluster_refusal,
    group_operations,
    may_group,
    may_topic,
)
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.epoch_group import DescribedConsumer, DescribedConsumerGroup
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.coordinators.shares.persister import events_of, response_values
from moldau.coordinators.shares.rules.share_states import StateAnswer, StateEvent
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation

A = TypeVar("A")
V = TypeVar("V")


def respond(
    ask: Callable[[], Eventually[A]], shape: Callable[[A], V], refuse: Callable[[ErrorCode], V]
) -> Eventually[V]:
    """Shape the answer, or what has to be said when there is none."""
    try:
        answer = ask()
    except KafkaError as error:
        return refuse(error.code)
    if isinstance(answer, Awaitable):
        return _respond_later(answer, shape, refuse)
    return shape(answer)


async def _respond_later(
    answer: Awaitable[A], shape: Callable[[A], V], refuse: Callable[[ErrorCode], V]
) -> V:
    try:
        return shape(await answer)
    except KafkaError as error:
        return refuse(error.code)


_Values = Values


async def describe_groups(
    group_ids: Sequence[str],
    context: RequestContext,
    *,
    noun: str,
    find: Callable[[str], Eventually[DescribedConsumerGroup | None]],
    shape_member: Callable[[DescribedConsumer, MetadataImage], _Values],
    tells_operations: bool,
) -> _Values:
    """The answer. `find` asks the coordinator for a group of this kind, whose name is `noun`."""

    def describe(group_id: str) -> Eventually[_Values]:
        def shape(found: DescribedConsumerGroup | None) -> _Values:
            if found is None:
                message = f"there is no {noun} {group_id!r}"
                return _refuse(group_id, ErrorCode.group_id_not_found, message)
            if not _may_see_topics(found, context):
                message = "the group reads topics that the principal may not describe"
                return _refuse(group_id, ErrorCode.topic_authorization_failed, message)
            operations = group_operations(context, group_id) if tells_operations else NOT_ASKED
            members = [shape_member(one, context.services.image) for one in found.members]
            return {**_shape(found, members), "authorized_operations": operations}

        if not group_id:
            return _refuse(group_id, ErrorCode.invalid_group_id)
        if not may_group(context, AclOperation.DESCRIBE, group_id):
            return _refuse(group_id, ErrorCode.group_authorization_failed)
        return respond(lambda: find(group_id), shape, lambda error: _refuse(group_id, error))

    return {"groups": [await wait_for_answer(describe(group_id)) for group_id in group_ids]}


def _may_see_topics(group: DescribedConsumerGroup, context: RequestContext) -> bool:
    """Whether the client may know of all topics that members read or will; Kafka tells all of a
    group or nothing."""
    if context.services.authorizer is None:
        return True
    by_id = context.services.image.topics_by_id
    ids = {
        topic_id
        for member in group.members
        for partitions in (member.assigned, member.target)
        for topic_id in partitions
    }
    named = {topic for member in group.members for topic in member.topics}
    names = named | {by_id[topic_id].name for topic_id in ids if topic_id in by_id}
    return all(may_topic(context, AclOperation.DESCRIBE, name) for name in sorted(names))


def _refuse(group_id: str, error: ErrorCode, message: str | None = None) -> Values:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def _shape(group: DescribedConsumerGroup, members: Sequence[Values]) -> Values:
    return {
        **error_values(None),
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": members,
    }


def shape_partitions(partitions: AssignedPartitions, image: MetadataImage) -> Values:
    """Topics that are gone have no name to be shown by."""
    rows = []
    for topic_id, some in partitions.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            numbers = tuple(sorted(some))
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": numbers})
    return {"topic_partitions": rows}


_FIRST_WITH_FENCED = 2
"""Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn; clients before it know a fenced producer by
another code."""


def error_for(error: ErrorCode, version: int) -> ErrorCode:
    if version < _FIRST_WITH_FENCED and error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    return error


async def answer_state_request(
    kind: type[StateEvent], request: Any, context: RequestContext
) -> Values:
    """Begin everything, so that one commit is waited for rather than one after the other. With an
    authorizer it takes CLUSTER_ACTION."""
    rows = events_of(kind, request)
    keys = [key for key, _ in rows]
    refusal = find_cluster_refusal(context, AclOperation.CLUSTER_ACTION)
    if refusal is not None:
        refused = StateAnswer(refusal.code, str(refusal))
        return response_values(kind, keys, [refused] * len(rows))
    answers = await asyncio.gather(*(_answer(event, context) for _, event in rows))
    return response_values(kind, keys, answers)


async def _answer(event: StateEvent | StateAnswer, context: RequestContext) -> StateAnswer:
    if isinstance(event, StateAnswer):
        return event
    return await context.services.share_coordinator.submit(event)
