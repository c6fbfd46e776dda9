"""FindCoordinator, versions 0 to 6: which broker looks after a group.

A group's coordinator is the leader of its partition of `__consumer_offsets`. The first question
makes the topic, and is answered when it is there.

v1 key type and error message; v2 throttle after the answer; v3 flexible; v4 several keys at once;
v5 TRANSACTION_ABORTABLE; v6 share groups.

Differences from Kafka: where Kafka answers COORDINATOR_NOT_AVAILABLE while it makes the topic, and
lets the client ask again, this waits. Neither transactions nor share groups are served yet. Their
keys are refused with codes on which clients end, and with a message, here and in the log: for
transactions with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, since librdkafka asks again for minutes
after almost any other one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.request_context import RequestContext
from moldau.broker.topic_metadata import reachable_endpoints
from moldau.errors import ErrorCode, KafkaError
from moldau.wire.apis import FIND_COORDINATOR

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v6 import FindCoordinatorRequest

API = serves(
    FIND_COORDINATOR,
    droppable=("throttle_time", "error_message"),
)

_log = logging.getLogger(__name__)

_GROUP = 0
_NOT_SERVED = {
    1: ("transactions", ErrorCode.transactional_id_authorization_failed),
    2: ("share groups", ErrorCode.invalid_request),
}
_FIRST_WITH_SEVERAL_KEYS = 4


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> dict[str, object]:
    key_type = getattr(request, "key_type", _GROUP)
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        keys = (request.key,)  # type: ignore[attr-defined]
    if key_type != _GROUP:
        unknown = (f"coordinators of type {key_type}", ErrorCode.invalid_request)
        what, code = _NOT_SERVED.get(key_type, unknown)
        message = f"{what} are not served by this version of Moldau"
        _log.warning("client %r is refused: %s", context.header.client_id, message)
        found = [_refuse(code, message) for _ in keys]
    else:
        failure = await _make_topic(context)
        found = [failure or _find(key, context) for key in keys]
    if context.version < _FIRST_WITH_SEVERAL_KEYS:
        return {"throttle_time": 0, **found[0]}
    return {
        "throttle_time": 0,
        "coordinators": [{"key": key, **one} for key, one in zip(keys, found, strict=True)],
    }


async def _make_topic(context: RequestContext) -> dict[str, object] | None:
    try:
        await context.services.groups.topic.ensure()
    except KafkaError as error:
        return _refuse(error.code, str(error))
    return None


def _find(group_id: str, context: RequestContext) -> dict[str, object]:
    services = context.services
    state = services.groups.topic.find_state(group_id)
    endpoints = reachable_endpoints(services.image, context.connection.listener_name)
    endpoint = None if state is None else endpoints.get(state.leader)
    if state is None or endpoint is None:
        message = f"nobody coordinates group {group_id!r} at the moment"
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
