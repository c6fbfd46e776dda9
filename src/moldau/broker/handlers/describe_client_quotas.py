"""DescribeClientQuotas, versions 0 and 1 (KIP-546).

The quotas of the entities that a filter matches; `quotas` says which.

v1 is flexible.
"""

from __future__ import annotations

from kio.schema.describe_client_quotas.v1 import DescribeClientQuotasRequest

from moldau.broker.api import (
    RequestContext,
    Slices,
    Values,
    answered_class,
    encode_array,
    error_values,
    serves,
)
from moldau.broker.authorization import authorize
from moldau.errors import KafkaError
from moldau.model import AclOperation
from moldau.quotas import Default, NameCondition, QuotaEntity, find_matching
from moldau.wire.apis import DESCRIBE_CLIENT_QUOTAS

API = serves(DESCRIBE_CLIENT_QUOTAS, needs=AclOperation.DESCRIBE_CONFIGS)

_ENTITIES_AT_ONCE = 500


async def handle(request: DescribeClientQuotasRequest, context: RequestContext) -> Values:
    conditions = [
        NameCondition(one.entity_type, one.match_type, one.match) for one in request.components
    ]
    try:
        authorize(context, API)
        found = find_matching(context.services.image.quotas, conditions, strict=request.strict)
    except KafkaError as error:
        return {**error_values(error), "entries": None}
    rows = (
        {
            "entity": entity_values(entity),
            "values": [{"key": name, "value": limit} for name, limit in limits.items()],
        }
        for entity, limits in found.items()
    )
    entry_class = answered_class(API, context.version, "entries")
    return {
        **error_values(None),
        "entries": await encode_array(entry_class, rows, API, Slices(_ENTITIES_AT_ONCE)),
    }


def entity_values(entity: QuotaEntity) -> list[Values]:
    """An entity in the words of the protocol."""
    return [
        {"entity_type": kind, "entity_name": None if isinstance(name, Default) else name}
        for kind, name in entity.parts.items()
    ]
