"""The mechanisms of SASL on the broker's side: one exchange for each login. A shell.

The rules know the messages (`rules.scram`, `rules.plain`, `rules.bearer`); here are the look-ups
between them, which may take a while. Whoever fails hears the same words, whatever was wrong; the
broker's log says more, though never a password.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol

from moldau.config.listener_options import ListenerOptions
from moldau.errors import ConfigurationError, SaslAuthenticationError
from moldau.model import Principal
from moldau.model.principal import USER
from moldau.security.rules.bearer import REFUSAL, parse_bearer
from moldau.security.rules.jaas import JaasConfig, parse_jaas
from moldau.security.rules.plain import parse_plain
from moldau.security.rules.scram import (
    HASHES,
    SALT_BYTES,
    USUAL_ITERATIONS,
    ScramCredential,
    ScramError,
    ScramServer,
    make_credential,
    pretend_credential,
    salt_password,
)
from moldau.workers import Workers

_NONCE_BYTES: Final = 24


class Authenticated(NamedTuple):
    """Who it is, and until when what he showed is good (milliseconds of the clock)."""

    principal: Principal
    expires_ms: int | None = None


class SaslStep(NamedTuple):
    """What to answer; and who it is, when the exchange is over."""

    challenge: bytes
    outcome: Authenticated | None = None


class SaslExchange(Protocol):
    """One login."""

    async def respond(self, message: bytes) -> SaslStep:
        """Raises SaslAuthenticationError when the client is not who it says."""
        ...


class Token(NamedTuple):
    """What a token says."""

    subject: str
    expires_ms: int


FindCredential = Callable[[str, str], Awaitable[ScramCredential | None]]
"""Of a mechanism and a user; None when there is none."""
CheckToken = Callable[[str], Awaitable[Token]]
"""Raises ValueError, whose text is for the log, when a token is not to be trusted."""


class SaslMechanisms:
    """The mechanisms of one listener, as they are configured at the moment."""

    def __init__(
        self,
        options: ListenerOptions,
        *,
        find_credential: FindCredential,
        check_token: CheckToken | None,
        workers: Workers,
    ) -> None:
        self.enabled: tuple[str, ...] = options.sasl_enabled_mechanisms
        self._find_stored = find_credential
        self._check_token = check_token
        self._workers = workers
        self._jaas = {name: read_jaas(options, name) for name in self.enabled}
        self._derived: dict[tuple[str, str], ScramCredential] = {}
        self._secret = secrets.token_bytes(_NONCE_BYTES)  # for users who do not exist
        if "OAUTHBEARER" in self.enabled and check_token is None:
            raise ConfigurationError(
                "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: the keys of who issues the "
                "tokens"
            )

    def begin(self, mechanism: str) -> SaslExchange:
        """An exchange of one of the enabled mechanisms."""
        jaas = self._jaas[mechanism]
        if mechanism in HASHES:
            return _ScramExchange(mechanism, self._find_credential, self._secret)
        if mechanism == "OAUTHBEARER" and self._check_token is not None:
            return _BearerExchange(self._check_token)
        return _PlainExchange({} if jaas is None else jaas.users)

    async def _find_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """What stands in the file first: brokers need each other before there is a store."""
        password = _password_of(self._jaas[mechanism], user)
        if password is None:
            return await self._find_stored(mechanism, user)
        key = (mechanism, user)
        if key not in self._derived:
            salt = secrets.token_bytes(SALT_BYTES)

            def derive() -> ScramCredential:
                salted = salt_password(mechanism, password, salt, USUAL_ITERATIONS)
                return make_credential(mechanism, salted, salt, USUAL_ITERATIONS)

            self._derived[key] = await self._workers.run(derive)
        return self._derived[key]


def read_jaas(options: ListenerOptions, mechanism: str) -> JaasConfig | None:
    """The users of a mechanism, if its option is set; ConfigurationError when it is malformed."""
    text = options.jaas_config_of(mechanism)
    if text is None:
        return None
    try:
        return parse_jaas(text)
    except ValueError as fault:
        raise ConfigurationError(f"sasl.jaas.config of {mechanism} {fault}") from None


def _password_of(jaas: JaasConfig | None, user: str) -> str | None:
    if jaas is None:
        return None
    return jaas.users.get(user) or (jaas.password if jaas.username == user else None)


def _refused(mechanism: str) -> SaslAuthenticationError:
    return SaslAuthenticationError(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


class _PlainExchange:
    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    async def respond(self, message: bytes) -> SaslStep:
        try:
            said = parse_plain(message)
        except ValueError as fault:
            raise SaslAuthenticationError(f"PLAIN: {fault}") from None
        expected = self._users.get(said.user)
        is_right = hmac.compare_digest((expected or "").encode(), said.password.encode())
        if expected is None or not is_right:
            raise _refused("PLAIN")
        return SaslStep(b"", Authenticated(Principal(USER, said.user)))


class _ScramExchange:
    def __init__(self, mechanism: str, find_credential: FindCredential, secret: bytes) -> None:
        self._mechanism = mechanism
        self._find_credential = find_credential
        self._secret = secret
        self._server = ScramServer(mechanism, secrets.token_urlsafe(_NONCE_BYTES))
        self._user: str | None = None

    async def respond(self, message: bytes) -> SaslStep:
        try:
            if self._user is None:
                self._user = self._server.read_first(message)
                found = await self._find_credential(self._mechanism, self._user)
                credential = found or pretend_credential(self._mechanism, self._secret, self._user)
                return SaslStep(self._server.answer_first(credential))
            final = self._server.finish(message)
        except ScramError as error:
            raise _refused(self._mechanism) from error
        return SaslStep(final, Authenticated(Principal(USER, self._user)))


class _BearerExchange:
    def __init__(self, check_token: CheckToken) -> None:
        self._check_token = check_token
        self._refusal: ValueError | None = None

    async def respond(self, message: bytes) -> SaslStep:
        if self._refusal is not None:  # the client has said that it has heard
            raise _refused("OAUTHBEARER") from self._refusal
        try:
            text, acts_for = parse_bearer(message)
        except ValueError as fault:
            raise SaslAuthenticationError(f"OAUTHBEARER: {fault}") from None
        try:
            token = await self._check_token(text)
            if acts_for and acts_for != token.subject:
                raise ValueError("nobody may act for another user")
        except ValueError as fault:
            self._refusal = fault
            return SaslStep(REFUSAL)
        return SaslStep(b"", Authenticated(Principal(USER, token.subject), token.expires_ms))
