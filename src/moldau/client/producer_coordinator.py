"""Asks the cluster who a producer is. A shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.rules.producer_batches import ProducerIdentity
from moldau.errors import UnsupportedByBrokerError
from moldau.model.protocol_numbers import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from moldau.wire.apis import INIT_PRODUCER_ID

if TYPE_CHECKING:
    from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

_DROPPABLE = frozenset({"producer_id", "producer_epoch"})
_AS_LONG_AS_IT_TAKES = float("inf")


async def ask_identity(client: ClusterClient) -> ProducerIdentity:
    """A producer id (InitProducerId), for as long as it takes.

    Raises only what does not pass by itself: no permission, a broker that is too old.
    """

    async def ask() -> ProducerIdentity:
        return await _ask_identity_once(client)

    return await client.retry(ask, timeout_seconds=_AS_LONG_AS_IT_TAKES, wait_for_cluster=True)


async def _ask_identity_once(client: ClusterClient) -> ProducerIdentity:
    connection = await client.pool.to_any()
    values = {
        "transactional_id": None,
        "transaction_timeout": 0,
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_PRODUCER_EPOCH,
    }
    try:
        answer = await connection.call(INIT_PRODUCER_ID, values, _DROPPABLE)
    except UnsupportedByBrokerError as error:
        raise UnsupportedByBrokerError(
            f"{error}; a producer without idempotence (enable_idempotence=False) needs none"
        ) from None
    given = cast("InitProducerIdResponse", answer)
    if given.error_code is not ErrorCode.none:
        raise error_for(given.error_code, None, "producer id")
    return ProducerIdentity(given.producer_id, given.producer_epoch)
