"""Real ZooKeeper servers for tests, on ports of their own, always ended with the test run.

`zookeeper` is a node alone and `zookeeper_ensemble` has three, each started once per process of
the test run (import them where they are used, or use `shared_ensemble`); every test takes a path
of its own in them: `Zookeeper.fresh_connect`. Tests that kill or pause nodes make an ensemble for
themselves with `running_ensemble`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.coordination.zookeeper.server import (
    NodePorts,
    ServerOptions,
    ZookeeperEnsemble,
    ZookeeperNode,
    require_server,
)
from moldau.errors import StartupError
from moldau.testing.free_ports import take_port
from support.waiting import PATIENCE_SECONDS, eventually

TICK_MS = 500
"""Sessions of a second and more."""

_PASSWORD_BYTES = 16
_CLOSE_SESSION = -11


class Zookeeper(ZookeeperEnsemble):
    """Servers, and paths in them that nobody has used yet."""

    _paths = itertools.count(1)

    def fresh_path(self) -> str:
        return f"/test-{os.getpid()}-{next(self._paths)}"

    def fresh_connect(self) -> str:
        """For --zookeeper: a cluster of its own in shared servers."""
        return f"{self.connect}{self.fresh_path()}"

    def leader(self) -> ZookeeperNode:
        """The node that leads the ensemble, or is alone."""
        return eventually(
            lambda: next((n for n in self.nodes if n.mode() in ("leader", "standalone")), None),
            "a leader of the ensemble",
        )

    def followers(self) -> list[ZookeeperNode]:
        return [node for node in self.nodes if node.mode() == "follower"]

    def start_node(self, node: ZookeeperNode) -> None:
        """Again, after it was killed or stopped."""
        node.launch(self._options)
        node.wait_until_ready()


def require_zookeeper() -> None:
    """Skip where ZooKeeper cannot run."""
    try:
        require_server(speaks_tls=False)
    except StartupError as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def running_ensemble(node_count: int, *, flushes: bool = False, **more: Any) -> Iterator[Zookeeper]:
    """Servers of one's own. Killed processes lose nothing without flushes: the page cache stays."""
    require_zookeeper()
    options = ServerOptions(tick_ms=TICK_MS, flushes=flushes, ends_with_parent=True, **more)
    with tempfile.TemporaryDirectory(prefix="moldau-zk-", ignore_cleanup_errors=True) as folder:
        ports = [
            NodePorts(client=take_port(), peer=take_port(), election=take_port())
            for _ in range(node_count)
        ]
        servers = Zookeeper(ZookeeperEnsemble.make(Path(folder), ports, options).nodes, options)
        try:
            servers.start()
            yield servers
        finally:
            servers.kill()


@functools.cache
def shared_ensemble(node_count: int) -> Zookeeper:
    """Started once per process of the test run, ended with it."""
    stack = contextlib.ExitStack()
    servers = stack.enter_context(running_ensemble(node_count))
    atexit.register(stack.close)
    return servers


@pytest.fixture(scope="session")
def zookeeper() -> Zookeeper:
    """One node. Tests share it: use `fresh_connect`."""
    require_zookeeper()
    return shared_ensemble(1)


@pytest.fixture(scope="session")
def zookeeper_ensemble() -> Zookeeper:
    """Three nodes. Tests share them: use `fresh_connect`, and leave all nodes running."""
    require_zookeeper()
    return shared_ensemble(3)


def end_session(port: int, session_id: int, password: bytes) -> None:
    """Let the server end somebody else's session, as it does with one that was silent too long.

    Whoever knows the password may take a session over, and close it. Both requests are sent
    together, so that the owner has no time to come back in between.
    """
    connect = struct.pack(">iqiqi", 0, 0, 10_000, session_id, _PASSWORD_BYTES) + password + b"\0"
    close = struct.pack(">ii", 1, _CLOSE_SESSION)
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(connect)) + connect)
        connection.sendall(struct.pack(">i", len(close)) + close)
        while connection.recv(4096):
            pass
