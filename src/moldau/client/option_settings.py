"""From the options of a client to what its connections and attempts need. Values in, values out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau import __version__
from moldau.client.cluster_client import ClientSettings
from moldau.client.connections import ConnectionSettings
from moldau.client.rules.retries import Backoff
from moldau.config.client_options import ClientOptions

if TYPE_CHECKING:
    from moldau.net.secured import ClientSecurity


def connection_settings(options: ClientOptions) -> ConnectionSettings:
    return ConnectionSettings(
        security=client_security(options),
        client_id=options.client_id,
        client_version=__version__,
        connect_seconds=options.socket_connection_setup_timeout_ms / 1000,
        request_seconds=options.request_timeout_ms / 1000,
    )


def client_security(options: ClientOptions) -> ClientSecurity | None:
    """None for a client in the clear, which does not pay for importing the rest."""
    if options.security_protocol == "PLAINTEXT":
        return None
    from moldau.net.secured import ClientSecurity
    from moldau.security.client_security import secure_client

    found = secure_client(options)
    return None if found is None else ClientSecurity(*found, client_id=options.client_id)


def client_settings(options: ClientOptions, *, timeout_ms: int) -> ClientSettings:
    """The time-out is that of one operation with all its attempts."""
    return ClientSettings(
        connection=connection_settings(options),
        timeout_seconds=timeout_ms / 1000,
        backoff=Backoff(
            first_seconds=options.retry_backoff_ms / 1000,
            max_seconds=max(options.retry_backoff_max_ms, options.retry_backoff_ms) / 1000,
        ),
    )
