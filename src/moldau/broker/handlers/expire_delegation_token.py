"""ExpireDelegationToken, versions 1 and 2.

Lets a token end earlier; with a negative period at once. Whoever may renew it may do so. v2 is
flexible.
"""

from __future__ import annotations

from kio.schema.expire_delegation_token.v2 import ExpireDelegationTokenRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authentication import answer_with_expiry, as_milliseconds
from moldau.wire.apis import EXPIRE_DELEGATION_TOKEN

API = serves(EXPIRE_DELEGATION_TOKEN, changes_cluster=True)


async def handle(request: ExpireDelegationTokenRequest, context: RequestContext) -> Values:
    period_ms = as_milliseconds(request.expiry_time_period)
    tokens, client = context.services.tokens, context.principal
    return await answer_with_expiry(context, lambda: tokens.expire(request.hmac, client, period_ms))
