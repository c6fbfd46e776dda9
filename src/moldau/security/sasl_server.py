"""The mechanisms of SASL on the broker's side: one exchange for each login. A shell.

The rules know the messages (`rules.scram`, `rules.sasl`); here are the look-ups between them,
which may take a while. Whoever fails hears the same words, whatever was wrong; the
broker's log says more, though never a password.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from moldau.clock import Clock
from moldau.config.listener_options import ListenerOptions
from moldau.errors import ConfigurationError, MissingExtraError, SaslAuthenticationError
from moldau.model import USER, Principal
from moldau.security.rules.delegation_tokens import DelegationToken
from moldau.security.rules.sasl import REFUSAL, JaasConfig, parse_bearer, parse_jaas, parse_plain
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


# Tokens of OAUTHBEARER: signed JWTs, checked with the keys of who issues them (KIP-768). A shell.
#
# Keys come from a JWKS file or URL, are kept for a while, and are fetched again when a token names
# one that is not known, though not more often than every few seconds: tokens cost a guesser
# nothing. Tokens without a signature are never taken. PyJWT does the work, in a few threads of its
# own: an issuer that does not answer holds up logins with tokens, and no flush of a log.


_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Of each type of key. With a public one: whoever can check a token cannot make one."""
_FETCH_SECONDS: Final = 10.0
_MOST_KEY_BYTES: Final = 1 << 20
_LEAST_SECONDS_BETWEEN_FETCHES: Final = 5.0
THREADS: Final = 2
"""One may wait for the issuer while the other checks tokens whose keys are known."""


def token_check(options: ListenerOptions, workers: Workers, clock: Clock) -> CheckToken | None:
    """None where the option for the keys is not set."""
    url = options.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        return None
    if urlsplit(url).scheme not in ("https", "http", "file"):
        raise ConfigurationError(
            "sasl.oauthbearer.jwks.endpoint.url is neither an https nor a file URL"
        )
    try:
        import jwt  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "OAUTHBEARER checks signatures with PyJWT: pip install 'moldau[security]'"
        ) from None
    checker = _TokenChecker(url, options, clock)

    async def check(text: str) -> Token:
        return await workers.run(lambda: checker.check(text))

    return check


_Jwk = Mapping[str, Any]


def _is_for_signatures(key: object) -> bool:
    """Whether it is a public key that checks signatures. One that is secret (`oct`) would also make
    them, and whoever can read what the issuer publishes would have it."""
    if not isinstance(key, Mapping):
        return False
    return key.get("kty") in _ALGORITHMS and key.get("use", "sig") == "sig"


def _check_algorithm(key: _Jwk, algorithm: object) -> None:
    """What a token names has to be one of its key's: a token does not choose how it is checked."""
    allowed = _ALGORITHMS[key["kty"]]
    if algorithm not in allowed or key.get("alg", algorithm) != algorithm:
        raise ValueError("the token names an algorithm that its key is not for")


class _TokenChecker:
    """Used by worker threads; what they share is replaced as a whole."""

    def __init__(self, url: str, options: ListenerOptions, clock: Clock) -> None:
        self._url = url
        self._options = options
        self._clock = clock
        self._keys: dict[str, _Jwk] = {}
        self._fetched_at = float("-inf")
        self._fetching = threading.Lock()

    def check(self, text: str) -> Token:
        import jwt

        options = self._options
        try:
            header = jwt.get_unverified_header(text)
            jwk, algorithm = self._find_key(header.get("kid")), header.get("alg")
            _check_algorithm(jwk, algorithm)
            claims = jwt.decode(
                text,
                jwt.PyJWK(dict(jwk), algorithm).key,
                algorithms=[str(algorithm)],
                audience=list(options.sasl_oauthbearer_expected_audience) or None,
                issuer=options.sasl_oauthbearer_expected_issuer,
                leeway=options.sasl_oauthbearer_clock_skew_seconds,
                options={
                    "require": ["exp", "iat"],
                    "verify_aud": bool(options.sasl_oauthbearer_expected_audience),
                },
            )
        except jwt.PyJWTError as error:
            raise ValueError(f"the token is refused: {error}") from None
        except (RecursionError, OverflowError):  # brackets by the thousand; a time without end
            raise ValueError("the token is refused: it is malformed") from None
        subject = claims.get(options.sasl_oauthbearer_sub_claim_name)
        if not isinstance(subject, str) or not subject.strip():
            raise ValueError(f"the token has no claim {options.sasl_oauthbearer_sub_claim_name}")
        return Token(subject, int(claims["exp"]) * 1000)

    def _find_key(self, key_id: str | None) -> _Jwk:
        found = self._choose(key_id)
        # One asks the issuer; the others do not wait for it, unless nothing is known yet: tokens
        # with keys that nobody knows cost a guesser nothing.
        if self._fetching.acquire(blocking=not self._keys):
            try:
                self._fetch_if_due(key_id)
            finally:
                self._fetching.release()
            found = self._choose(key_id)
        if found is None:
            raise ValueError("the token is signed with a key that the issuer does not have")
        return found

    def _fetch_if_due(self, key_id: str | None) -> None:
        now = self._clock.monotonic()
        age = now - self._fetched_at
        is_old = age * 1000 >= self._options.sasl_oauthbearer_jwks_endpoint_refresh_ms
        is_unknown = self._choose(key_id) is None and age >= _LEAST_SECONDS_BETWEEN_FETCHES
        if is_old or is_unknown:
            self._fetched_at = now
            self._keys = self._fetch() or self._keys

    def _choose(self, key_id: str | None) -> _Jwk | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id or "")

    def _fetch(self) -> dict[str, _Jwk]:
        """What the issuer has; nothing when it cannot be asked."""
        try:
            document: Any = json.loads(self._read())
            keys = [key for key in document["keys"] if _is_for_signatures(key)]
        except (OSError, ValueError, TypeError, KeyError) as error:
            if not self._keys:
                raise ValueError(f"the keys of the issuer cannot be read: {error}") from None
            return {}
        return {str(key.get("kid") or ""): key for key in keys}

    def _read(self) -> bytes:
        parts = urlsplit(self._url)
        if parts.scheme == "file":
            return Path(parts.path).read_bytes()
        from urllib.request import urlopen  # 1.3 MB that only OAUTHBEARER needs

        with urlopen(self._url, timeout=_FETCH_SECONDS) as answer:  # noqa: S310 checked above
            data: bytes = answer.read(_MOST_KEY_BYTES)
            return data
