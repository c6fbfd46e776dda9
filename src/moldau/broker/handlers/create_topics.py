"""CreateTopics, versions 2 to 7.

Makes topics and answers when their partitions can be written to, or at the request's timeout.

A topic that is not there by then, or that has a partition without a living leader, is answered with
REQUEST_TIMED_OUT, and is made all the same. So is every topic of a request with a timeout of zero
or less, as in Kafka: such a request does not wait. A topic whose leaders are known is answered
without an error after eight seconds at most, whatever the timeout: its replicas are being opened.

v4 -1 for the default number of partitions and replicas; v5 flexible, answers with the effective
configs; v6 may be throttled; v7 topic ids.

With an authorizer it takes CREATE, of the topic or of the cluster; CLUSTER_ACTION is as good, since
a broker that asks for a topic has let its client have it. Who may not DESCRIBE_CONFIGS of the topic
is not told them.

Every topic of a request succeeds or fails on its own. A name that stands in the request twice is
INVALID_REQUEST, as in Kafka.

Beyond Kafka: the config `moldau.branch.of` names a topic of which the new one is a branch; it
begins with the records, the partitions and the configs of that one, sharing its files. It takes
READ of that topic besides. It is no config of the topic afterwards.
"""

from __future__ import annotations

from collections import Counter

from kio.schema.create_topics.v7 import CreateTopicsRequest
from kio.schema.create_topics.v7.request import CreatableTopic

from moldau.broker.api import RequestContext, Values, error_values, late_topics, serves
from moldau.broker.authorization import audit_change, may_create_topic, may_see, may_topic, refusal
from moldau.broker.throttling import RequestThrottle
from moldau.cluster.rules.metadata_image import TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.describe import describe_topic
from moldau.errors import (
    ErrorCode,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    KafkaError,
    TopicAuthorizationError,
)
from moldau.model import BRANCH_OF, CLUSTER_NAME, AclOperation, AclResourceType
from moldau.wire.apis import CREATE_TOPICS
from moldau.wire.shape import millis

API = serves(
    CREATE_TOPICS,
    changes_cluster=True,
    droppable=(
        "topic_id",
        "num_partitions",
        "replication_factor",
        "configs",
        "topic_config_error_code",
    ),
)


_FIRST_REFUSED = 6
"""The first version whose clients are told to come again later, by controller_mutation_rate."""


async def handle(request: CreateTopicsRequest, context: RequestContext) -> Values:
    times = Counter(topic.name for topic in request.topics)
    answers: dict[str, Values] = {}
    made: list[str] = []

    async def create_all() -> None:
        for topic in request.topics:
            if times[topic.name] > 1:
                repeated = InvalidRequestError(f"topic {topic.name!r} stands in the request twice")
                answers[topic.name] = _refuse(topic.name, repeated)
                continue
            answer = await _create(topic, request.validate_only, context)
            if answer["error_code"] is ErrorCode.none and not request.validate_only:
                made.append(topic.name)
            answers[topic.name] = answer

    timeout_ms = millis(request.timeout)
    await context.services.change_topics(create_all(), made, timeout_ms)
    late = late_topics(context.services, times.keys() - answers.keys(), made, timeout_ms)
    return {
        "topics": [_refuse(name, late[name]) if name in late else answers[name] for name in times]
    }


async def _create(topic: CreatableTopic, validate_only: bool, context: RequestContext) -> Values:
    try:
        _authorize(topic.name, context)
        spec = _spec_of(topic)
        if spec.branch_of is not None:
            _authorize_branch(spec.branch_of, context)
        if context.throttle is not None and not validate_only:
            await _charge(spec, context.throttle, context)
        made = await context.services.admin.create_topic(spec, validate_only=validate_only)
    except KafkaError as error:
        audit_change(context, f"Topic:{topic.name}", error)
        return _refuse(topic.name, error)
    if not validate_only:
        audit_change(context, f"Topic:{topic.name}")
    return _confirm(made, context)


def _authorize(name: str, context: RequestContext) -> None:
    action = AclOperation.CLUSTER_ACTION
    if may_see(context, AclResourceType.CLUSTER, CLUSTER_NAME, action):
        return
    if not may_create_topic(context, name):
        message = refusal(context, AclOperation.CREATE, AclResourceType.TOPIC, name)
        raise TopicAuthorizationError(message)


def _authorize_branch(source: str, context: RequestContext) -> None:
    """Who reads the branch reads what was in its origin."""
    if not may_topic(context, AclOperation.READ, source):
        message = refusal(context, AclOperation.READ, AclResourceType.TOPIC, source)
        raise TopicAuthorizationError(message)


async def _charge(spec: TopicSpec, throttle: RequestThrottle, context: RequestContext) -> None:
    """Every partition is a change; one that would not be made costs nothing."""
    planned = await context.services.admin.create_topic(spec, validate_only=True)
    is_strict = context.version >= _FIRST_REFUSED
    throttle.mutate(len(planned.partitions), is_strict=is_strict)


def _spec_of(topic: CreatableTopic) -> TopicSpec:
    assignments = {int(row.partition_index): row.broker_ids for row in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise InvalidReplicaAssignmentError("a partition is assigned twice")
    configs = {config.name: config.value for config in topic.configs}
    branch_of = configs.get(BRANCH_OF)
    if branch_of is not None:  # null is refused, as of any config
        del configs[BRANCH_OF]
    return TopicSpec(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=configs,
        branch_of=branch_of,
    )


def _refuse(name: str, error: KafkaError) -> Values:
    return {"name": name, "topic_id": None, **error_values(error), "configs": []}


def _confirm(topic: TopicState, context: RequestContext) -> Values:
    sees_configs = may_see(
        context, AclResourceType.TOPIC, topic.name, AclOperation.DESCRIBE_CONFIGS
    )
    if not sees_configs:
        return {
            "name": topic.name,
            "topic_id": topic.topic_id,
            **error_values(None),
            "topic_config_error_code": ErrorCode.topic_authorization_failed.value,
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": [],
        }
    described = describe_topic(topic.configs, context.services.options)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        **error_values(None),
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": [
            {
                "name": option.name,
                "value": option.value,
                "read_only": option.read_only,
                "config_source": option.source,
                "is_sensitive": option.sensitive,
            }
            for option in described
        ],
    }
