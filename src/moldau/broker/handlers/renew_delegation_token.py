"""RenewDelegationToken, versions 1 and 2.

A token is named by its secret. Its owner, who asked for it, and its renewers may renew it, up to
its longest life. v2 is flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.broker.api import RequestContext, serves
from moldau.broker.authentication import answer_with_expiry, as_milliseconds
from moldau.wire.apis import RENEW_DELEGATION_TOKEN

if TYPE_CHECKING:
    from kio.schema.renew_delegation_token.v2 import RenewDelegationTokenRequest

API = serves(RENEW_DELEGATION_TOKEN, changes_cluster=True)


async def handle(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> Mapping[str, object]:
    period_ms = as_milliseconds(request.renew_period)
    tokens, client = context.services.tokens, context.principal
    return await answer_with_expiry(context, lambda: tokens.renew(request.hmac, client, period_ms))
