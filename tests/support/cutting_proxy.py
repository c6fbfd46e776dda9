"""A TCP proxy between a client and a broker that cuts connections where it is told to.

A broker that is to be reached through it advertises the proxy's address. Bytes are counted for
each direction over all connections, so that a cut can fall on any byte of a request or an answer.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from enum import Enum
from typing import Self

_BUFFER_BYTES = 65536
_ACCEPT_SECONDS = 0.1
_RESET = struct.pack("ii", 1, 0)


class Way(Enum):
    """Which way bytes go."""

    TO_BROKER = "to the broker"
    TO_CLIENT = "to the client"


class _Trap:
    """After so many more bytes a connection is cut, or falls silent."""

    def __init__(self, left: int, *, silently: bool) -> None:
        self.left = left
        self.silently = silently
        self.sprung = threading.Event()


class CuttingProxy:
    """Listens from `with` on; passes everything on until a trap is set."""

    def __init__(self, port: int) -> None:
        self.broker_port = port
        self.passed = dict.fromkeys(Way, 0)  # bytes, ever
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_ACCEPT_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._traps: dict[Way, _Trap] = {}
        self._sockets: set[socket.socket] = set()
        self._deaf: set[socket.socket] = set()  # nothing more is taken from these
        self._over = threading.Event()
        self._is_closing = False
        self._threads: list[threading.Thread] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._over.set()
        self.cut_all()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def cut_after(self, way: Way, count: int, *, silently: bool = False) -> threading.Event:
        """Cut the connection over which that byte goes; tells when it has happened.

        `silently`: nothing more comes through, and nobody is told.
        """
        trap = _Trap(count, silently=silently)
        with self._lock:
            self._traps[way] = trap
        return trap.sprung

    def disarm(self) -> None:
        with self._lock:
            self._traps.clear()

    def cut_all(self) -> None:
        with self._lock:
            sockets = tuple(self._sockets)
        for one in sockets:
            _hang_up(one)

    def go_deaf(self) -> None:
        """Take nothing more from the connections there are: their senders' buffers fill up."""
        with self._lock:
            self._deaf |= self._sockets

    def _accept(self) -> None:
        while not self._is_closing:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
            except OSError:
                client.close()
                continue
            client.settimeout(None)
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, broker}
            self._start(self._pump, client, broker, Way.TO_BROKER)
            self._start(self._pump, broker, client, Way.TO_CLIENT)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, way: Way) -> None:
        is_silent = False
        while True:
            try:
                data = source.recv(_BUFFER_BYTES)
            except OSError:
                data = b""
            if not data:
                break
            if source in self._deaf:
                self._over.wait()
                break
            if is_silent:
                continue
            allowed, trap = self._count(way, len(data))
            with contextlib.suppress(OSError):
                target.sendall(data[:allowed])
            if trap is not None:
                is_silent = trap.silently
                if not is_silent:
                    _hang_up(source)
                    _hang_up(target)
                trap.sprung.set()
        _hang_up(target)
        self._forget(source)

    def _count(self, way: Way, size: int) -> tuple[int, _Trap | None]:
        """How many of these bytes may pass, and the trap that they spring."""
        with self._lock:
            trap = self._traps.get(way)
            if trap is None or size < trap.left or (size == trap.left and trap.left == 0):
                if trap is not None:
                    trap.left -= size
                self.passed[way] += size
                return size, None
            del self._traps[way]
            self.passed[way] += trap.left
            return trap.left, trap

    def _forget(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(one)
            self._deaf.discard(one)
        one.close()


def _hang_up(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
