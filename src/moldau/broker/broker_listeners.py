"""The broker's listeners: bound before it is ready, answered from then on.

Whoever connects while the broker starts waits for it; the first request of each connection is kept
until `answer`. A shell.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.broker_security import BrokerSecurity
from moldau.broker.dispatch import RequestPump
from moldau.broker.dispatch_table import DispatchTable
from moldau.broker.refused_clients import RefusedClients
from moldau.broker.services import Services
from moldau.config.current import CurrentBrokerOptions
from moldau.config.listeners import Listener
from moldau.errors import StartupError
from moldau.metrics.figures import ConnectionFigures
from moldau.model import ANONYMOUS
from moldau.net.connection_quotas import ConnectionQuotas, PendingConnections
from moldau.net.port import Connection, Network, Server
from moldau.tasks import TaskSupervisor

if TYPE_CHECKING:
    from moldau.broker.sasl_gate import SaslGate
    from moldau.broker.sasl_session import SaslSession
    from moldau.security.sasl_server import StoredLogins


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
        self._newcomers = PendingConnections(services.clock, "login", on_ended=self._on_slow_login)
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
        from moldau.broker.sasl_gate import SaslGate
        from moldau.broker.sasl_session import SaslSession

        name = connection.listener_name
        connection.security_protocol = self._protocols[name]
        connection.principal = ANONYMOUS  # a certificate does not count beside a login
        session = SaslSession(
            connection,
            lambda: self._security.mechanisms_of(name, self._stored_logins()),
            partial(self._security.options_of, name),
            self._services.clock,
            self._newcomers,
            self._refused,
        )
        return SaslGate(connection, self._pump(connection, session), session, self._supervisor)

    def _on_slow_login(self, host: str, reason: str) -> None:
        self._refused.note_login(host, None, "SASL", reason)

    def _stored_logins(self) -> StoredLogins:
        from moldau.security.sasl_server import StoredLogins

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
