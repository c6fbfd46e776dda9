"""Requests about delegation tokens. A part of `AsyncAdmin`.

token = await admin.create_delegation_token(renewers=[Principal.parse("User:scheduler")])
producer = moldau.Producer(…, **{"sasl.username": token.token_id, "sasl.password": token.password})
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_part import AdminPart
from moldau.client.broker_errors import error_for
from moldau.model import Principal
from moldau.wire.apis import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

if TYPE_CHECKING:
    from kio.schema.create_delegation_token.v3 import CreateDelegationTokenResponse
    from kio.schema.describe_delegation_token.v3 import DescribeDelegationTokenResponse
    from kio.schema.describe_delegation_token.v3.response import DescribedDelegationToken
    from kio.schema.expire_delegation_token.v2 import ExpireDelegationTokenResponse
    from kio.schema.renew_delegation_token.v2 import RenewDelegationTokenResponse

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
            "renewers": _named(renewers),
            "max_lifetime": timedelta(milliseconds=max_lifetime_ms),
        }
        droppable = ("owner_principal_type", "owner_principal_name") if owner is None else ()
        connection = await self._client.pool.to_any()
        answer = cast(
            "CreateDelegationTokenResponse",
            await connection.call(CREATE_DELEGATION_TOKEN, values, frozenset(droppable)),
        )
        _check(answer.error_code)
        made_for = Principal(answer.principal_type, answer.principal_name)
        return DelegationTokenDescription(
            token_id=answer.token_id,
            owner=made_for,
            requester=_requester(answer, made_for),
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
        values = {"owners": None if owners is None else _named(owners)}
        connection = await self._client.pool.to_any()
        answer = cast(
            "DescribeDelegationTokenResponse",
            await connection.call(DESCRIBE_DELEGATION_TOKEN, values),
        )
        _check(answer.error_code)
        return tuple(map(_description, answer.tokens))

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = USUAL_PERIOD) -> int:
        """When it expires now, in milliseconds since 1970."""
        values = {"hmac": hmac, "renew_period": timedelta(milliseconds=period_ms)}
        connection = await self._client.pool.to_any()
        answer = cast(
            "RenewDelegationTokenResponse", await connection.call(RENEW_DELEGATION_TOKEN, values)
        )
        _check(answer.error_code)
        return _milliseconds(answer.expiry_timestamp)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """When it expires now, in milliseconds since 1970; at once without a period."""
        values = {"hmac": hmac, "expiry_time_period": timedelta(milliseconds=period_ms)}
        connection = await self._client.pool.to_any()
        answer = cast(
            "ExpireDelegationTokenResponse", await connection.call(EXPIRE_DELEGATION_TOKEN, values)
        )
        _check(answer.error_code)
        return _milliseconds(answer.expiry_timestamp)


def _check(code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise error_for(code, None, _SUBJECT)


def _named(principals: Iterable[Principal]) -> list[dict[str, str]]:
    return [{"principal_type": one.kind, "principal_name": one.name} for one in principals]


def _description(row: DescribedDelegationToken) -> DelegationTokenDescription:
    owner = Principal(row.principal_type, row.principal_name)
    return DelegationTokenDescription(
        token_id=row.token_id,
        owner=owner,
        requester=_requester(row, owner),
        renewers=tuple(Principal(one.principal_type, one.principal_name) for one in row.renewers),
        issue_ms=row.issue_timestamp,
        expiry_ms=row.expiry_timestamp,
        max_ms=row.max_timestamp,
        hmac=row.hmac,
    )


def _requester(
    row: CreateDelegationTokenResponse | DescribedDelegationToken, owner: Principal
) -> Principal:
    """Before version 3 it is the owner."""
    kind = getattr(row, "token_requester_principal_type", None)
    name = getattr(row, "token_requester_principal_name", None)
    return owner if kind is None or name is None else Principal(kind, name)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
