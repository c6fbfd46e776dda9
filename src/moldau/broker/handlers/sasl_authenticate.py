"""SaslAuthenticate, versions 0 to 2.

Carries the messages of the mechanism that SaslHandshake named. v1 tells how long the login is good
(KIP-368); v2 is flexible. A refusal waits for connection.failed.authentication.delay.ms, says the
same whatever was wrong, and ends the connection.
"""

from __future__ import annotations

from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.errors import ErrorCode
from moldau.wire.apis import SASL_AUTHENTICATE

API = serves(SASL_AUTHENTICATE, droppable=("session_lifetime",))


async def handle(request: SaslAuthenticateRequest, context: RequestContext) -> Values:
    if context.sasl is None:
        return {
            "error_code": ErrorCode.illegal_sasl_state,
            "error_message": "this listener does not ask who a client is",
            "auth_bytes": b"",
            "session_lifetime": 0,
        }
    return await context.sasl.authenticate(request.auth_bytes)
