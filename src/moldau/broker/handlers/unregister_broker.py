"""UnregisterBroker, version 0.

A broker that was registered once is expected back while it is away, as in Kafka: new topics may get
replicas on it where too few brokers are alive. This ends that, for a broker that was removed.
Replicas that are assigned to it stay so until they are reassigned.

Unlike in Kafka a living broker is refused: its registration is a node that lasts as long as its
session.
"""

from __future__ import annotations

from kio.schema.unregister_broker.v0 import UnregisterBrokerRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import audit_change, find_refusal
from moldau.errors import KafkaError
from moldau.model import AclOperation, BrokerId
from moldau.wire.apis import UNREGISTER_BROKER

API = serves(UNREGISTER_BROKER, needs=AclOperation.ALTER, changes_cluster=True)


async def handle(request: UnregisterBrokerRequest, context: RequestContext) -> Values:
    broker_id = BrokerId(request.broker_id)
    error: KafkaError | None = find_refusal(context, API)
    if error is None:
        try:
            await context.services.admin.unregister_broker(broker_id)
        except KafkaError as refused:
            error = refused
    audit_change(context, f"Broker:{broker_id}", error)
    return error_values(error)
