"""InitProducerId, versions 0 to 5.

Gives an idempotent producer its id. Ids come from blocks of 1,000 that the cluster hands out, so
that no two brokers ever give the same one.

v1 sends the throttle time after the answer; v2 is flexible; v3 lets a producer bump its epoch; v4
PRODUCER_FENCED; v5 supports transactions of KIP-890.

Transactions are not served yet: a transactional id is refused with a code on which clients end, as
in `find_coordinator`, which they ask before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode
from moldau.wire.apis import INIT_PRODUCER_ID

if TYPE_CHECKING:
    from kio.schema.init_producer_id.v5 import InitProducerIdRequest

API = serves(INIT_PRODUCER_ID)

_FIRST_EPOCH = 0


async def handle(request: InitProducerIdRequest, context: RequestContext) -> dict[str, object]:
    if request.transactional_id is not None:
        code = ErrorCode.transactional_id_authorization_failed
        return {"throttle_time": 0, "error_code": code, "producer_epoch": -1}
    # A producer without transactions that asks again simply gets a new identity, as in Kafka:
    # an epoch bump would need state that outlives the broker.
    producer_id = await context.services.producer_ids.next_producer_id()
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.none,
        "producer_id": producer_id,
        "producer_epoch": _FIRST_EPOCH,
    }
