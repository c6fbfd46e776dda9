"""How a client connects, from its options. A shell: certificates are read here.

They are read when a client is made, so that a wrong one is told at once, and again before a
connection when a file has changed.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from moldau.config.declarations.security import ClientSecurityOptions
from moldau.errors import ConfigurationError, MissingExtraError
from moldau.security.logins import login_maker
from moldau.security.rules.sasl_client import Login
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
