"""DeleteTopics, versions 1 to 6.

Deletes topics by name or by id; the files go after `file.delete.delay.ms`. The request's timeout is
kept as by CreateTopics: a deletion that is not decided by then is REQUEST_TIMED_OUT, and goes on.

With an authorizer it takes DELETE of the topic. Who names it by its id and may not DESCRIBE it is
not told its name.

v2 throttle after the answer; v3 TOPIC_DELETION_DISABLED; v4 flexible; v5 error messages; v6 topic
ids.
"""

from __future__ import annotations

from uuid import UUID

from kio.schema.delete_topics.v6 import DeleteTopicsRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import audit_change, may_see, require_topic
from moldau.errors import (
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
)
from moldau.model import AclOperation, AclResourceType
from moldau.wire.apis import DELETE_TOPICS
from moldau.wire.shape import millis

API = serves(DELETE_TOPICS, changes_cluster=True, droppable=("topic_id", "error_message"))

_FIRST_WITH_IDS = 6
_FIRST_REFUSED = 5
"""The first version whose clients are told to come again later, by controller_mutation_rate."""


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> Values:
    wanted: list[tuple[str | None, UUID | None]]
    if context.version >= _FIRST_WITH_IDS:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in getattr(request, "topic_names", ())]
    answers: list[Values] = []

    async def delete_all() -> None:
        for name, topic_id in wanted:
            answers.append(await _delete(name, topic_id, context))

    timeout_ms = millis(request.timeout)
    await context.services.change_topics(delete_all(), (), timeout_ms)
    late = RequestTimedOutError(f"it is not done after {timeout_ms} ms; the deletion goes on")
    told = error_values(late)
    rows = [
        {**row, **told} if timeout_ms <= 0 and row["error_code"] is ErrorCode.none else row
        for row in answers
    ]
    rows += [
        {"name": name, "topic_id": topic_id, **told} for name, topic_id in wanted[len(answers) :]
    ]
    return {"responses": rows}


async def _delete(name: str | None, topic_id: UUID | None, context: RequestContext) -> Values:
    services = context.services
    error: KafkaError | None = None
    told = name
    try:
        if not services.options.delete_topic_enable:
            raise TopicDeletionDisabledError("delete.topic.enable is false on this broker")
        if name is None:
            topic = None if topic_id is None else services.image.topics_by_id.get(topic_id)
            if topic is None:
                raise UnknownTopicIdError(f"there is no topic with id {topic_id}")
            name = topic.name
            told = name if may_see(context, AclResourceType.TOPIC, name) else None
        elif topic_id is not None:
            raise InvalidRequestError("a topic is deleted by its name or by its id, not by both")
        require_topic(context, AclOperation.DELETE, name)
        if context.throttle is not None and (known := services.image.topics.get(name)):
            is_strict = context.version >= _FIRST_REFUSED
            context.throttle.mutate(len(known.partitions), is_strict=is_strict)
        await services.admin.delete_topic(name)
    except KafkaError as refused:
        error = refused
    audit_change(context, f"Topic:{name or topic_id}", error)
    is_hidden = told is None and name is not None
    return {
        "name": told,
        "topic_id": topic_id,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None or is_hidden else str(error),
    }
