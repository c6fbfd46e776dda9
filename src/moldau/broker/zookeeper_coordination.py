"""A broker's session with ZooKeeper, made of its options. Part of the composition root."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.config.declarations.security import TlsOptions
from moldau.coordination.port import Coordination
from moldau.errors import ConfigurationError, MissingExtraError, StartupError
from moldau.workers import Workers

if TYPE_CHECKING:
    from moldau.coordination.zookeeper_settings import ZookeeperSettings

_log = logging.getLogger("moldau.coordination.zookeeper")

_SILENT_SECONDS: Final = 2.0
"""How long ZooKeeper may take to answer before the wait is mentioned."""


@contextlib.asynccontextmanager
async def zookeeper_coordination(
    connect: str, options: BrokerOptions, clock: Clock, workers: Workers
) -> AsyncIterator[Coordination]:
    """A session with ZooKeeper. Who is alone does not pay for importing its client."""
    from moldau.coordination.zookeeper import ZookeeperSession

    settings = await workers.run(lambda: zookeeper_settings(connect, options))
    timeout = settings.connection_timeout_seconds
    waiting = clock.call_later(
        _SILENT_SECONDS,
        lambda: _log.warning(
            "ZooKeeper at %s has not answered yet; the broker waits for it, %g seconds at most",
            ", ".join(settings.servers),
            timeout,
        ),
    )
    try:
        session = await ZookeeperSession.open(settings, clock=clock, workers=workers)
    finally:
        waiting.cancel()
    try:
        yield session
    finally:
        await session.close()


def zookeeper_settings(connect: str, options: BrokerOptions) -> ZookeeperSettings:
    """Reads the certificates, so it blocks. Raises StartupError that says what is wrong."""
    from moldau.coordination.zookeeper_settings import ZookeeperSettings

    tls = zookeeper_tls_options(options)
    new_context = None
    if tls is not None:
        from moldau.security.fresh_context import FreshContext
        from moldau.security.tls import client_context

        new_context = FreshContext("the connection to ZooKeeper", tls, client_context)
        try:
            new_context.load()
        except (ConfigurationError, MissingExtraError) as error:
            raise StartupError(f"TLS to ZooKeeper (zookeeper.ssl.*): {error}") from None
    return ZookeeperSettings.parse(
        connect,
        session_timeout_ms=options.zookeeper_session_timeout_ms,
        connection_timeout_ms=options.zookeeper_connection_timeout_ms,
        max_in_flight_requests=options.zookeeper_max_in_flight_requests,
        scheme=options.zookeeper_auth_scheme,
        credential=options.zookeeper_auth_credential,
        protects_nodes=options.zookeeper_set_acl,
        new_tls_context=new_context,
        has_certificate=tls is not None and bool(tls.ssl_keystore_location),
    )


def zookeeper_tls_options(options: BrokerOptions) -> TlsOptions | None:
    """The certificates for ZooKeeper as those of a client; None where TLS is not asked for."""
    if not options.zookeeper_ssl_client_enable:
        return None
    defaults = {one.attribute: one.default for one in TlsOptions.declarations().values()}
    return TlsOptions(defaults).replace(
        ssl_keystore_location=options.zookeeper_ssl_keystore_location,
        ssl_keystore_password=options.zookeeper_ssl_keystore_password,
        ssl_truststore_location=options.zookeeper_ssl_truststore_location,
        ssl_truststore_password=options.zookeeper_ssl_truststore_password,
        ssl_enabled_protocols=options.zookeeper_ssl_enabled_protocols,
        ssl_cipher_suites=options.zookeeper_ssl_cipher_suites,
        ssl_endpoint_identification_algorithm=(
            options.zookeeper_ssl_endpoint_identification_algorithm
        ),
    )
