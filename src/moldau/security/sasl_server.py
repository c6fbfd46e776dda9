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
from moldau.model import USER, Principal
from moldau.security.rules.bearer import REFUSAL, parse_bearer
from moldau.security.rules.delegation_tokens import DelegationToken
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
_MOST_DERIVED: Final = 1_000


class Authenticated(NamedTuple):
    """Who it is, and until when what he showed is good (milliseconds of the clock)."""

    principal: Principal
    expires_ms: int | None = None
    is_by_token: bool = False  # a delegation token


class SaslStep(NamedTuple):
    """What to answer; and who it is, when the exchange is over."""

    challenge: bytes
    outcome: Authenticated | None = None


class SaslExchange(Protocol):
    """One login."""

    @property
    def user(self) -> str | None:
        """Who the client says it is, as soon as it has; for the audit log alone."""
        ...

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


FindToken = Callable[[str], Awaitable[tuple[DelegationToken, str] | None]]
"""Of an id: the delegation token and the password that proves it; None when it is not good."""


class StoredLogins(NamedTuple):
    """Who may log in beside those in the settings."""

    find_credential: FindCredential
    find_token: FindToken


class SaslMechanisms:
    """The mechanisms of one listener, as they are configured at the moment."""

    def __init__(
        self,
        options: ListenerOptions,
        *,
        stored: StoredLogins,
        check_token: CheckToken | None,
        workers: Workers,
    ) -> None:
        self.enabled: tuple[str, ...] = options.sasl_enabled_mechanisms
        self._stored = stored
        self._check_token = check_token
        self._workers = workers
        self._jaas = {name: read_jaas(options, name) for name in self.enabled}
        self._derived: dict[tuple[str, str], ScramCredential] = {}
        self._derived_of_tokens: dict[tuple[str, str], ScramCredential] = {}
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
            return _ScramExchange(mechanism, self._find_credential, self._find_token, self._secret)
        if mechanism == "OAUTHBEARER" and self._check_token is not None:
            return _BearerExchange(self._check_token)
        return _PlainExchange({} if jaas is None else jaas.users)

    async def _find_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """What stands in the file first: brokers need each other before there is a store."""
        password = _password_of(self._jaas[mechanism], user)
        if password is None:
            return await self._stored.find_credential(mechanism, user)
        key = (mechanism, user)
        if key not in self._derived:
            self._derived[key] = await self._derive(mechanism, password)
        return self._derived[key]

    async def _find_token(self, mechanism: str, token_id: str) -> _KnownToken | None:
        """Looked up each time; what follows from its password never changes."""
        found = await self._stored.find_token(token_id)
        if found is None:
            return None
        token, password = found
        key = (mechanism, token_id)
        credential = self._derived_of_tokens.get(key)
        if credential is None:
            credential = await self._derive(mechanism, password)
            self._derived_of_tokens[key] = credential
            if len(self._derived_of_tokens) > _MOST_DERIVED:
                del self._derived_of_tokens[next(iter(self._derived_of_tokens))]
        return _KnownToken(token, credential)

    async def _derive(self, mechanism: str, password: str) -> ScramCredential:
        salt = secrets.token_bytes(SALT_BYTES)

        def derive() -> ScramCredential:
            salted = salt_password(mechanism, password, salt, USUAL_ITERATIONS)
            return make_credential(mechanism, salted, salt, USUAL_ITERATIONS)

        return await self._workers.run(derive)


class _KnownToken(NamedTuple):
    token: DelegationToken
    credential: ScramCredential


def read_jaas(options: ListenerOptions, mechanism: str) -> JaasConfig | None:
    """The users of a mechanism, if its option is set; ConfigurationError when it is malformed."""
    text = options.jaas_config_of(mechanism)
    if text is None:
        return None
    try:
        return parse_jaas(text)
    except ValueError as fault:
        raise ConfigurationError(f"sasl.jaas.config of {mechanism} {fault}") from None


def listeners_that_know(
    user: str, mechanism: str, listeners: Mapping[str, ListenerOptions]
) -> list[str]:
    """The listeners whose settings have a password for a user: what the store has of him does not
    count there."""
    return [
        name
        for name, options in listeners.items()
        if mechanism in options.sasl_enabled_mechanisms
        and _password_of(read_jaas(options, mechanism), user) is not None
    ]


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
        self.user: str | None = None

    async def respond(self, message: bytes) -> SaslStep:
        try:
            said = parse_plain(message)
        except ValueError as fault:
            raise SaslAuthenticationError(f"PLAIN: {fault}") from None
        self.user = said.user
        expected = self._users.get(said.user)
        is_right = hmac.compare_digest((expected or "").encode(), said.password.encode())
        if expected is None or not is_right:
            raise _refused("PLAIN")
        return SaslStep(b"", Authenticated(Principal(USER, said.user)))


class _ScramExchange:
    def __init__(
        self,
        mechanism: str,
        find_credential: FindCredential,
        find_token: Callable[[str, str], Awaitable[_KnownToken | None]],
        secret: bytes,
    ) -> None:
        self._mechanism = mechanism
        self._find_credential = find_credential
        self._find_token = find_token
        self._secret = secret
        self._token: DelegationToken | None = None
        self._server = ScramServer(mechanism, secrets.token_urlsafe(_NONCE_BYTES))
        self.user: str | None = None

    async def respond(self, message: bytes) -> SaslStep:
        try:
            if self.user is None:
                self.user = self._server.read_first(message)
                found = await self._find(self.user)
                credential = found or pretend_credential(self._mechanism, self._secret, self.user)
                return SaslStep(self._server.answer_first(credential))
            final = self._server.finish(message)
        except ScramError as error:
            raise _refused(self._mechanism) from error
        token = self._token
        if token is not None:
            by_token = Authenticated(token.owner, token.expiry_ms, is_by_token=True)
            return SaslStep(final, by_token)
        return SaslStep(final, Authenticated(Principal(USER, self.user)))

    async def _find(self, user: str) -> ScramCredential | None:
        if not self._server.is_token:
            return await self._find_credential(self._mechanism, user)
        known = await self._find_token(self._mechanism, user)
        if known is None:
            return None
        self._token = known.token
        return known.credential


class _BearerExchange:
    def __init__(self, check_token: CheckToken) -> None:
        self._check_token = check_token
        self._refusal: ValueError | None = None
        self.user: str | None = None  # a token that is not trusted says nothing

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
