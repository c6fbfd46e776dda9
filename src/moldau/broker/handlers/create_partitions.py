"""CreatePartitions, versions 0 to 3.

Adds partitions to topics; existing records stay where they are. The request's timeout is kept as
by CreateTopics.

v1 throttle after the answer; v2 flexible; v3 may be throttled.
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.create_partitions.v3 import CreatePartitionsRequest
from kio.schema.create_partitions.v3.request import CreatePartitionsTopic

from moldau.broker.api import RequestContext, Values, error_values, late_topics, serves
from moldau.broker.authorization import audit_change, require_topic
from moldau.broker.throttling import RequestThrottle
from moldau.errors import KafkaError
from moldau.model import AclOperation
from moldau.wire.apis import CREATE_PARTITIONS
from moldau.wire.shape import millis

API = serves(CREATE_PARTITIONS, changes_cluster=True)

_FIRST_REFUSED = 3
"""The first version whose clients are told to come again later, by controller_mutation_rate."""


async def handle(request: CreatePartitionsRequest, context: RequestContext) -> Values:
    answers: dict[str, Values] = {}
    grown: list[str] = []

    async def grow_all() -> None:
        for topic in request.topics:
            error = await _grow(topic, request.validate_only, context)
            if error is None and not request.validate_only:
                grown.append(topic.name)
            answers[topic.name] = _answer(topic.name, error)

    timeout_ms = millis(request.timeout)
    await context.services.change_topics(grow_all(), grown, timeout_ms)
    names = [topic.name for topic in request.topics]
    late = late_topics(context.services, set(names) - answers.keys(), grown, timeout_ms)
    return {
        "results": [_answer(name, late[name]) if name in late else answers[name] for name in names]
    }


async def _grow(
    topic: CreatePartitionsTopic, validate_only: bool, context: RequestContext
) -> KafkaError | None:
    assignments = None
    if topic.assignments is not None:
        assignments = [row.broker_ids for row in topic.assignments]
    error: KafkaError | None = None
    try:
        require_topic(context, AclOperation.ALTER, topic.name)
        if context.throttle is not None and not validate_only:
            await _charge(topic, assignments, context.throttle, context)
        await context.services.admin.create_partitions(
            topic.name, topic.count, assignments, validate_only=validate_only
        )
    except KafkaError as refused:
        error = refused
    if not validate_only:
        audit_change(context, f"Topic:{topic.name}", error)
    return error


def _answer(name: str, error: KafkaError | None) -> Values:
    return {"name": name, **error_values(error)}


async def _charge(
    topic: CreatePartitionsTopic,
    assignments: Sequence[Sequence[int]] | None,
    throttle: RequestThrottle,
    context: RequestContext,
) -> None:
    """Every new partition is a change; one that would not be made costs nothing."""
    services = context.services
    grown = await services.admin.create_partitions(
        topic.name, topic.count, assignments, validate_only=True
    )
    known = services.image.topics.get(topic.name)
    added = len(grown.partitions) - (0 if known is None else len(known.partitions))
    throttle.mutate(added, is_strict=context.version >= _FIRST_REFUSED)
