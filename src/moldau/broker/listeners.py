"""The broker's listeners, and checks for insecure ones.

Listeners are bound before the broker is ready, and answer from then on: clients that connect while
it starts wait. The first request of each connection is kept until `answer`. A shell.
"""

from __future__ import annotations

import errno
import logging
import stat
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from moldau.broker.api import Services
from moldau.broker.authentication import RefusedClients, SaslGate, SaslSession
from moldau.broker.dispatch import DispatchTable, RequestPump
from moldau.broker.security import BrokerSecurity
from moldau.config.broker_options import BrokerOptions, CurrentBrokerOptions
from moldau.config.declarations.network import split_address
from moldau.config.listeners import Listener, is_loopback
from moldau.errors import StartupError
from moldau.metrics.figures import ConnectionFigures
from moldau.model import ANONYMOUS
from moldau.net.connection_quotas import ConnectionQuotas, PendingConnections
from moldau.net.port import Connection, Network, Server
from moldau.security.sasl_server import StoredLogins
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.broker.security")
_PROTECTING = (
    "ssl.client.auth",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
)
"""Who sets one of these means to be protected."""


class BrokerListeners:
    """The listeners of one broker. `listen` once, then `answer` once."""

    def __init__(
        self,
        network: Network,
        *,
        table: DispatchTable,
        services: Services,
        supervisor: TaskSupervisor,
        current: CurrentBrokerOptions,
        security: BrokerSecurity,
    ) -> None:
        self._network = network
        self._table = table
        self._services = services
        self._supervisor = supervisor
        self._current = current
        self._security = security
        self._protocols = {
            one.name: one.security_protocol for one in current.options.open_listeners
        }
        self._quotas = ConnectionQuotas(current, services.clock)
        self._refused = RefusedClients(services.clock, services.audit)
        self._pending = PendingConnections(services.clock, "login", on_ended=self._on_slow_login)
        self._early: list[RequestPump] | None = []  # connections before the broker is ready
        self.figures: dict[str, ConnectionFigures] = {}  # by the listener's name

    async def listen(self, close_later: Callable[[Callable[[], Awaitable[None]]], object]) -> None:
        """Bind every listener; `close_later` is told how to close it, one after the other."""
        ports: dict[str, int] = {}
        for listener in self._current.options.open_listeners:
            if listener.uses_sasl:  # a wrong setting is told now, and not at the first login
                self._security.mechanisms_of(listener.name, self._stored_logins())
            server = await self._bind(listener)
            close_later(server.close)
            ports[listener.name] = server.port
        self.ports = ports  # the real ones, by the listener's name

    async def _bind(self, listener: Listener) -> Server:
        try:
            return await self._network.listen(
                listener.host,
                listener.port,
                self._accept_with_login if listener.uses_sasl else self._accept,
                listener_name=listener.name,
                quotas=self._quotas,
                tls=self._security.tls_of(listener, self._refused.note_handshake),
            )
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            hint = "is another broker running there?" if in_use else "is it this machine's?"
            raise StartupError(
                f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror}; "
                f"{hint} Choose another address with --listen"
            ) from error

    def _accept(self, connection: Connection) -> RequestPump:
        connection.security_protocol = self._protocols[connection.listener_name]
        return self._pump(connection, None)

    def _accept_with_login(self, connection: Connection) -> SaslGate:
        name = connection.listener_name
        connection.security_protocol = self._protocols[name]
        connection.principal = ANONYMOUS  # a certificate does not count beside a login
        session = SaslSession(
            connection,
            lambda: self._security.mechanisms_of(name, self._stored_logins()),
            partial(self._security.options_of, name),
            self._services.clock,
            self._pending,
            self._refused,
        )
        return SaslGate(connection, self._pump(connection, session), session, self._supervisor)

    def _on_slow_login(self, host: str, reason: str) -> None:
        self._refused.note_login(host, None, "SASL", reason)

    def _stored_logins(self) -> StoredLogins:
        return StoredLogins(self._services.credentials.find, self._services.tokens.find)

    def _pump(self, connection: Connection, sasl: SaslSession | None) -> RequestPump:
        figures = self.figures.setdefault(connection.listener_name, ConnectionFigures())
        figures.accepted += 1
        pump = RequestPump(connection, self._table, self._services, self._supervisor, figures, sasl)
        if self._services.quotas.is_enabled:
            self._maybe_turn_away(connection)
        if self._early is not None:
            pump.hold()
            self._early.append(pump)
        return pump

    def _maybe_turn_away(self, connection: Connection) -> None:
        """An address that opens connections too fast: as in Kafka, one too many is not read from,
        and closed when another may come (KIP-612)."""
        seconds = self._services.quotas.admit_connection(connection.peer_host)
        if seconds > 0:
            connection.mute()
            reason = "connection_creation_rate of its address is exceeded"
            self._services.clock.call_later(seconds, lambda: connection.close(reason))

    def answer(self) -> None:
        """The broker is ready: answer what came while it was starting, and all that comes."""
        early, self._early = self._early or [], None
        for pump in early:
            pump.release()


