"""The network port on the machine's sockets: listening sockets, and connections to brokers.

A listening socket accepts while there is a slot (`connection_quotas`) and closes idle connections.
A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import TypeVar

from moldau.clock import Clock, Timer
from moldau.net.channel import SocketChannel
from moldau.net.connection import SocketConnection
from moldau.net.connection_quotas import ConnectionQuotas, PendingConnections
from moldau.net.port import Accept, ClientTls, ServerTls
from moldau.net.tls_connection import HandshakeTurns, PeerCertificate, TlsConnection

_BACKLOG = 1024


class SocketNetwork:
    """Listens and connects with TCP."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        listener_name: str,
        quotas: ConnectionQuotas,
        tls: ServerTls | None = None,
    ) -> SocketServer:
        """Raises OSError when the address is in use or is not one of this machine."""
        loop = asyncio.get_running_loop()
        # Bytes where that will do: for a text Python loads the tables of all alphabets.
        name = host.encode() if host.isascii() else host
        found = await loop.getaddrinfo(
            name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # An empty host lists IPv6 and IPv4; a dual-stack socket would surprise on some systems,
        # so the first IPv4 address is preferred.
        family, kind, protocol, _, address = min(found, key=lambda row: row[0] != socket.AF_INET)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(address)
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
        server = SocketServer(
            sock, accept, clock=self._clock, listener_name=listener_name, quotas=quotas, tls=tls
        )
        server.begin()
        return server

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout: float,  # noqa: ASYNC109 the port says it
        tls: ClientTls | None = None,
    ) -> SocketChannel:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            transport, channel = await loop.create_connection(
                SocketChannel, host, port, ssl=None if tls is None else tls.context
            )
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return channel


C = TypeVar("C", bound=SocketConnection)

_log = logging.getLogger("moldau.net")

_ACCEPTS_PER_TURN = 128
_PAUSE_AFTER_FAILURE_S = 1.0
_MOST_SECONDS_BETWEEN_SWEEPS = 10.0
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class SocketServer:
    """One listening address and its connections."""

    def __init__(
        self,
        sock: socket.socket,
        accept: Accept,
        *,
        clock: Clock,
        listener_name: str,
        quotas: ConnectionQuotas,
        tls: ServerTls | None = None,
    ) -> None:
        self._socket = sock
        address = sock.getsockname()
        self.host: str = address[0]
        self.port: int = address[1]
        self._accept = accept
        self._clock = clock
        self.listener_name = listener_name
        self._quotas = quotas
        self._limits = quotas.limits
        self._tls = tls
        self._pending = PendingConnections(
            clock, "TLS handshake", on_ended=None if tls is None else tls.refused
        )
        self._loop = asyncio.get_running_loop()
        self._turns = HandshakeTurns(self._loop)
        self.connections: set[SocketConnection] = set()  # open ones only
        self._accepted = 0
        self._accepting = False
        self._sweep: Timer | None = None
        self._resume: Timer | None = None

    def begin(self) -> None:
        self._accepting = True
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)
        self._quotas.join(self)
        self._schedule_sweep()

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            wait = self._quotas.seconds_until_slot(self.listener_name)
            if wait:
                self._pause(wait)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                advice = "; raise the limit of open files (ulimit -n)"
                _log.error(
                    "cannot accept on %s:%d: %s%s",
                    self.host,
                    self.port,
                    error.strerror,
                    advice if error.errno in _OUT_OF_DESCRIPTORS else "",
                )
                self._pause(_PAUSE_AFTER_FAILURE_S)
                return
            self._admit(sock, _plain_address(address[0]), address[1])

    def _pause(self, seconds: float) -> None:
        """The kernel would report the waiting client again at once: come back a little later."""
        self._loop.remove_reader(self._socket.fileno())
        self._resume = self._clock.call_later(seconds, self.accept_again)

    def accept_again(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
            if self._accepting:
                self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _admit(self, sock: socket.socket, peer_host: str, peer_port: int) -> None:
        self._quotas.note_accepted(self.listener_name)
        refusal = self._quotas.find_refusal(peer_host)
        if refusal is not None:
            _log.warning("refused %s: %s", peer_host, refusal)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._accepted += 1
        identity = f"{self.host}:{self.port}-{peer_host}:{peer_port}-{self._accepted}"
        if self._tls is None:
            connection = self._make(SocketConnection, sock, identity, peer_host)
        else:
            secured = _wrap(sock, self._tls)
            if secured is None:
                return
            connection = encrypted = self._make(TlsConnection, secured, identity, peer_host)
            encrypted.secure(self._turns, self._on_shaken, self._on_refused)
            self._pending.add(encrypted)
        connection.idle_since = self._clock.monotonic()
        self.connections.add(connection)
        self._quotas.add(self.listener_name, peer_host)
        connection.begin(self._accept(connection))

    def _make(self, kind: type[C], sock: socket.socket, identity: str, peer_host: str) -> C:
        return kind(
            sock,
            self._loop,
            identity=identity,
            peer_host=peer_host,
            listener_name=self.listener_name,
            limits=self._limits,
            on_gone=self._forget,
        )

    def _on_shaken(self, connection: TlsConnection, certificate: PeerCertificate) -> None:
        self._pending.discard(connection)
        if self._tls is not None:
            try:
                connection.principal = self._tls.identify(certificate)
            except ValueError as fault:
                reason = f"the certificate of {connection.peer_host} {fault}"
                connection.close(reason)
                self._on_refused(connection, reason)

    def _on_refused(self, connection: TlsConnection, reason: str) -> None:
        if self._tls is not None:
            self._tls.refused(connection.peer_host, reason)

    def _forget(self, connection: SocketConnection) -> None:
        self.connections.discard(connection)
        self._quotas.remove(self.listener_name, connection.peer_host)
        if self._tls is not None:
            self._pending.discard(connection)
        _log.debug("connection %s ended: %s", connection.id, connection.close_reason)

    # Idle connections

    def _schedule_sweep(self) -> None:
        idle_s = self._limits.connections_max_idle_ms / 1000
        pause = min(idle_s / 2, _MOST_SECONDS_BETWEEN_SWEEPS) if idle_s > 0 else None
        self._sweep = self._clock.call_later(pause or _MOST_SECONDS_BETWEEN_SWEEPS, self._on_sweep)

    def _on_sweep(self) -> None:
        now = self._clock.monotonic()
        idle_s = self._limits.connections_max_idle_ms / 1000
        for connection in tuple(self.connections):
            if connection.frames != connection.seen_frames or connection.is_busy:
                connection.seen_frames = connection.frames
                connection.idle_since = now
                continue
            connection.shrink()
            if idle_s > 0 and now - connection.idle_since >= idle_s:
                connection.close("idle for connections.max.idle.ms")
        self._quotas.close_excess()
        self._schedule_sweep()

    # The end

    def stop_accepting(self) -> None:
        if not self._accepting:
            return
        self._accepting = False
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._pending.close()
        self._quotas.leave(self)
        for timer in (self._sweep, self._resume):
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        self.stop_accepting()
        for connection in tuple(self.connections):
            connection.close("the broker stops")


def _plain_address(host: str) -> str:
    """A socket for IPv6 may take IPv4, too, and calls 10.0.0.7 `::ffff:10.0.0.7`; access lists,
    quotas and limits do not."""
    return host.removeprefix("::ffff:") if "." in host else host


def _wrap(sock: socket.socket, tls: ServerTls) -> ssl.SSLSocket | None:
    """None when the client is gone already."""
    try:
        return tls.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    except (OSError, ValueError):
        sock.close()
        return None
