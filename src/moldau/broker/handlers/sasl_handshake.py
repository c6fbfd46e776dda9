"""SaslHandshake, versions 0 and 1.

A client names the mechanism by which it wants to say who it is, and hears which ones there are.
After version 0 the mechanism's messages follow without Kafka's headers, after version 1 in
SaslAuthenticate (KIP-152). On a listener without SASL, and where it is not the time for it, the
answer is ILLEGAL_SASL_STATE. An unknown mechanism ends the connection after the answer.
"""

from __future__ import annotations

from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.errors import ErrorCode
from moldau.wire.apis import SASL_HANDSHAKE

API = serves(SASL_HANDSHAKE)


def handle(request: SaslHandshakeRequest, context: RequestContext) -> Values:
    if context.sasl is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
    return context.sasl.shake_hands(request.mechanism, context.version)
