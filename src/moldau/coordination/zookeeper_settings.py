"""What a session with ZooKeeper has to know: where the servers are, how long to wait, who it is."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.coordination.tree import ROOT, check_path
from moldau.errors import StartupError

DEFAULT_PORT = 2181


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperSettings:
    servers: tuple[str, ...]  # host:port
    root: str = ""  # the path under which everything is kept, "" for the store's own root
    session_timeout_seconds: float = 18.0
    connection_timeout_seconds: float = 18.0
    max_in_flight_requests: int = 10
    scheme: str = "digest"
    credential: str | None = None  # user:password with the digest scheme
    protects_nodes: bool = False  # with access lists: only this credential may write

    @classmethod
    def parse(
        cls,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        max_in_flight_requests: int = 10,
        scheme: str = "digest",
        credential: str | None = None,
        protects_nodes: bool = False,
    ) -> ZookeeperSettings:
        """Read `host:port,host:port/path`. Raises `StartupError` that says what is wrong."""
        if protects_nodes and not credential:
            raise StartupError(
                "zookeeper.set.acl needs somebody to whom the nodes belong: "
                "set zookeeper.auth.credential=USER:PASSWORD"
            )
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
        )

    def full_path(self, path: str) -> str:
        """The path as the server knows it."""
        check_path(path)
        if path == ROOT:
            return self.root or ROOT
        return self.root + path

    def own_path(self, full_path: str) -> str:
        return full_path[len(self.root) :] or ROOT


def parse_connect(connect: str) -> tuple[tuple[str, ...], str]:
    """The servers, and the path below which everything is kept."""
    hosts, slash, path = connect.strip().partition("/")
    root = (slash + path).rstrip("/")
    try:
        check_path(root or ROOT)
        servers = tuple(_with_port(host.strip()) for host in hosts.split(","))
    except ValueError as error:
        raise StartupError(
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
