"""Requests about quotas of users, client ids and addresses. A part of `AsyncAdmin`.

entity = QuotaEntity(user="alice")                    # QuotaEntity(client_id=DEFAULT), ...
await admin.alter_client_quotas({entity: {"producer_byte_rate": 1_000_000}})
await admin.describe_client_quotas(user="alice")
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_part import AdminPart
from moldau.client.broker_errors import error_for, find_error
from moldau.errors import KafkaError
from moldau.quotas import (
    CLIENT_ID,
    DEFAULT,
    IP,
    USER,
    Default,
    EntityName,
    Match,
    QuotaEntity,
)
from moldau.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
    from kio.schema.alter_client_quotas.v1.response import EntityData as AlteredEntity
    from kio.schema.describe_client_quotas.v1.response import (
        DescribeClientQuotasResponse,
        EntityData,
    )


class AnyName(Enum):
    """In the place of a name to look for: any, the default included."""

    ANY = "any"


ANY: Final = AnyName.ANY

WantedName: TypeAlias = EntityName | AnyName


class QuotaAdmin(AdminPart):
    """What `AsyncAdmin` does with quotas."""

    async def describe_client_quotas(
        self,
        *,
        user: WantedName | None = None,
        client_id: WantedName | None = None,
        ip: WantedName | None = None,
        strict: bool = False,
    ) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """The quotas of all entities with these names; `strict` leaves out those that have others
        besides. Without a name all there are."""
        wanted = {USER: user, CLIENT_ID: client_id, IP: ip}
        components = [_condition(kind, name) for kind, name in wanted.items() if name is not None]
        values = {"components": components, "strict": strict}
        connection = await self._client.pool.to_any()
        answer = await connection.call(DESCRIBE_CLIENT_QUOTAS, values)
        described = cast("DescribeClientQuotasResponse", answer)
        if described.error_code is not ErrorCode.none:
            raise error_for(described.error_code, described.error_message, "quotas")
        return {
            _entity_of(entry.entity): {one.key: one.value for one in entry.values}
            for entry in described.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        """Set quotas of entities, and remove those that are set to None; others stay."""
        values = {
            "entries": [
                {
                    "entity": [
                        {"entity_type": kind, "entity_name": _told(name)}
                        for kind, name in entity.parts.items()
                    ],
                    "ops": [
                        {"key": key, "value": float(limit or 0), "remove": limit is None}
                        for key, limit in limits.items()
                    ],
                }
                for entity, limits in changes.items()
            ],
            "validate_only": validate_only,
        }
        connection = await self._client.pool.to_any()
        answer = await connection.call(ALTER_CLIENT_QUOTAS, values)
        altered = cast("AlterClientQuotasResponse", answer)
        return {
            entity: find_error(row.error_code, row.error_message, str(entity))
            for row in altered.entries
            for entity in (_entity_of(row.entity),)
        }


def _condition(kind: str, name: WantedName) -> dict[str, object]:
    if isinstance(name, AnyName):
        return {"entity_type": kind, "match_type": Match.ANY.value, "match": None}
    if isinstance(name, Default):
        return {"entity_type": kind, "match_type": Match.DEFAULT.value, "match": None}
    return {"entity_type": kind, "match_type": Match.EXACT.value, "match": name}


def _told(name: EntityName) -> str | None:
    return None if isinstance(name, Default) else name


def _entity_of(parts: tuple[EntityData, ...] | tuple[AlteredEntity, ...]) -> QuotaEntity:
    named: dict[str, EntityName] = {
        one.entity_type: DEFAULT if one.entity_name is None else one.entity_name for one in parts
    }
    return QuotaEntity(named.get(USER), named.get(CLIENT_ID), named.get(IP))
