"""How somebody who connects gets to say who he is: a new exchange for each connection. A shell.

Tokens are fetched in a worker thread, as their issuer may be slow; passwords are in the settings.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from moldau.errors import ConfigurationError, SaslAuthenticationError
from moldau.security.rules.jaas import JaasConfig, parse_jaas
from moldau.security.rules.sasl_client import BearerLogin, Login, PlainLogin, ScramLogin
from moldau.security.rules.scram import HASHES

_NONCE_BYTES: Final = 24
_TOKEN_SECONDS: Final = 10.0
_MOST_TOKEN_BYTES: Final = 1 << 20


def login_maker(
    mechanism: str,
    jaas_config: str | None,
    *,
    username: str | None = None,
    password: str | None = None,
    token_url: str | None = None,
) -> Callable[[], Awaitable[Login]]:
    """Raises ConfigurationError when something is missing that the mechanism needs."""
    jaas = JaasConfig(module="", options={})
    if jaas_config is not None:
        try:
            jaas = parse_jaas(jaas_config)
        except ValueError as fault:
            raise ConfigurationError(f"sasl.jaas.config {fault}") from None
    if mechanism == "OAUTHBEARER":
        return _bearer_maker(jaas, token_url)
    user, word = username or jaas.username, password or jaas.password
    if user is None or word is None:
        raise ConfigurationError(
            f"{mechanism} needs a user and a password: set sasl.jaas.config with username and "
            "password"
        )
    if mechanism == "PLAIN":

        async def make_plain() -> Login:
            return PlainLogin(user, word)

        return make_plain
    if mechanism not in HASHES:
        raise ConfigurationError(f"sasl.mechanism={mechanism} is not one that Moldau has")

    is_token = jaas.options.get("tokenauth", "").lower() == "true"

    async def make_scram() -> Login:
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return ScramLogin(mechanism, user, word, nonce, is_token=is_token)

    return make_scram


def _bearer_maker(jaas: JaasConfig, token_url: str | None) -> Callable[[], Awaitable[Login]]:
    if not token_url:
        raise ConfigurationError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: where to get a token"
        )
    parts = urlsplit(token_url)
    if parts.scheme == "file":
        path = Path(parts.path)

        async def make_of_file() -> Login:
            try:
                return BearerLogin((await asyncio.to_thread(path.read_text)).strip())
            except OSError as error:
                raise SaslAuthenticationError(f"{path}: {error.strerror}") from None

        return make_of_file
    if parts.scheme not in ("https", "http"):
        raise ConfigurationError(
            "sasl.oauthbearer.token.endpoint.url is neither an https nor a file URL"
        )
    names = ("clientId", "clientSecret")
    if any(name not in jaas.options for name in names):
        raise ConfigurationError(
            "OAUTHBEARER needs clientId and clientSecret in sasl.jaas.config for its token"
        )

    async def make_of_issuer() -> Login:
        return BearerLogin(await asyncio.to_thread(_fetch_token, token_url, jaas))

    return make_of_issuer


def _fetch_token(url: str, jaas: JaasConfig) -> str:
    """The client credentials grant (RFC 6749, 4.4)."""
    fields = {"grant_type": "client_credentials"}
    if "scope" in jaas.options:
        fields["scope"] = jaas.options["scope"]
    pair = f"{jaas.options['clientId']}:{jaas.options['clientSecret']}"
    request = Request(  # noqa: S310 the scheme was checked
        url,
        urlencode(fields).encode(),
        {
            "Authorization": f"Basic {b64encode(pair.encode()).decode()}",
            "Accept": "application/json",
        },
    )
    try:
        with urlopen(request, timeout=_TOKEN_SECONDS) as answer:  # noqa: S310
            found = json.loads(answer.read(_MOST_TOKEN_BYTES))
            token: str = found["access_token"]
    except (OSError, ValueError, KeyError) as error:
        raise SaslAuthenticationError(
            f"no token from {urlsplit(url).netloc}: {type(error).__name__}"
        ) from None
    return token
