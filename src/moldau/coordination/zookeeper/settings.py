"""What a session with ZooKeeper has to know: where the servers are, how long to wait, who it is."""

from __future__ import annotations

import importlib.util
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from moldau.coordination.tree import ROOT, check_path
from moldau.errors import MissingExtraError, StartupError, UsageError

DEFAULT_PORT = 2181
SASL = "sasl"
"""The scheme that proves a credential, where digest shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperSettings:
    servers: tuple[str, ...]  # host:port
    root: str = ""  # the path under which everything is kept, "" for the store's own root
    session_timeout_seconds: float = 18.0
    connection_timeout_seconds: float = 18.0
    max_in_flight_requests: int = 10
    scheme: str = "digest"
    credential: str | None = field(default=None, repr=False)  # user:password
    protects_nodes: bool = False  # with access lists: only who made a node may write it
    new_tls_context: Callable[[], ssl.SSLContext] | None = None  # for each connection; may block

    @classmethod
    def parse(
        cls,
        connect: str,
        *,
        session_timeout_ms: int = 9_000,
        connection_timeout_ms: int = 18_000,
        max_in_flight_requests: int = 10,
        scheme: str = "digest",
        credential: str | None = None,
        protects_nodes: bool = False,
        new_tls_context: Callable[[], ssl.SSLContext] | None = None,
        has_certificate: bool = False,
    ) -> ZookeeperSettings:
        """Read `host:port,host:port/path`. Raises `StartupError`, `UsageError`."""
        if protects_nodes and not credential and not has_certificate:
            raise StartupError(
                "zookeeper.set.acl needs somebody to whom the nodes belong: "
                "set zookeeper.auth.credential=USER:PASSWORD, or zookeeper.ssl.keystore.location "
                "to the certificate of the brokers"
            )
        if credential and scheme == SASL:
            _check_sasl(credential)
        servers, root = parse_connect(connect)
        return cls(
            servers=servers,
            root=root,
            session_timeout_seconds=session_timeout_ms / 1000,
            connection_timeout_seconds=connection_timeout_ms / 1000,
            max_in_flight_requests=max_in_flight_requests,
            scheme=scheme,
            credential=credential or None,
            protects_nodes=protects_nodes,
            new_tls_context=new_tls_context,
        )

    def full_path(self, path: str) -> str:
        """The path as the server knows it."""
        check_path(path)
        if path == ROOT:
            return self.root or ROOT
        return self.root + path

    def own_path(self, full_path: str) -> str:
        return full_path[len(self.root) :] or ROOT


def _check_sasl(credential: str) -> None:
    user, colon, password = credential.partition(":")
    if not user or not colon or not password:
        raise StartupError("zookeeper.auth.credential is not of the form USER:PASSWORD")
    if importlib.util.find_spec("puresasl") is None:
        raise MissingExtraError(
            "zookeeper.auth.scheme=sasl is spoken by pure-sasl: pip install 'moldau[security]'"
        )


def parse_connect(connect: str) -> tuple[tuple[str, ...], str]:
    """The servers, and the path below which everything is kept."""
    hosts, slash, path = connect.strip().partition("/")
    root = (slash + path).rstrip("/")
    try:
        check_path(root or ROOT)
        servers = tuple(_with_port(host.strip()) for host in hosts.split(","))
    except ValueError as error:
        raise UsageError(
            f"{connect!r} names no ZooKeeper servers ({error}); "
            "write HOST:PORT,HOST:PORT with an optional /path at the end"
        ) from None
    return servers, root


def _with_port(server: str) -> str:
    if not server:
        raise ValueError("a server is empty")
    has_port = ":" in server.rpartition("]")[2]  # what is in brackets is an IPv6 address
    if not has_port:
        return f"{server}:{DEFAULT_PORT}"
    port = server.rpartition(":")[2]
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{port!r} is no port")
    return server
