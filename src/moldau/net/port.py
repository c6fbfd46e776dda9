"""The network port: frames in, chunks out.

A server side hands each accepted connection to the broker as a `Connection` and feeds its frames
to a `FrameReceiver`. `net.sockets` does that on real sockets; `moldau.testing.MemoryNetwork` does
it inside one process, where links can be cut and delayed.

Rules that every implementation keeps, and the broker relies on:

1. One frame at a time: after `on_frame` the connection gives no further frame before `send`,
   `skip_answer` or `owe_answer` was called for it. So answers leave in the order of their requests,
   and a client that does not read its answers is not read from.
2. The frame is a writable view that stays valid until that call; afterwards it must not be used.
3. `on_closed` is called exactly once, and nothing is called after it.
4. What a client sent before it closed counts: its frames are still handed over, one after the
   other, and answers to it are dropped (NET-4). `on_client_gone` says that this has begun.
5. Answers that are owed leave in the order in which the receiver gives them to `send_owed`: that of
   their frames. No frame comes while `MOST_OWED_ANSWERS` are owed, and no answer to another frame
   may be sent before them.
6. No frame comes while the connection is muted; answers leave as ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from moldau.model import Principal

if TYPE_CHECKING:
    import ssl

    from moldau.net.connection_quotas import ConnectionQuotas

MOST_OWED_ANSWERS: Final = 32
"""A client with more requests in flight than this waits for its first answers. Each of them holds
what its answer will say, and no records."""


class Range(Protocol):
    """Bytes of a file, to be moved by the kernel where it can (`storage.files.FileSlice`)."""

    @property
    def descriptor(self) -> int | None: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    def read(self) -> bytes: ...


Chunk = bytes | bytearray | memoryview | Range


class Connection(Protocol):
    """The broker's end of one client connection."""

    principal: Principal
    """Who is at the other end: `ANONYMOUS` until somebody was recognised."""
    security_protocol: str
    """How the listener is secured: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    @property
    def id(self) -> str:
        """Names it in logs and quotas."""
        ...

    @property
    def peer_host(self) -> str: ...

    @property
    def listener_name(self) -> str: ...

    @property
    def is_heard(self) -> bool:
        """False once answers cannot reach the client any more, while its last frames still come."""
        ...

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Answer the current frame: the chunks are the whole answer with its length in front."""
        ...

    def skip_answer(self) -> None:
        """The current frame wants no answer (produce with acks=0)."""
        ...

    def owe_answer(self) -> None:
        """The current frame is dealt with, and the next may come; its answer follows later."""
        ...

    def send_owed(self, chunks: Sequence[Chunk]) -> None:
        """The answer to the oldest frame whose answer is owed; no chunks where it has none."""
        ...

    def mute(self) -> None:
        """Hand over no further frame until `unmute`; the current one is answered as ever."""
        ...

    def unmute(self) -> None:
        """Go on. Does nothing when it is not muted, or closed."""
        ...

    def limit_requests(self, max_bytes: int | None) -> None:
        """Until it is called with None, a larger request ends the connection: of somebody whom
        nobody knows yet, little is read."""
        ...

    def close(self, reason: str) -> None:
        """End it now; what was not sent is lost."""
        ...


class FrameReceiver(Protocol):
    """What the broker puts behind a connection."""

    def on_frame(self, frame: memoryview) -> None:
        """One whole request, without its length."""
        ...

    def on_client_gone(self) -> None:
        """The client has closed while an answer was worked on or owed: nobody waits for it.

        The frame ends with `send` or `skip_answer` as ever, and what is owed with `send_owed`;
        frames that came before the end follow.
        At most once, and before `on_closed`.
        """
        ...

    def on_closed(self) -> None: ...


Accept = Callable[[Connection], FrameReceiver]


class Server(Protocol):
    """A listening address."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int:
        """The real port, also when 0 was asked for."""
        ...

    def stop_accepting(self) -> None: ...

    async def close(self) -> None:
        """Stop accepting and close every connection."""
        ...


class Channel(Protocol):
    """A client's end: whole frames out, whole frames in. One task uses it at a time per side."""

    async def send(self, frame: Sequence[Chunk]) -> None:
        """Send one frame; the chunks begin with its length. Waits while the peer is slow."""
        ...

    async def receive(self) -> bytes | bytearray | memoryview:
        """The next frame without its length; raises `ConnectionError` when the peer is gone."""
        ...

    async def close(self) -> None: ...


class ServerTls(Protocol):
    """How a listener encrypts."""

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection: certificates may be renewed while others are open."""
        ...

    def identify(self, certificate: Mapping[str, Any]) -> Principal:
        """Who shows this certificate; it was verified, and is empty where none was shown. Raises
        ValueError, which says why nobody with this name is let in."""
        ...

    def refused(self, host: str, reason: str) -> None:
        """Is told of each client that did not get through the handshake."""
        ...


class ClientTls(Protocol):
    """How somebody who connects encrypts."""

    @property
    def context(self) -> ssl.SSLContext: ...


class Network(Protocol):
    """Listens and connects, in the clear or with TLS."""

    async def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        listener_name: str,
        quotas: ConnectionQuotas,
        tls: ServerTls | None = None,
    ) -> Server: ...

    def connect(
        self, host: str, port: int, *, timeout: float, tls: ClientTls | None = None
    ) -> Awaitable[Channel]: ...


class ConnectionLimits(Protocol):
    """Read on every use, so that they can change while the broker runs (`config` implements it)."""

    @property
    def socket_request_max_bytes(self) -> int: ...

    @property
    def max_connections(self) -> int: ...

    @property
    def max_connections_per_ip(self) -> int: ...

    def max_connections_for(self, host: str) -> int:
        """`max.connections.per.ip.overrides` first, then `max.connections.per.ip`."""
        ...

    def max_connections_on(self, listener_name: str) -> int:
        """Of one listener, beside those of the broker."""
        ...

    @property
    def max_connection_creation_rate(self) -> int: ...

    def max_connection_creation_rate_on(self, listener_name: str) -> int:
        """Of one listener, beside that of the broker."""
        ...

    def is_protected(self, listener_name: str) -> bool:
        """Whether it is for the brokers, while clients have others."""
        ...

    @property
    def connections_max_idle_ms(self) -> int: ...
