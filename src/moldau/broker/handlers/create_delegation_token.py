"""CreateDelegationToken, versions 1 to 3.

v2 is flexible; v3 makes tokens for others (KIP-373), which needs CreateTokens of that user. Whoever
logged in by a token, or not at all, gets none.
"""

from __future__ import annotations

from kio.schema.create_delegation_token.v3 import CreateDelegationTokenRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authentication import NO_TIME, as_milliseconds, as_time, require_known_client
from moldau.broker.authorization import audit_change, require_user
from moldau.errors import ErrorCode, InvalidPrincipalTypeError, KafkaError
from moldau.model import USER, AclOperation, Principal
from moldau.security.rules.delegation_tokens import DelegationToken
from moldau.wire.apis import CREATE_DELEGATION_TOKEN

API = serves(
    CREATE_DELEGATION_TOKEN,
    changes_cluster=True,
    droppable=("token_requester_principal_type", "token_requester_principal_name"),
)


async def handle(request: CreateDelegationTokenRequest, context: RequestContext) -> Values:
    owner = _owner_of(request, context)
    token: DelegationToken | None = None
    error: KafkaError | None = None
    try:
        token = await _create(request, owner, context)
    except KafkaError as refused:
        error = refused
    audit_change(context, f"DelegationToken of {owner}", error)
    return {
        "error_code": ErrorCode.none if error is None else error.code,
        "principal_type": owner.kind,
        "principal_name": owner.name,
        "token_requester_principal_type": context.principal.kind,
        "token_requester_principal_name": context.principal.name,
        "issue_timestamp": NO_TIME if token is None else as_time(token.issue_ms),
        "expiry_timestamp": NO_TIME if token is None else as_time(token.expiry_ms),
        "max_timestamp": NO_TIME if token is None else as_time(token.max_ms),
        "token_id": "" if token is None else token.token_id,
        "hmac": b"" if token is None else context.services.tokens.hmac_of(token),
    }


def _owner_of(request: CreateDelegationTokenRequest, context: RequestContext) -> Principal:
    name = getattr(request, "owner_principal_name", None)
    if not name:
        return context.principal
    return Principal(request.owner_principal_type or USER, name)


async def _create(
    request: CreateDelegationTokenRequest, owner: Principal, context: RequestContext
) -> DelegationToken:
    require_known_client(context)
    if owner != context.principal:
        require_user(context, AclOperation.CREATE_TOKENS, str(owner))
    renewers = tuple(Principal(one.principal_type, one.principal_name) for one in request.renewers)
    strange = next((one for one in (owner, *renewers) if one.kind != USER), None)
    if strange is not None:
        raise InvalidPrincipalTypeError(f"{strange} is not a user")
    return await context.services.tokens.create(
        owner, context.principal, renewers, as_milliseconds(request.max_lifetime)
    )
