"""DescribeDelegationToken, versions 1 to 3.

The tokens of the named owners, of everybody without names, with their secrets. One sees those that
one holds, those that one may describe, and those of users whose tokens one may describe; others
are left out. v2 is flexible; v3 tells who asked for a token.
"""

from __future__ import annotations

from kio.schema.describe_delegation_token.v3 import DescribeDelegationTokenRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authentication import require_known_client
from moldau.broker.authorization import may_see
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation, AclResourceType, Principal
from moldau.security.rules.delegation_tokens import DelegationToken, is_asked_for
from moldau.wire.apis import DESCRIBE_DELEGATION_TOKEN

API = serves(
    DESCRIBE_DELEGATION_TOKEN,
    droppable=("token_requester_principal_type", "token_requester_principal_name"),
)


async def handle(request: DescribeDelegationTokenRequest, context: RequestContext) -> Values:
    code, rows = ErrorCode.none, []
    tokens = context.services.tokens
    owners = None
    if request.owners is not None:
        owners = [Principal(one.principal_type, one.principal_name) for one in request.owners]
    try:
        require_known_client(context)
        tokens.require_enabled()
        found = [token for token in await tokens.list_tokens() if is_asked_for(token, owners)]
        rows = [_describe(token, context) for token in found if _may_see(token, context)]
    except KafkaError as error:
        code = error.code
    return {"error_code": code, "tokens": rows}


def _may_see(token: DelegationToken, context: RequestContext) -> bool:
    return (
        token.is_in_hands_of(context.principal)
        or may_see(context, AclResourceType.DELEGATION_TOKEN, token.token_id)
        or may_see(context, AclResourceType.USER, str(token.owner), AclOperation.DESCRIBE_TOKENS)
    )


def _describe(token: DelegationToken, context: RequestContext) -> Values:
    return {
        "principal_type": token.owner.kind,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.kind,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": context.services.tokens.hmac_of(token),
        "renewers": [
            {"principal_type": one.kind, "principal_name": one.name} for one in token.renewers
        ],
    }