# Insecure listeners and metrics, and keys that all can read: checked when a broker starts, before
# it listens.


def refuse_insecure(options: BrokerOptions) -> None:
    """Raises StartupError where anybody on the network could read and delete everything, unless
    that is wanted; then it is said at each start."""
    _warn_of_idle_settings(options)
    for listener in options.open_listeners:
        if listener.is_on_loopback:
            continue
        if listener.security_protocol != "PLAINTEXT":
            _warn_of_strangers(listener, options)
            continue
        if not options.insecure_listeners_enable:
            raise StartupError(
                f"the listener {listener} would be open to everybody who can reach this machine: "
                "nobody has to say who he is, and nothing is encrypted. Secure it (`moldau secure "
                "init` makes what that needs; see docs/security.md), or start with --insecure "
                "where the network is yours alone"
            )
        _log.warning(
            "the listener %s is not secured (--insecure): whoever can reach it reads, writes and "
            "deletes everything",
            listener,
        )
    _refuse_open_metrics(options)


def _refuse_open_metrics(options: BrokerOptions) -> None:
    """They tell the names of topics, groups and clients to everybody who asks."""
    address = options.metrics_listener
    if address is None or is_loopback(split_address(address)[0]):
        return
    if not options.insecure_listeners_enable:
        raise StartupError(
            f"metrics.listener={address} would tell everybody who can reach this machine the names "
            "of topics, groups and clients: there is no login, and nothing is encrypted. Serve "
            "them on 127.0.0.1, behind a proxy that asks who it is, or start with --insecure where "
            "the network is yours alone"
        )
    _log.warning(
        "the metrics on %s are not secured (--insecure): whoever can reach them reads them", address
    )


def warn_of_open_keys(options: BrokerOptions) -> None:
    """Say which private keys everybody on this machine can read. Blocks for a moment."""
    secured = [one for one in options.open_listeners if one.uses_tls]
    stores = [options.of_listener(one.name).ssl_keystore_location for one in secured]
    if options.zookeeper_ssl_client_enable:
        stores.append(options.zookeeper_ssl_keystore_location)
    for path in dict.fromkeys(filter(None, stores)):
        if is_readable_by_all(Path(path)):
            _log.warning(
                "everybody on this machine can read the private key in %s: chmod 600 it", path
            )


def is_readable_by_all(path: Path) -> bool:
    """Not when it is missing: others say that."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _warn_of_idle_settings(options: BrokerOptions) -> None:
    if any(one.uses_tls or one.uses_sasl for one in options.open_listeners):
        return
    for name in _PROTECTING:
        if name in options.layers.static:
            _log.warning(
                "%s is set and protects nothing: no listener uses TLS or SASL. Name one of SSL, "
                "SASL_SSL or SASL_PLAINTEXT in listeners",
                name,
            )


def _warn_of_strangers(listener: Listener, options: BrokerOptions) -> None:
    """Encryption alone keeps nobody out."""
    if listener.uses_sasl or options.authorizer_class_name:
        return
    if options.of_listener(listener.name).ssl_client_auth != "required":
        _log.warning(
            "the listener %s is encrypted, and nobody has to say who he is: whoever can reach it "
            "reads, writes and deletes everything. Set ssl.client.auth=required, or use SASL_SSL",
            listener,
        )
