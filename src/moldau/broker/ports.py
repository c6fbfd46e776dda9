"""The outside world as one broker sees it: what a test or a simulation replaces."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.config.declarations.security import TlsOptions
from moldau.coordination.port import Coordination
from moldau.coordination.zookeeper.settings import ZookeeperSettings
from moldau.errors import ConfigurationError, MissingExtraError, StartupError
from moldau.net.port import Network
from moldau.security.tls import FreshContext, client_context
from moldau.storage.files import Files
from moldau.workers import Workers

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ASK_MACOS = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
_ASK_SECONDS = 5.0

_log = logging.getLogger("moldau.coordination.zookeeper")
_SILENT_SECONDS: Final = 2.0
"""How long ZooKeeper may take to answer before the wait is mentioned."""


def read_boot_id() -> str:
    """Which run of this machine it is, empty where the machine does not tell: then it may have
    been restarted at any time."""
    try:
        if _BOOT_ID.exists():
            return _BOOT_ID.read_text(encoding="ascii").strip()
        asked = subprocess.run(  # noqa: S603 a fixed command
            _ASK_MACOS, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
        return asked.stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """See the module. The same code runs over them in production, in tests and in simulations."""

    clock: Clock
    files: Files
    network: Network
    workers: Workers
    unpacking_workers: Workers | None = None
    """For looking inside batches, apart from those that flush; None for the same."""
    open_coordination: Callable[[Path], AbstractAsyncContextManager[Coordination]]
    """Given the first data folder."""
    random: Random = field(default_factory=SystemRandom)
    """For ids, places and jitter; from a seed in simulations."""
    boot_id: Callable[[], str] = read_boot_id
    """Another one after every restart of the machine."""

    def close(self) -> None:
        """End the workers, after the broker."""
        self.workers.close()
        if self.unpacking_workers is not None:
            self.unpacking_workers.close()


@contextlib.asynccontextmanager
async def zookeeper_coordination(
    connect: str, options: BrokerOptions, clock: Clock, workers: Workers
) -> AsyncIterator[Coordination]:
    """A session with ZooKeeper. Who is alone does not pay for importing its client."""
    from moldau.coordination.zookeeper.client import ZookeeperClient

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
        session = await ZookeeperClient.open(settings, clock=clock, workers=workers)
    finally:
        waiting.cancel()
    try:
        yield session
    finally:
        await session.close()


def zookeeper_settings(connect: str, options: BrokerOptions) -> ZookeeperSettings:
    """Reads the certificates, so it blocks. Raises StartupError that says what is wrong."""
    tls = zookeeper_tls_options(options)
    new_context = None
    if tls is not None:
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
