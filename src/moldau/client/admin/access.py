"""Requests about access control lists, users, tokens and quotas. Parts of `AsyncAdmin`.

    entity = QuotaEntity(user="alice")                    # QuotaEntity(client_id=DEFAULT), ...
    await admin.alter_client_quotas({entity: {"producer_byte_rate": 1_000_000}})
    await admin.describe_client_quotas(user="alice")

    await admin.set_scram_password("alice", password)
    await admin.describe_scram_credentials()    # {"alice": (ScramCredentialInfo(...), ...)}

    token = await admin.create_delegation_token(renewers=[Principal.parse("User:scheduler")])
    login = {"sasl.username": token.token_id, "sasl.password": token.password}
    producer = moldau.Producer(…, **login)

Any broker answers. Bindings and filters of access control lists are those of `moldau.model`.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin import AdminPart
from moldau.client.rules.arguments import require_names
from moldau.client.rules.broker_errors import error_for, find_error
from moldau.errors import ConfigurationError, KafkaError, ResourceNotFoundError
from moldau.model import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    Principal,
    ResourcePattern,
)
from moldau.quotas import CLIENT_ID, DEFAULT, IP, USER, Default, EntityName, Match, QuotaEntity
from moldau.security.rules.scram import SALT_BYTES, USUAL_ITERATIONS, salt_password
from moldau.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
    from kio.schema.alter_client_quotas.v1.response import EntityData as AlteredEntity
    from kio.schema.alter_user_scram_credentials.v0 import AlterUserScramCredentialsResponse
    from kio.schema.create_acls.v3.response import CreateAclsResponse
    from kio.schema.create_delegation_token.v3 import CreateDelegationTokenResponse
    from kio.schema.delete_acls.v3.response import DeleteAclsMatchingAcl, DeleteAclsResponse
    from kio.schema.describe_acls.v3.response import DescribeAclsResource, DescribeAclsResponse
    from kio.schema.describe_client_quotas.v1.response import (
        DescribeClientQuotasResponse,
        EntityData,
    )
    from kio.schema.describe_cluster.v2 import DescribeClusterResponse
    from kio.schema.describe_delegation_token.v3 import DescribeDelegationTokenResponse
    from kio.schema.describe_delegation_token.v3.response import DescribedDelegationToken
    from kio.schema.describe_user_scram_credentials.v0 import DescribeUserScramCredentialsResponse
    from kio.schema.expire_delegation_token.v2 import ExpireDelegationTokenResponse
    from kio.schema.renew_delegation_token.v2 import RenewDelegationTokenResponse


EVERYTHING: Final = AclFilter()
_BROKERS = 1  # whom a description of the cluster names
_LISTS = "the access control lists"


class AclAdmin(AdminPart):
    """What `AsyncAdmin` does with access control lists."""

    async def describe_acls(self, wanted: AclFilter = EVERYTHING) -> tuple[AclBinding, ...]:
        """The bindings that a filter means; all of them without one."""
        connection = await self._client.pool.to_any()
        answer = await connection.call(DESCRIBE_ACLS, _filter_values(wanted))
        found = cast("DescribeAclsResponse", answer)
        if found.error_code is not ErrorCode.none:
            raise error_for(found.error_code, found.error_message, _LISTS)
        return tuple(binding for row in found.resources for binding in _read_resource(row))

    async def find_cluster_operations(self) -> frozenset[AclOperation]:
        """What this client may do with the cluster as a whole, users and quotas included."""
        values = {
            "include_cluster_authorized_operations": True,
            "endpoint_type": _BROKERS,
            "include_fenced_brokers": False,
        }
        droppable = frozenset({"endpoint_type", "include_fenced_brokers"})
        connection = await self._client.pool.to_any()
        answer = await connection.call(DESCRIBE_CLUSTER, values, droppable)
        found = cast("DescribeClusterResponse", answer)
        if found.error_code is not ErrorCode.none:
            raise error_for(found.error_code, found.error_message, "the cluster")
        bits = max(0, found.cluster_authorized_operations)
        return frozenset(one for one in AclOperation if bits >> one.value & 1)

    async def create_acls(
        self, bindings: Sequence[AclBinding]
    ) -> Mapping[AclBinding, KafkaError | None]:
        """Add bindings; one that is there already stays."""
        connection = await self._client.pool.to_any()
        values = {"creations": [_binding_values(binding) for binding in bindings]}
        answer = await connection.call(CREATE_ACLS, values)
        results = cast("CreateAclsResponse", answer).results
        return {
            binding: find_error(row.error_code, row.error_message, str(binding))
            for binding, row in zip(bindings, results, strict=True)
        }

    async def delete_acls(
        self, filters: Sequence[AclFilter]
    ) -> Mapping[AclFilter, tuple[AclBinding, ...] | KafkaError]:
        """Take out the bindings that filters mean; each filter with those that it found."""
        connection = await self._client.pool.to_any()
        values = {"filters": [_filter_values(wanted) for wanted in filters]}
        answer = await connection.call(DELETE_ACLS, values)
        deleted: dict[AclFilter, tuple[AclBinding, ...] | KafkaError] = {}
        rows = cast("DeleteAclsResponse", answer).filter_results
        for wanted, row in zip(filters, rows, strict=True):
            error = find_error(row.error_code, row.error_message, _LISTS)
            for one in row.matching_acls:
                failed = find_error(one.error_code, one.error_message, str(_read_matching(one)))
                error = error or failed
            found = tuple(map(_read_matching, row.matching_acls))
            deleted[wanted] = found if error is None else error
        return deleted


def _filter_values(wanted: AclFilter) -> dict[str, object]:
    return {
        "resource_type_filter": wanted.resource_type.value,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type.value,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation.value,
        "permission_type": wanted.permission.value,
    }


def _binding_values(binding: AclBinding) -> dict[str, object]:
    (resource_type, name, pattern_type), (principal, permission, operation, host) = binding
    return {
        "resource_type": resource_type.value,
        "resource_name": name,
        "resource_pattern_type": pattern_type.value,
        "principal": principal,
        "host": host,
        "operation": operation.value,
        "permission_type": permission.value,
    }


def _read_resource(row: DescribeAclsResource) -> list[AclBinding]:
    pattern = ResourcePattern(
        AclResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)
    )
    return [
        AclBinding(
            pattern,
            AclEntry(
                one.principal,
                AclPermission(one.permission_type),
                AclOperation(one.operation),
                one.host,
            ),
        )
        for one in row.acls
    ]


def _read_matching(row: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            AclResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)
        ),
        AclEntry(
            row.principal,
            AclPermission(row.permission_type),
            AclOperation(row.operation),
            row.host,
        ),
    )


# Users and their passwords (SCRAM)


_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SCRAM_MECHANISMS: Final = tuple(_NUMBERS)
_MECHANISMS: Final = {number: name for name, number in _NUMBERS.items()}


class ScramCredentialInfo(NamedTuple):
    """How a user may log in; nobody is told the credential itself."""

    mechanism: str
    iterations: int


class UserAdmin(AdminPart):
    """What `AsyncAdmin` does with users that the cluster keeps. Those who stand in the brokers'
    settings (`sasl.jaas.config`) are told to nobody."""

    async def describe_scram_credentials(
        self, users: Collection[str] | None = None
    ) -> Mapping[str, tuple[ScramCredentialInfo, ...]]:
        """Of these users, or of all; raises for one who has none."""
        named = None if users is None else [{"name": name} for name in require_names(users)]
        if named == []:
            return {}
        answer = cast(
            "DescribeUserScramCredentialsResponse",
            await self._client.call_controller(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": named}),
        )
        if answer.error_code is not ErrorCode.none:
            raise error_for(answer.error_code, answer.error_message, "users")
        for row in answer.results:
            if row.error_code is not ErrorCode.none:
                raise error_for(row.error_code, row.error_message, f"user {row.user}")
        return {
            row.user: tuple(
                ScramCredentialInfo(
                    _MECHANISMS.get(one.mechanism, str(one.mechanism)), one.iterations
                )
                for one in row.credential_infos
            )
            for row in answer.results
        }

    async def set_scram_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Collection[str] = SCRAM_MECHANISMS,
        iterations: int = USUAL_ITERATIONS,
    ) -> str | None:
        """Give a user a password, or another one. It does not leave this process: brokers get what
        follows from it. Returns why it has no effect yet, if a broker says so."""
        if not password:
            raise ConfigurationError("the password is empty")
        for mechanism in mechanisms:
            if mechanism not in _NUMBERS:
                raise ConfigurationError(f"{mechanism!r} is not one of {', '.join(_NUMBERS)}")
        rows = [
            await asyncio.to_thread(_upsertion, user, password, mechanism, iterations)
            for mechanism in mechanisms
        ]
        return await self._alter_user({"deletions": [], "upsertions": rows})

    async def delete_scram_credentials(self, user: str) -> None:
        """Take a user's password away. Who is connected stays so until the connection ends."""
        try:
            found = await self.describe_scram_credentials((user,))
        except ResourceNotFoundError:
            raise ResourceNotFoundError(f"the cluster keeps no user {user!r}") from None
        rows = [
            {"name": user, "mechanism": _NUMBERS[one.mechanism]}
            for one in found.get(user, ())
            if one.mechanism in _NUMBERS
        ]
        await self._alter_user({"deletions": rows, "upsertions": []})

    async def _alter_user(self, values: Mapping[str, object]) -> str | None:
        answer = cast(
            "AlterUserScramCredentialsResponse",
            await self._client.call_controller(ALTER_USER_SCRAM_CREDENTIALS, values),
        )
        for row in answer.results:
            if row.error_code is not ErrorCode.none:
                raise error_for(row.error_code, row.error_message, f"user {row.user}")
        return next((row.error_message for row in answer.results if row.error_message), None)


