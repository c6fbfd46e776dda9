"""FindCoordinator, versions 0 to 6: which broker looks after a group, a transactional id or a share
partition.

The coordinator is the leader of its partition of `__consumer_offsets`, `__transaction_state` or
`__share_group_state`. The first question makes the topic, and waits for it, but not for longer than
a moment: COORDINATOR_NOT_AVAILABLE then, and the client asks again.

v1 key type and error message; v2 throttle after the answer; v3 flexible; v4 several keys at once;
v5 TRANSACTION_ABORTABLE; v6 share groups.

Differences from Kafka: Kafka does not wait at all for the topic that it makes.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from kio.schema.find_coordinator.v6 import FindCoordinatorRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import require_cluster, require_group, require_transactional_id
from moldau.broker.topic_metadata import reachable_endpoints
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation, parse_uuid
from moldau.wire.apis import FIND_COORDINATOR

API = serves(FIND_COORDINATOR, droppable=("error_message",))

_log = logging.getLogger("moldau.broker.requests")

_GROUP = 0
_SHARE = 2
_SHARE_KEY_PARTS = 3
"""group:topic id:partition; a group may have colons in its name."""
_FIRST_WITH_SEVERAL_KEYS = 4


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> Values:
    key_type = getattr(request, "key_type", _GROUP)
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        keys = (request.key,)  # type: ignore[attr-defined]
    topic = _topic_of(key_type, context)
    if topic is not None:
        refused = {
            key: refusal
            for key in keys
            if (refusal := _find_denial(key, key_type, context) or _find_fault(key, key_type))
        }
        failure = None if len(refused) == len(set(keys)) else await _make_topic(topic)
        found = [refused.get(key) or failure or _find(key, topic, context) for key in keys]
    else:
        message = f"coordinators of type {key_type} are not served by this version of Moldau"
        _log.warning("client %r is refused: %s", context.header.client_id, message)
        found = [_refuse(ErrorCode.invalid_request, message) for _ in keys]
    if context.version < _FIRST_WITH_SEVERAL_KEYS:
        return {**found[0]}
    return {"coordinators": [{"key": key, **one} for key, one in zip(keys, found, strict=True)]}


def _find_denial(key: str, key_type: int, context: RequestContext) -> Values | None:
    """What a client is told that may not know of the group or the transactional id; share
    partitions are for brokers."""
    try:
        if key_type == _SHARE:
            require_cluster(context, AclOperation.CLUSTER_ACTION)
        elif key_type == _GROUP:
            require_group(context, AclOperation.DESCRIBE, key)
        else:
            require_transactional_id(context, AclOperation.DESCRIBE, key)
    except KafkaError as denied:
        return _refuse(denied.code, str(denied))
    return None


def _topic_of(key_type: int, context: RequestContext) -> InternalTopic | None:
    services = context.services
    match key_type:
        case 0:
            return services.groups.topic
        case 1:
            return services.transactions.topic
        case 2:
            return services.share_coordinator.topic
        case _:
            return None


def _find_fault(key: str, key_type: int) -> Values | None:
    """Kafka's check of the keys of share partitions."""
    if key_type != _SHARE:
        return None
    group_id, *rest = key.rsplit(":", _SHARE_KEY_PARTS - 1)
    if group_id and len(rest) == _SHARE_KEY_PARTS - 1 and rest[1].isdecimal():
        with suppress(ValueError):
            parse_uuid(rest[0])
            return None
    message = f"{key!r} is not group:topic id:partition"
    return _refuse(ErrorCode.invalid_request, message)


async def _make_topic(topic: InternalTopic) -> Values | None:
    try:
        await topic.ensure()
    except KafkaError as error:
        return _refuse(error.code, str(error))
    return None


def _find(key: str, topic: InternalTopic, context: RequestContext) -> Values:
    services = context.services
    state = topic.find_state(key)
    endpoints = reachable_endpoints(services.image.brokers, context.connection.listener_name)
    endpoint = None if state is None else endpoints.get(state.leader)
    if state is None or endpoint is None:
        message = f"nobody coordinates {key!r} at the moment"
        return _refuse(ErrorCode.coordinator_not_available, message)
    return {
        "node_id": state.leader,
        "host": endpoint.host,
        "port": endpoint.port,
        **error_values(None),
    }


def _refuse(error: ErrorCode, message: str) -> Values:
    return {"node_id": -1, "host": "", "port": -1, "error_code": error, "error_message": message}
