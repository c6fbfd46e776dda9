"""How a registry is reached, from settings with Confluent's names. A shell: certificates are read.

The names are those of Confluent's tools and serializers, with or without `schema.registry.` in
front of what is about authentication. What stands beside them (security of brokers, other clients'
settings) is passed over.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from moldau.config.client_options import AdminOptions
from moldau.errors import ConfigurationError
from moldau.security.client_security import tls_context
from moldau.security.rules.sasl import parse_jaas

URL: Final = "schema.registry.url"
_PREFIX: Final = "schema.registry."
_TLS_PREFIX: Final = "schema.registry.ssl."
TIMEOUT_MS: Final = "schema.registry.request.timeout.ms"

_BEARER_HEADERS: Final[Mapping[str, str]] = {
    "target-sr-cluster": "bearer.auth.logical.cluster",
    "Confluent-Identity-Pool-Id": "bearer.auth.identity.pool.id",
}

SETTINGS: Final = (
    URL,
    "basic.auth.credentials.source",
    "basic.auth.user.info",
    "schema.registry.basic.auth.credentials.source",
    "schema.registry.basic.auth.user.info",
    "bearer.auth.credentials.source",
    "bearer.auth.token",
    "schema.registry.bearer.auth.credentials.source",
    "schema.registry.bearer.auth.token",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    TIMEOUT_MS,
)
"""All but those of TLS, which are the broker's names behind `schema.registry.`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where a registry is, and as whom it is asked. Addresses may hold secrets, as headers do."""

    urls: tuple[str, ...] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    timeout_seconds: float | None = None  # as long as is usual


def read_registry_settings(properties: Mapping[str, str]) -> RegistrySettings:
    """Raises ConfigurationError that says which setting is wrong or missing."""
    text = properties.get(URL)
    if not text:
        raise ConfigurationError(
            "there is no schema.registry.url; set it to the registry's address, such as "
            "http://127.0.0.1:8081, or http://127.0.0.1:8080/apis/ccompat/v7 for Apicurio's"
        )
    urls = tuple(one.strip() for one in text.split(",") if one.strip())
    return RegistrySettings(
        urls=urls,
        headers=_authentication(properties, urls),
        tls=_read_tls(properties),
        timeout_seconds=_read_timeout(properties),
    )


def basic_header(user_info: str) -> dict[str, str]:
    """`user:password` as HTTP says it."""
    return {"Authorization": f"Basic {base64.b64encode(user_info.encode()).decode()}"}


def bearer_header(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {_for_header('bearer.auth.token', token)}"}


def _for_header(name: str, text: str) -> str:
    """Without the end of the line that files have; HTTP's own refusal would show the secret."""
    found = text.strip()
    if not (found.isascii() and found.isprintable()):
        raise ConfigurationError(f"{name} has characters in it that cannot be sent")
    return found


def login_in_url(url: str) -> str | None:
    """`user:password` of `http://user:password@host`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None  # whoever asks it says what is wrong with it
    if parts.username is None:
        return None
    return f"{unquote(parts.username)}:{unquote(parts.password or '')}"


def _find(properties: Mapping[str, str], name: str) -> str | None:
    return properties.get(_PREFIX + name) or properties.get(name)


def _authentication(properties: Mapping[str, str], urls: tuple[str, ...]) -> dict[str, str]:
    token = _find(properties, "bearer.auth.token")
    bearer_source = _find(properties, "bearer.auth.credentials.source")
    if bearer_source not in (None, "STATIC_TOKEN"):
        raise ConfigurationError(
            f"bearer.auth.credentials.source: {bearer_source!r} is not served; put a token into "
            "bearer.auth.token and set this to STATIC_TOKEN"
        )
    if token:
        headers = bearer_header(token)
        for header, name in _BEARER_HEADERS.items():
            found = _find(properties, name)
            headers.update({header: _for_header(name, found)} if found else {})
        return headers
    user_info = _user_info(properties, urls)
    if user_info is None:
        return {}
    if ":" not in user_info:
        raise ConfigurationError("basic.auth.user.info is not of the form user:password")
    return basic_header(user_info)


def _user_info(properties: Mapping[str, str], urls: tuple[str, ...]) -> str | None:
    given = _find(properties, "basic.auth.user.info")
    source = _find(properties, "basic.auth.credentials.source")
    match (source or ("USER_INFO" if given else "URL")).upper():
        case "USER_INFO":
            if not given:
                raise ConfigurationError(
                    "basic.auth.credentials.source is USER_INFO, and there is no "
                    "basic.auth.user.info; set it to user:password"
                )
            return given
        case "URL":
            return next((found for url in urls if (found := login_in_url(url))), None)
        case "SASL_INHERIT":
            return _sasl_login(properties)
        case other:
            raise ConfigurationError(
                f"basic.auth.credentials.source: {other!r} is none of USER_INFO, URL, SASL_INHERIT"
            )


def _sasl_login(properties: Mapping[str, str]) -> str:
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    jaas = properties.get("sasl.jaas.config")
    if jaas:
        options = parse_jaas(jaas).options
        user, password = options.get("username"), options.get("password")
    if not user:
        raise ConfigurationError(
            "basic.auth.credentials.source is SASL_INHERIT, and there is no user: set "
            "sasl.jaas.config, or sasl.username and sasl.password"
        )
    return f"{user}:{password or ''}"


def _read_tls(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in properties.items()
        if name.startswith(_TLS_PREFIX)
    }
    return tls_context(AdminOptions.read(given)) if given else None


def _read_timeout(properties: Mapping[str, str]) -> float | None:
    text = properties.get(TIMEOUT_MS)
    if text is None:
        return None
    if not text.strip().isdecimal() or not int(text):
        raise ConfigurationError(f"{TIMEOUT_MS}: {text!r} is no number of milliseconds")
    return int(text) / 1000