def _upsertion(user: str, password: str, mechanism: str, iterations: int) -> dict[str, object]:
    """Takes milliseconds on purpose."""
    salt = os.urandom(SALT_BYTES)
    return {
        "name": user,
        "mechanism": _NUMBERS[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": salt_password(mechanism, password, salt, iterations),
    }


# Delegation tokens


USUAL_PERIOD: Final = -1
"""As long as the brokers' settings say."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SUBJECT: Final = "delegation tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenDescription:
    """A token: whoever has its id and its password is its owner, until it expires."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int  # no renewal goes beyond
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """For SCRAM, with the token's id as the user."""
        return b64encode(self.hmac).decode()


class TokenAdmin(AdminPart):
    """What `AsyncAdmin` does with delegation tokens."""

    async def create_delegation_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Collection[Principal] = (),
        max_lifetime_ms: int = USUAL_PERIOD,
    ) -> DelegationTokenDescription:
        """For oneself, or for another user, which needs CreateTokens of that user."""
        values = {
            "owner_principal_type": None if owner is None else owner.kind,
            "owner_principal_name": None if owner is None else owner.name,
            "renewers": _read_principal(renewers),
            "max_lifetime": timedelta(milliseconds=max_lifetime_ms),
        }
        droppable = ("owner_principal_type", "owner_principal_name") if owner is None else ()
        connection = await self._client.pool.to_any()
        answer = cast(
            "CreateDelegationTokenResponse",
            await connection.call(CREATE_DELEGATION_TOKEN, values, frozenset(droppable)),
        )
        _require_token(answer.error_code)
        made_for = Principal(answer.principal_type, answer.principal_name)
        return DelegationTokenDescription(
            token_id=answer.token_id,
            owner=made_for,
            requester=_read_requester(answer, made_for),
            renewers=tuple(renewers),
            issue_ms=_milliseconds(answer.issue_timestamp),
            expiry_ms=_milliseconds(answer.expiry_timestamp),
            max_ms=_milliseconds(answer.max_timestamp),
            hmac=answer.hmac,
        )

    async def describe_delegation_tokens(
        self, owners: Collection[Principal] | None = None
    ) -> tuple[DelegationTokenDescription, ...]:
        """All tokens that one may see, or those of these owners."""
        values = {"owners": None if owners is None else _read_principal(owners)}
        connection = await self._client.pool.to_any()
        answer = cast(
            "DescribeDelegationTokenResponse",
            await connection.call(DESCRIBE_DELEGATION_TOKEN, values),
        )
        _require_token(answer.error_code)
        return tuple(map(_read_token, answer.tokens))

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = USUAL_PERIOD) -> int:
        """When it expires now, in milliseconds since 1970."""
        values = {"hmac": hmac, "renew_period": timedelta(milliseconds=period_ms)}
        connection = await self._client.pool.to_any()
        answer = cast(
            "RenewDelegationTokenResponse", await connection.call(RENEW_DELEGATION_TOKEN, values)
        )
        _require_token(answer.error_code)
        return _milliseconds(answer.expiry_timestamp)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """When it expires now, in milliseconds since 1970; at once without a period."""
        values = {"hmac": hmac, "expiry_time_period": timedelta(milliseconds=period_ms)}
        connection = await self._client.pool.to_any()
        answer = cast(
            "ExpireDelegationTokenResponse", await connection.call(EXPIRE_DELEGATION_TOKEN, values)
        )
        _require_token(answer.error_code)
        return _milliseconds(answer.expiry_timestamp)


