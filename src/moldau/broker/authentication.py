"""Who a client is: SASL on a connection, refused logins, delegation tokens in requests.

`security.rules.sasl` decides which frames may pass. A `SaslGate` stands between a connection
and its pump and asks its `SaslSession` before each frame; the handlers of SaslHandshake and
SaslAuthenticate do the steps. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from moldau.broker.api import RequestContext, Values, error_values
from moldau.broker.authorization import audit_change
from moldau.broker.dispatch import RequestPump
from moldau.clock import Clock
from moldau.cluster.credentials import ExpiredToken
from moldau.config.listener_options import ListenerOptions
from moldau.coordination.port import CoordinationError
from moldau.errors import (
    DelegationTokenRequestNotAllowedError,
    ErrorCode,
    KafkaError,
    MalformedNodeError,
    SaslAuthenticationError,
)
from moldau.net.connection_quotas import PendingConnections
from moldau.net.port import Connection
from moldau.security.audit import AuditLog
from moldau.security.rules.delegation_tokens import DelegationToken, may_ask_for_tokens
from moldau.security.rules.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    FrameVerdict,
    SaslState,
    judge,
    session_lifetime_ms,
)
from moldau.security.sasl_server import Authenticated, SaslExchange, SaslMechanisms, SaslStep
from moldau.tasks import TaskSupervisor

_LENGTH: Final = struct.Struct(">i")

_log = logging.getLogger("moldau.broker.security")
_API_KEY: Final = struct.Struct(">h")
MECHANISMS_BY_NUMBER: Final[Mapping[int, str]] = MappingProxyType(
    {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
)
_requests_log = logging.getLogger("moldau.broker.requests")
_SECONDS_BETWEEN_WARNINGS: Final = 5.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIME: Final = _EPOCH
"""Where there is no token to tell a time of. Kafka says -1, which not every client can read, and
none looks at."""


class SaslSession:
    """Who is at the other end, as far as it is known. One for each connection."""

    def __init__(
        self,
        connection: Connection,
        mechanisms: Callable[[], SaslMechanisms],
        options: Callable[[], ListenerOptions],
        clock: Clock,
        pending: PendingConnections,
        refused: RefusedClients,
    ) -> None:
        self.state = SaslState.NEW
        self._connection = connection
        self._mechanisms = mechanisms
        self._options = options
        self._clock = clock
        self._pending = pending
        self._refused = refused
        self._mechanism = ""
        self._exchange: SaslExchange | None = None
        self._is_limited = False  # it has to be renewed, and can be
        self._ends_at = float("inf")  # monotonic seconds
        self._known: Authenticated | None = None  # from the login before this one
        connection.limit_requests(options().sasl_server_max_receive_size)
        pending.add(connection)

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

    def shake_hands(self, mechanism: str, version: int) -> Values:
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

    async def authenticate(self, message: bytes) -> Values:
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
            **error_values(None),
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
        self._pending.discard(self._connection)

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
        self._pending.discard(self._connection)


def _refusal(code: ErrorCode, message: str) -> Values:
    return {"error_code": code, "error_message": message, "auth_bytes": b"", "session_lifetime": 0}


class SaslGate:
    """The receiver behind a connection of a SASL listener. Implements `net.port.FrameReceiver`."""

    __slots__ = ("_connection", "_pump", "_session", "_supervisor", "_task")

    def __init__(
        self,
        connection: Connection,
        pump: RequestPump,
        session: SaslSession,
        supervisor: TaskSupervisor,
    ) -> None:
        self._connection = connection
        self._pump = pump
        self._session = session
        self._supervisor = supervisor
        self._task: asyncio.Task[None] | None = None  # a message without headers

    def on_frame(self, frame: memoryview) -> None:
        session = self._session
        if session.is_unlimited:
            self._pump.on_frame(frame)
            return
        api_key = _API_KEY.unpack_from(frame)[0] if len(frame) >= _API_KEY.size else -1
        verdict = session.judge(api_key)
        if verdict is FrameVerdict.RAW_MESSAGE:
            self._task = self._supervisor.spawn(
                f"login of {self._connection.id}", self._answer_raw(bytes(frame))
            )
        elif verdict is FrameVerdict.CLOSE:
            reason = f"API {api_key} before, or without, a login"
            _log.info(
                "closing connection %s of %s: %s",
                self._connection.id,
                self._connection.peer_host,
                reason,
            )
            self._connection.close(reason)
        else:
            self._pump.on_frame(frame)

    async def _answer_raw(self, message: bytes) -> None:
        answer = await self._session.answer_raw(message)
        self._task = None
        if answer is None:
            self._connection.close("the login failed")
        else:
            self._connection.send([answer])

    def on_client_gone(self) -> None:
        self._pump.on_client_gone()

    def on_closed(self) -> None:
        self._session.forget()
        if self._task is not None:
            self._task.cancel()
        self._pump.on_closed()


def number_of(mechanism: str) -> int:
    return next(number for number, name in MECHANISMS_BY_NUMBER.items() if name == mechanism)


class RefusedClients:
    """Logs which clients were refused, now and then: a client that guesses passwords must not fill
    the disk. The audit log has all of them. One for all listeners of a broker.
    """

    def __init__(self, clock: Clock, audit: AuditLog) -> None:
        self._clock = clock
        self._audit = audit
        self._quiet_until = float("-inf")  # monotonic seconds
        self._untold = 0

    def note_login(self, host: str, user: str | None, mechanism: str, reason: str) -> None:
        self._audit.login_refused(user, host, mechanism, reason)
        self._warn(f"a login from {host}", reason)

    def note_handshake(self, host: str, listener: str, reason: str) -> None:
        self._audit.handshake_failed(host, listener, reason)
        self._warn(f"a connection from {host} to the listener {listener}", reason)

    def _warn(self, what: str, reason: str) -> None:
        now = self._clock.monotonic()
        if now < self._quiet_until:
            self._untold += 1
            return
        self._quiet_until = now + _SECONDS_BETWEEN_WARNINGS
        more = f"; {self._untold} more were refused before it" if self._untold else ""
        self._untold = 0
        _requests_log.warning("refused %s: %s%s", what, reason, more)


def require_known_client(context: RequestContext) -> None:
    is_by_token = context.sasl is not None and context.sasl.is_by_token
    protocol = context.connection.security_protocol
    if not may_ask_for_tokens(context.principal, protocol, is_logged_in_by_token=is_by_token):
        raise DelegationTokenRequestNotAllowedError(
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on "
            "delegation token authenticated channels."
        )


async def answer_with_expiry(
    context: RequestContext, change: Callable[[], Awaitable[DelegationToken | ExpiredToken]]
) -> Values:
    """Change when a token ends, if the client may ask for that, and answer when it does."""
    code, expiry, subject = ErrorCode.none, NO_TIME, "DelegationToken"
    try:
        require_known_client(context)
        token = await change()
        expiry, subject = as_time(token.expiry_ms), f"DelegationToken:{token.token_id}"
    except KafkaError as error:
        code = error.code
    audit_change(context, subject, code)
    return {"error_code": code, "expiry_timestamp": expiry}


def as_time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def as_milliseconds(period: timedelta) -> int:
    return period // timedelta(milliseconds=1)
