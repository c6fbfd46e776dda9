"""Tokens of OAUTHBEARER: signed JWTs, checked with the keys of who issues them (KIP-768). A shell.

Keys come from a JWKS file or URL, are kept for a while, and are fetched again when a token names
one that is not known, though not more often than every few seconds: tokens cost a guesser nothing.
Tokens without a signature are never taken. PyJWT does the work, in a few threads of its own: an
issuer that does not answer holds up logins with tokens, and no flush of a log.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import urlopen

from moldau.clock import Clock
from moldau.config.listener_options import ListenerOptions
from moldau.errors import ConfigurationError, MissingExtraError
from moldau.security.sasl_server import CheckToken, Token
from moldau.workers import Workers

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
        with urlopen(self._url, timeout=_FETCH_SECONDS) as answer:  # noqa: S310 checked above
            data: bytes = answer.read(_MOST_KEY_BYTES)
            return data