def _require_token(code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise error_for(code, None, _SUBJECT)


def _read_principal(principals: Iterable[Principal]) -> list[dict[str, str]]:
    return [{"principal_type": one.kind, "principal_name": one.name} for one in principals]


def _read_token(row: DescribedDelegationToken) -> DelegationTokenDescription:
    owner = Principal(row.principal_type, row.principal_name)
    return DelegationTokenDescription(
        token_id=row.token_id,
        owner=owner,
        requester=_read_requester(row, owner),
        renewers=tuple(Principal(one.principal_type, one.principal_name) for one in row.renewers),
        issue_ms=row.issue_timestamp,
        expiry_ms=row.expiry_timestamp,
        max_ms=row.max_timestamp,
        hmac=row.hmac,
    )


def _read_requester(
    row: CreateDelegationTokenResponse | DescribedDelegationToken, owner: Principal
) -> Principal:
    """Before version 3 it is the owner."""
    kind = getattr(row, "token_requester_principal_type", None)
    name = getattr(row, "token_requester_principal_name", None)
    return owner if kind is None or name is None else Principal(kind, name)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


# Quotas of users, client ids and addresses


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
        components = [
            _condition_values(kind, name) for kind, name in wanted.items() if name is not None
        ]
        values = {"components": components, "strict": strict}
        connection = await self._client.pool.to_any()
        answer = await connection.call(DESCRIBE_CLIENT_QUOTAS, values)
        described = cast("DescribeClientQuotasResponse", answer)
        if described.error_code is not ErrorCode.none:
            raise error_for(described.error_code, described.error_message, "quotas")
        return {
            _read_entity(entry.entity): {one.key: one.value for one in entry.values}
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
                        {"entity_type": kind, "entity_name": _read_quotas(name)}
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
            for entity in (_read_entity(row.entity),)
        }


def _condition_values(kind: str, name: WantedName) -> dict[str, object]:
    if isinstance(name, AnyName):
        return {"entity_type": kind, "match_type": Match.ANY.value, "match": None}
    if isinstance(name, Default):
        return {"entity_type": kind, "match_type": Match.DEFAULT.value, "match": None}
    return {"entity_type": kind, "match_type": Match.EXACT.value, "match": name}


def _read_quotas(name: EntityName) -> str | None:
    return None if isinstance(name, Default) else name


def _read_entity(parts: tuple[EntityData, ...] | tuple[AlteredEntity, ...]) -> QuotaEntity:
    named: dict[str, EntityName] = {
        one.entity_type: DEFAULT if one.entity_name is None else one.entity_name for one in parts
    }
    return QuotaEntity(named.get(USER), named.get(CLIENT_ID), named.get(IP))
