"""How a client connects, from its options. A shell: certificates are read here.

They are read when a client is made, so that a wrong one is told at once, and again before a
connection when a file has changed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from moldau.config.declarations.security import ClientSecurityOptions
from moldau.errors import ConfigurationError, MissingExtraError, SaslAuthenticationError
from moldau.security.rules.sasl import (
    BearerLogin,
    JaasConfig,
    Login,
    PlainLogin,
    ScramLogin,
    parse_jaas,
)
from moldau.security.rules.scram import HASHES
from moldau.security.tls import client_context, files_of


class ClientTlsFiles:
    """The certificates of a client. Implements `net.port.ClientTls`."""

    def __init__(self, options: ClientSecurityOptions) -> None:
        self._options = options
        self._stamps = self._read_stamps()
        self._context = client_context(options)

    @property
    def context(self) -> ssl.SSLContext:
        stamps = self._read_stamps()
        if stamps != self._stamps:
            try:
                self._context = client_context(self._options)
            except (ConfigurationError, MissingExtraError):
                return self._context  # written at the moment, perhaps
            self._stamps = stamps
        return self._context

    def _read_stamps(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in files_of(self._options))


class SecurityOfClient(NamedTuple):
    """The parts of `net.secured.ClientSecurity`."""

    tls: ClientTlsFiles | None
    new_login: Callable[[], Awaitable[Login]] | None


def secure_client(options: ClientSecurityOptions) -> SecurityOfClient | None:
    """None for a client in the clear. Raises ConfigurationError that says what is wrong."""
    protocol = options.security_protocol
    if protocol == "PLAINTEXT":
        return None
    tls = ClientTlsFiles(_with_java_names(options)) if protocol.endswith("SSL") else None
    new_login = None
    if protocol.startswith("SASL_"):
        new_login = login_maker(
            options.sasl_mechanism,
            options.sasl_jaas_config,
            username=options.sasl_username,
            password=options.sasl_password,
            token_url=options.sasl_oauthbearer_token_endpoint_url,
        )
    return SecurityOfClient(tls, new_login)


def tls_context(options: ClientSecurityOptions) -> ssl.SSLContext:
    """For other servers than brokers, with the same names for certificates and keys."""
    return client_context(_with_java_names(options))


def _with_java_names(options: ClientSecurityOptions) -> ClientSecurityOptions:
    """What librdkafka's names say under Java's."""
    others: dict[str, object] = {}
    if options.ssl_ca_location and not options.ssl_truststore_location:
        others["ssl_truststore_location"] = options.ssl_ca_location
    if options.ssl_certificate_location:
        if not options.ssl_key_location:
            raise ConfigurationError("ssl.certificate.location needs ssl.key.location, its key")
        others["ssl_keystore_certificate_chain"] = _read(options.ssl_certificate_location)
        others["ssl_keystore_key"] = _read(options.ssl_key_location)
    return options.replace(**others)


def _read(location: str) -> str:
    try:
        return Path(location).read_text("latin-1")
    except OSError as error:
        raise ConfigurationError(f"{location} cannot be read: {error.strerror}") from None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# How somebody who connects gets to say who he is: a new exchange for each connection. A shell.
#
# Tokens are fetched in a worker thread, as their issuer may be slow; passwords are in the settings.


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
