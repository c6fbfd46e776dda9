"""FindCoordinator, versions 0 to 6: which broker looks after a group or a transactional id.

The coordinator is the leader of its partition of `__consumer_offsets` or `__transaction_state`. The
first question makes the topic, and is answered when it is there.

v1 key type and error message; v2 throttle after the answer; v3 flexible; v4 several keys at once;
v5 TRANSACTION_ABORTABLE; v6 share groups.

Differences from Kafka: where Kafka answers COORDINATOR_NOT_AVAILABLE while it makes the topic, and
lets the client ask again, this waits. Share groups are not served yet: their keys are refused with
a code on which clients end, and with a message, here and in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.authorization import may_group, may_transactional_id
from moldau.broker.request_context import RequestContext
from moldau.broker.topic_metadata import reachable_endpoints
from moldau.errors import ErrorCode, KafkaError
from moldau.model.acls import AclOperation
from moldau.shards.state_topic import StateTopic
from moldau.wire.apis import FIND_COORDINATOR

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v6 import FindCoordinatorRequest

API = serves(
    FIND_COORDINATOR,
    droppable=("throttle_time", "error_message"),
)

_log = logging.getLogger(__name__)

_GROUP = 0
_TRANSACTION = 1
_NAMES = {2: "share groups"}
_FIRST_WITH_SEVERAL_KEYS = 4


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> dict[str, object]:
    key_type = getattr(request, "key_type", _GROUP)
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        keys = (request.key,)  # type: ignore[attr-defined]
    if key_type in (_GROUP, _TRANSACTION):
        services = context.services
        topic = services.groups.topic if key_type == _GROUP else services.transactions.topic
        denied = {key: denial for key in keys if (denial := _find_denial(key, key_type, context))}
        failure = None if len(denied) == len(set(keys)) else await _make_topic(topic)
        found = [denied.get(key) or failure or _find(key, topic, context) for key in keys]
    else:
        what = _NAMES.get(key_type, f"coordinators of type {key_type}")
        message = f"{what} are not served by this version of Moldau"
        _log.warning("client %r is refused: %s", context.header.client_id, message)
        found = [_refuse(ErrorCode.invalid_request, message) for _ in keys]
    if context.version < _FIRST_WITH_SEVERAL_KEYS:
        return {"throttle_time": 0, **found[0]}
    return {
        "throttle_time": 0,
        "coordinators": [{"key": key, **one} for key, one in zip(keys, found, strict=True)],
    }


def _find_denial(key: str, key_type: int, context: RequestContext) -> dict[str, object] | None:
    """What a client is told that may not know of the group or the transactional id."""
    if key_type == _GROUP:
        if may_group(context, AclOperation.DESCRIBE, key):
            return None
        code = ErrorCode.group_authorization_failed
    elif may_transactional_id(context, AclOperation.DESCRIBE, key):
        return None
    else:
        code = ErrorCode.transactional_id_authorization_failed
    return _refuse(code, f"{context.principal} may not describe {key!r}")


async def _make_topic(topic: StateTopic) -> dict[str, object] | None:
    try:
        await topic.ensure()
    except KafkaError as error:
        return _refuse(error.code, str(error))
    return None


def _find(key: str, topic: StateTopic, context: RequestContext) -> dict[str, object]:
    services = context.services
    state = topic.find_state(key)
    endpoints = reachable_endpoints(services.image, context.connection.listener_name)
    endpoint = None if state is None else endpoints.get(state.leader)
    if state is None or endpoint is None:
        message = f"nobody coordinates {key!r} at the moment"
        return _refuse(ErrorCode.coordinator_not_available, message)
    return {
        "node_id": state.leader,
        "host": endpoint.host,
        "port": endpoint.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def _refuse(error: ErrorCode, message: str) -> dict[str, object]:
    return {"node_id": -1, "host": "", "port": -1, "error_code": error, "error_message": message}
