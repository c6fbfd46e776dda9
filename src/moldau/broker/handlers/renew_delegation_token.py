"""RenewDelegationToken, versions 1 and 2.

A token is named by its secret. Its owner, who asked for it, and its renewers may renew it, up to
its longest life. v2 is flexible.
"""

from __future__ import annotations

from kio.schema.renew_delegation_token.v2 import RenewDelegationTokenRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authentication import answer_with_expiry, as_milliseconds
from moldau.wire.apis import RENEW_DELEGATION_TOKEN

API = serves(RENEW_DELEGATION_TOKEN, changes_cluster=True)


async def handle(request: RenewDelegationTokenRequest, context: RequestContext) -> Values:
    period_ms = as_milliseconds(request.renew_period)
    tokens, client = context.services.tokens, context.principal
    return await answer_with_expiry(context, lambda: tokens.renew(request.hmac, client, period_ms))
