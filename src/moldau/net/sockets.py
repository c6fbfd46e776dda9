"""The network port on the machine's sockets."""

from __future__ import annotations

import asyncio
import socket

from moldau.clock import Clock
from moldau.net.channel import SocketChannel
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.late_tls import give_tls_to_asyncio
from moldau.net.listener import SocketServer
from moldau.net.port import Accept, ClientTls, ServerTls

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
        if tls is not None:
            give_tls_to_asyncio()
        async with asyncio.timeout(timeout):
            transport, channel = await loop.create_connection(
                SocketChannel, host, port, ssl=None if tls is None else tls.context
            )
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return channel
