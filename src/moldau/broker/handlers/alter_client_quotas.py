"""AlterClientQuotas, versions 0 and 1 (KIP-546).

Sets and removes quotas of users, client ids, client ids of users, and addresses. Every entity of a
request succeeds or fails on its own; one that stands in it twice fails. Any broker takes it.

v1 is flexible.

Differences from Kafka: an address is given as a number, not as a name that would be looked up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kio.schema.alter_client_quotas.v1 import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntityData, EntryData, OpData

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import audit_change, authorize
from moldau.errors import InvalidRequestError, KafkaError
from moldau.model import AclOperation
from moldau.quotas import QuotaEntity, require_entity, require_kind, require_limit
from moldau.wire.apis import ALTER_CLIENT_QUOTAS

API = serves(ALTER_CLIENT_QUOTAS, needs=AclOperation.ALTER_CONFIGS, changes_cluster=True)


async def handle(request: AlterClientQuotasRequest, context: RequestContext) -> Values:
    times = Counter(frozenset(_parts(entry.entity)) for entry in request.entries)
    entries = []
    for entry in request.entries:
        error: KafkaError | None = None
        try:
            authorize(context, API)
            if times[frozenset(_parts(entry.entity))] > 1:
                raise InvalidRequestError("the entity stands in the request twice")
            await _alter(entry, request.validate_only, context)
        except KafkaError as refused:
            error = refused
        if not request.validate_only:
            parts = ",".join(f"{kind}={name}" for kind, name in _parts(entry.entity))
            audit_change(context, f"ClientQuota:{parts}", error)
        entries.append(
            {
                **error_values(error),
                "entity": [
                    {"entity_type": kind, "entity_name": name}
                    for kind, name in _parts(entry.entity)
                ],
            }
        )
    return {"entries": entries}


async def _alter(entry: EntryData, validate_only: bool, context: RequestContext) -> None:
    entity = require_entity(_parts(entry.entity))
    changes = _changes(entity, entry.ops)
    if changes and not validate_only:
        await context.services.admin.alter_quotas(entity, changes)


def _parts(entity: Iterable[EntityData]) -> list[tuple[str, str | None]]:
    return [(one.entity_type, one.entity_name) for one in entity]


def _changes(entity: QuotaEntity, operations: Iterable[OpData]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for operation in operations:
        name = operation.key
        if name in changes:
            raise InvalidRequestError(f"{name} stands in the request twice")
        if operation.remove:
            require_kind(entity, name)
            changes[name] = None
        else:
            changes[name] = require_limit(entity, name, operation.value)
    return changes
