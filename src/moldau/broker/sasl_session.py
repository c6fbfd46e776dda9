"""The login of one connection: which frames may pass, and who is behind them.

What a frame may be is decided by `security.rules.sasl_states`; the gate of the connection asks
before each frame (`sasl_gate`), and the handlers of SaslHandshake and SaslAuthenticate do the
steps. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Final

from moldau.broker.refused_clients import RefusedClients
from moldau.clock import Clock
from moldau.config.listener_options import ListenerOptions
from moldau.coordination.port import CoordinationError
from moldau.errors import ErrorCode, MalformedNodeError, SaslAuthenticationError
from moldau.net.connection_quotas import PendingConnections
from moldau.net.port import Connection
from moldau.security.rules.sasl_states import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    FrameVerdict,
    SaslState,
    judge,
    session_lifetime_ms,
)
from moldau.security.sasl_server import Authenticated, SaslExchange, SaslMechanisms, SaslStep

_LENGTH: Final = struct.Struct(">i")


class SaslSession:
    """Who is at the other end, as far as it is known. One for each connection."""

    def __init__(
        self,
        connection: Connection,
        mechanisms: Callable[[], SaslMechanisms],
        options: Callable[[], ListenerOptions],
        clock: Clock,
        newcomers: PendingConnections,
        refused: RefusedClients,
    ) -> None:
        self.state = SaslState.NEW
        self._connection = connection
        self._mechanisms = mechanisms
        self._options = options
        self._clock = clock
        self._newcomers = newcomers
        self._refused = refused
        self._mechanism = ""
        self._exchange: SaslExchange | None = None
        self._is_limited = False  # it has to be renewed, and can be
        self._ends_at = float("inf")  # monotonic seconds
        self._known: Authenticated | None = None  # from the login before this one
        connection.limit_requests(options().sasl_server_max_receive_size)
        newcomers.add(connection)

    @property
    def is_by_token(self) -> bool:
        """Whether the client has a delegation token, and no password."""
        return self._known is not None and self._known.is_by_token

    @property
    def is_unlimited(self) -> bool:
        """Every further frame passes."""
        return self.state is SaslState.AUTHENTICATED and not self._is_limited

    def judge(self, api_key: int) -> FrameVerdict:
        is_expired = self._is_limited and self._clock.monotonic() >= self._ends_at
        return judge(self.state, api_key, is_limited=self._is_limited, is_expired=is_expired)

    def shake_hands(self, mechanism: str, version: int) -> Mapping[str, object]:
        """The answer to a SaslHandshake."""
        mechanisms = self._mechanisms()
        enabled = sorted(mechanisms.enabled)
        if self.judge(SASL_HANDSHAKE) is not FrameVerdict.HANDSHAKE:
            self._end_soon("SaslHandshake at the wrong time")
            return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": enabled}
        if mechanism not in enabled or (self._known and mechanism != self._mechanism):
            self._refuse(None, mechanism, "the mechanism is not enabled")
            self._end_soon(f"the mechanism {mechanism!r} is not enabled")
            return {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": enabled}
        self._mechanism = mechanism
        self._exchange = mechanisms.begin(mechanism)
        self.state = SaslState.EXCHANGING if version > 0 else SaslState.RAW
        return {"error_code": ErrorCode.none, "mechanisms": enabled}

    async def authenticate(self, message: bytes) -> Mapping[str, object]:
        """The answer to a SaslAuthenticate."""
        if self.judge(SASL_AUTHENTICATE) is not FrameVerdict.AUTHENTICATE:
            self._end_soon("SaslAuthenticate at the wrong time")
            return _refusal(ErrorCode.illegal_sasl_state, "SaslHandshake comes first")
        try:
            step = await self.advance(message)
        except SaslAuthenticationError as error:
            await self._clock.sleep(self._delay_seconds())
            self._end_soon("the login failed")
            return _refusal(ErrorCode.sasl_authentication_failed, str(error))
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "auth_bytes": step.challenge,
            "session_lifetime": self._lifetime_ms(step.outcome),
        }

    async def advance(self, message: bytes) -> SaslStep:
        """The next step of the exchange. Raises SaslAuthenticationError, and the end has begun."""
        if self._exchange is None:
            raise SaslAuthenticationError("there is no exchange under way")
        try:
            step = await self._exchange.respond(message)
            if step.outcome is not None:
                self._admit(step.outcome)
        except SaslAuthenticationError as error:
            self.state = SaslState.OVER
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            self._refuse(self._exchange.user, self._mechanism, f"{error}{cause}")
            raise
        except (CoordinationError, MalformedNodeError) as error:
            # Not the client's fault: it hears no refusal, which would be the last word for it, but
            # that the connection ends; so it tries again.
            self.state = SaslState.OVER
            reason = f"users cannot be looked up: {error}"
            self._refuse(self._exchange.user, self._mechanism, reason)
            self._connection.close(reason)
            raise SaslAuthenticationError(reason) from error
        return step

    def _refuse(self, user: str | None, mechanism: str, reason: str) -> None:
        self._refused.note_login(self._connection.peer_host, user, mechanism, reason)

    def _admit(self, outcome: Authenticated) -> None:
        if self._known is not None and self._known.principal != outcome.principal:
            raise SaslAuthenticationError(
                f"Cannot change principals during re-authentication from {self._known.principal} "
                f"to {outcome.principal}"
            )
        self._known = outcome
        self._exchange = None
        self.state = SaslState.AUTHENTICATED
        # What the client is told counts here, too: one that hears of an end renews its login.
        lifetime_ms = self._lifetime_ms(outcome)
        self._is_limited = lifetime_ms > 0
        if self._is_limited:
            self._ends_at = self._clock.monotonic() + lifetime_ms / 1000
        self._connection.principal = outcome.principal
        self._connection.limit_requests(None)
        self._newcomers.discard(self._connection)

    def _lifetime_ms(self, outcome: Authenticated | None) -> int:
        if outcome is None:
            return 0
        max_reauth_ms = self._options().max_reauth_ms_of(self._mechanism)
        return session_lifetime_ms(self._clock.now_ms(), max_reauth_ms, outcome.expires_ms)

    def _delay_seconds(self) -> float:
        return self._options().connection_failed_authentication_delay_ms / 1000

    def _end_soon(self, reason: str) -> None:
        """After the answer, which leaves in this turn of the loop."""
        self.state = SaslState.OVER
        asyncio.get_running_loop().call_soon(self._connection.close, reason)

    async def answer_raw(self, message: bytes) -> bytes | None:
        """The answer to a message without Kafka's headers; None when the connection is over."""
        try:
            step = await self.advance(message)
        except SaslAuthenticationError:
            await self._clock.sleep(self._delay_seconds())
            return None
        return _LENGTH.pack(len(step.challenge)) + step.challenge

    def forget(self) -> None:
        """The connection is closed. Who it was stays known: what he asked for last may still be
        done, and the audit log tells it."""
        self.state = SaslState.OVER
        self._newcomers.discard(self._connection)


def _refusal(code: ErrorCode, message: str) -> Mapping[str, object]:
    return {
        "error_code": code,
        "error_message": message,
        "auth_bytes": b"",
        "session_lifetime": 0,
    }
