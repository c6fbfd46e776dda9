"""Connections that are encrypted and say who they are, over any network.

`SecuredNetwork` stands in front of another network: whoever connects through it, a client or a
broker, gets a channel on which the login is done. Where the broker limits how long a login is good
(KIP-368), the channel renews it by itself between two requests, in good time.

A shell. A channel's receiving side belongs to whoever is in `receive`; while nobody is, the login
reads for itself, and keeps what it finds for the next `receive`.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from moldau.clock import Clock
from moldau.errors import (
    ErrorCode,
    SaslAuthenticationError,
    TlsHandshakeError,
    UnsupportedSaslMechanismError,
)
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import Accept, Channel, Chunk, ClientTls, Network, Server, ServerTls
from moldau.security.rules.sasl import Login
from moldau.security.rules.scram import ScramError
from moldau.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from moldau.wire.headers import read_response_header, request_prefix
from moldau.wire.messages import encode_body, parse
from moldau.wire.shape import Values, fit
from moldau.wire.versions import request_class, response_class

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v1 import SaslAuthenticateResponse
    from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse
    from kio.static.protocol import Payload

_VERSION: Final = 1
"""Of both APIs: the first that tells how long a session lasts. Kafka has it since 2.2."""
_CORRELATION_ID: Final = struct.Struct(">i")
_MILLISECOND: Final = timedelta(milliseconds=1)
_OWN_CORRELATION_ID: Final = -17
"""Requests of others count from 0 up."""
_RENEWED_AT: Final = 0.85
"""Of a session's life, as with Kafka's clients."""

NewLogin = Callable[[], Awaitable[Login]]
"""A fresh exchange; may take a while, where a token has to be fetched."""


class ClientSecurity(NamedTuple):
    """How to connect: encrypted or not, and as whom."""

    tls: ClientTls | None = None
    new_login: NewLogin | None = None
    client_id: str | None = None


class SecuredNetwork:
    """A network whose connections are secured; what it listens on is not its matter."""

    def __init__(self, network: Network, clock: Clock, security: ClientSecurity) -> None:
        self._network = network
        self._clock = clock
        self._security = security

    async def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        listener_name: str,
        quotas: ConnectionQuotas,
        tls: ServerTls | None = None,
    ) -> Server:
        return await self._network.listen(
            host, port, accept, listener_name=listener_name, quotas=quotas, tls=tls
        )

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout: float,  # noqa: ASYNC109 the port says it
        tls: ClientTls | None = None,
    ) -> Channel:
        security = self._security
        try:
            channel = await self._network.connect(
                host, port, timeout=timeout, tls=tls or security.tls
            )
        except ssl.SSLCertVerificationError as error:
            raise TlsHandshakeError(
                f"the certificate of {host}:{port} is not to be trusted: {error.verify_message}"
            ) from error
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            raise ConnectionError(f"the TLS handshake failed: {reason}") from error
        except ConnectionError as error:
            if error.errno is not None:  # the system's, and it says what it is
                raise
            raise ConnectionError(
                "the connection ended in the TLS handshake; the listener may have no TLS, see "
                "security.protocol"
            ) from error
        if security.new_login is None:
            return channel
        secured = SecuredChannel(channel, self._clock, security.new_login, security.client_id)
        try:
            async with asyncio.timeout(timeout):
                await secured.log_in()
        except BaseException:
            await channel.close()
            raise
        return secured


class SecuredChannel:
    """A channel on which somebody has said who he is. Implements `net.port.Channel`."""

    def __init__(
        self, channel: Channel, clock: Clock, new_login: NewLogin, client_id: str | None
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._new_login = new_login
        self._client_id = client_id
        self._renew_at: float | None = None  # monotonic seconds
        self._is_received_from = False
        self._answer: asyncio.Future[memoryview] | None = None  # to the login
        self._kept: deque[bytes | bytearray | memoryview] = deque()  # of others

    async def send(self, frame: Sequence[Chunk]) -> None:
        if self._renew_at is not None and self._clock.monotonic() >= self._renew_at:
            try:
                await self.log_in()
            except (SaslAuthenticationError, UnsupportedSaslMechanismError) as error:
                await self.close()
                raise ConnectionError(f"the login was not renewed: {error}") from error
        await self._channel.send(frame)

    async def receive(self) -> bytes | bytearray | memoryview:
        if self._kept:
            return self._kept.popleft()
        self._is_received_from = True
        try:
            while True:
                frame = await self._channel.receive()
                if not self._is_own(frame):
                    return frame
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(memoryview(frame))
        except OSError as error:
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ConnectionError(str(error)))
            raise
        finally:
            self._is_received_from = False

    async def close(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
        await self._channel.close()

    async def log_in(self) -> None:
        """Raises SaslAuthenticationError when the broker does not believe us."""
        login = await self._new_login()
        await self._shake_hands(login.mechanism)
        message: bytes | None = login.first()
        lifetime_ms = 0
        while message is not None:
            answer = cast(
                "SaslAuthenticateResponse",
                await self._ask(SASL_AUTHENTICATE, {"auth_bytes": message}),
            )
            if answer.error_code is not ErrorCode.none:
                raise SaslAuthenticationError(
                    answer.error_message or "the broker refuses the credentials"
                )
            lifetime_ms = answer.session_lifetime // _MILLISECOND
            try:
                message = await asyncio.to_thread(login.respond, answer.auth_bytes)
            except (ScramError, ValueError) as fault:
                raise SaslAuthenticationError(f"{login.mechanism}: {fault}") from None
        self._renew_at = (
            self._clock.monotonic() + lifetime_ms / 1000 * _RENEWED_AT if lifetime_ms > 0 else None
        )

    async def _shake_hands(self, mechanism: str) -> None:
        answer = cast(
            "SaslHandshakeResponse", await self._ask(SASL_HANDSHAKE, {"mechanism": mechanism})
        )
        if answer.error_code is ErrorCode.unsupported_sasl_mechanism:
            offered = ", ".join(answer.mechanisms) or "none"
            raise UnsupportedSaslMechanismError(
                f"the broker does not have the mechanism {mechanism} there; it has {offered}"
            )
        if answer.error_code is not ErrorCode.none:
            raise SaslAuthenticationError(
                f"the broker does not take logins there ({answer.error_code.name})"
            )

    async def _ask(self, api: Api, values: Values) -> Payload:
        body = encode_body(fit(request_class(api.key, _VERSION), values, frozenset()))
        prefix = request_prefix(api.key, _VERSION, _OWN_CORRELATION_ID, self._client_id, len(body))
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await self._channel.send((prefix + body,))
            frame = await self._receive_own(self._answer)
        finally:
            self._answer = None
        _, position = read_response_header(frame, api.key, _VERSION)
        return parse(response_class(api.key, _VERSION), frame, position)

    async def _receive_own(self, answer: asyncio.Future[memoryview]) -> memoryview:
        while not self._is_received_from:
            frame = await self._channel.receive()
            if self._is_own(frame):
                return memoryview(frame)
            self._kept.append(frame)
        return await answer

    @staticmethod
    def _is_own(frame: bytes | bytearray | memoryview) -> bool:
        size = _CORRELATION_ID.size
        return len(frame) >= size and _CORRELATION_ID.unpack_from(frame)[0] == _OWN_CORRELATION_ID
