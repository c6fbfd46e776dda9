"""UnregisterBroker, version 0.

Kafka's own quorum remembers brokers that are gone until somebody unregisters them. Here a broker's
registration is a node that goes with its session, so nothing is ever left to do: a living broker is
refused, since it would only come back, and one that is gone is not registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.authorization import find_cluster_refusal
from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode
from moldau.model import BrokerId
from moldau.model.acls import AclOperation
from moldau.wire.apis import UNREGISTER_BROKER

if TYPE_CHECKING:
    from kio.schema.unregister_broker.v0 import UnregisterBrokerRequest

API = serves(UNREGISTER_BROKER)


def handle(request: UnregisterBrokerRequest, context: RequestContext) -> dict[str, object]:
    broker_id = BrokerId(request.broker_id)
    denied = find_cluster_refusal(context, AclOperation.ALTER)
    if denied is not None:
        return {"throttle_time": 0, "error_code": denied.code, "error_message": str(denied)}
    if broker_id in context.services.image.brokers:
        code = ErrorCode.invalid_request
        message = f"broker {broker_id} is alive: stop it, and its registration ends by itself"
    else:
        code = ErrorCode.broker_id_not_registered
        message = (
            f"broker {broker_id} is not registered: a registration ends with the broker's session. "
            "Partitions that are assigned to it stay so until they are reassigned"
        )
    return {"throttle_time": 0, "error_code": code, "error_message": message}
