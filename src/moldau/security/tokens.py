"""Tokens of OAUTHBEARER: signed JWTs, checked with the keys of who issues them (KIP-768). A shell.

Keys come from a JWKS file or URL, are kept for a while, and are fetched again when a token names
one that is not known, though not more often than every few seconds: tokens cost a guesser nothing.
Tokens without a signature are never taken. PyJWT does the work, in a worker thread.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import urlopen

from moldau.clock import Clock
from moldau.config.listener_options import ListenerOptions
from moldau.errors import ConfigurationError, MissingExtraError
from moldau.security.sasl_server import CheckToken, Token
from moldau.workers import Workers

if TYPE_CHECKING:
    from jwt import PyJWK

_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""With a public key: whoever can check a token cannot make one."""
_FETCH_SECONDS: Final = 10.0
_MOST_KEY_BYTES: Final = 1 << 20
_LEAST_SECONDS_BETWEEN_FETCHES: Final = 5.0


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


class _TokenChecker:
    """Used by worker threads; what they share is replaced as a whole."""

    def __init__(self, url: str, options: ListenerOptions, clock: Clock) -> None:
        self._url = url
        self._options = options
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = float("-inf")

    def check(self, text: str) -> Token:
        import jwt

        options = self._options
        try:
            key = self._find_key(jwt.get_unverified_header(text).get("kid"))
            claims = jwt.decode(
                text,
                key,
                algorithms=list(_ALGORITHMS),
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
        subject = claims.get(options.sasl_oauthbearer_sub_claim_name)
        if not isinstance(subject, str) or not subject.strip():
            raise ValueError(f"the token has no claim {options.sasl_oauthbearer_sub_claim_name}")
        return Token(subject, int(claims["exp"]) * 1000)

    def _find_key(self, key_id: str | None) -> PyJWK:
        now = self._clock.monotonic()
        age = now - self._fetched_at
        is_old = age * 1000 >= self._options.sasl_oauthbearer_jwks_endpoint_refresh_ms
        is_unknown = self._choose(key_id) is None and age >= _LEAST_SECONDS_BETWEEN_FETCHES
        if is_old or is_unknown:
            self._fetched_at = now
            self._keys = self._fetch() or self._keys
        found = self._choose(key_id)
        if found is None:
            raise ValueError("the token is signed with a key that the issuer does not have")
        return found

    def _choose(self, key_id: str | None) -> PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id or "")

    def _fetch(self) -> dict[str, PyJWK]:
        """What the issuer has; nothing when it cannot be asked."""
        import jwt

        try:
            document: Any = json.loads(self._read())
            keys = jwt.PyJWKSet.from_dict(document).keys
        except (OSError, ValueError, jwt.PyJWTError) as error:
            if not self._keys:
                raise ValueError(f"the keys of the issuer cannot be read: {error}") from None
            return {}
        return {key.key_id or "": key for key in keys}

    def _read(self) -> bytes:
        parts = urlsplit(self._url)
        if parts.scheme == "file":
            return Path(parts.path).read_bytes()
        with urlopen(self._url, timeout=_FETCH_SECONDS) as answer:  # noqa: S310 checked above
            data: bytes = answer.read(_MOST_KEY_BYTES)
            return data
