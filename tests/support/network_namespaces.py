"""Places in a network of their own, and cuts between them: Linux, and only as root.

Every place is a network namespace with one cable to a common bridge, at which the test itself is,
too. A cut place reaches nobody and is reached by nobody; neither side is told, as with a cable that
is pulled. Two places that are kept apart still reach everybody else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

import pytest

_BUFFER_BYTES = 65536


class Namespaces:
    """Places 1 to N; use `network_namespaces`."""

    def __init__(self, count: int, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._tag = f"m{os.getpid()}"
        self._net = f"198.18.{os.getpid() % 250}"  # kept for tests of networks
        _ip("link", "add", self._tag, "type", "bridge")
        stack.callback(_ip, "link", "delete", self._tag)
        _ip("address", "add", f"{self._here}/24", "dev", self._tag)
        _ip("link", "set", self._tag, "up")
        for number in range(1, count + 1):
            self._add(number)

    @property
    def _here(self) -> str:
        return f"{self._net}.254"

    def _add(self, number: int) -> None:
        name, address = self._name(number), f"{self._net}.{number}/24"
        _ip("netns", "add", name)
        self._stack.callback(_ip, "netns", "delete", name)  # its cable goes with it
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", self._tag, "up")
        _ip("-n", name, "address", "add", address, "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _name(self, number: int) -> str:
        return f"{self._tag}-{number}"

    # Who is where

    def place(self, number: int) -> Mapping[str, object]:
        """For `BrokerProcess`."""
        inside = ("ip", "netns", "exec", self._name(number))
        return {"host": f"{self._net}.{number}", "inside": inside}

    @property
    def here(self) -> str:
        """The address of this machine, as the places see it."""
        return self._here

    def reach(self, zookeeper: str) -> str:
        """Addresses on loopback, as the places can reach them."""
        servers, slash, path = zookeeper.partition("/")
        ports = [int(server.rpartition(":")[2]) for server in servers.split(",")]
        return ",".join(f"{self._here}:{self._forward(port)}" for port in ports) + slash + path

    def _forward(self, port: int) -> int:
        listener = socket.create_server((self._here, 0))
        self._stack.callback(listener.close)
        self._stack.callback(listener.shutdown, socket.SHUT_RDWR)  # wakes the one that accepts
        threading.Thread(target=_accept, args=(listener, port), daemon=True).start()
        return int(listener.getsockname()[1])

    # Cuts

    @contextlib.contextmanager
    def cut(self, number: int) -> Iterator[None]:
        """From everybody."""
        _ip("link", "set", self._name(number), "down")
        try:
            yield
        finally:
            _ip("link", "set", self._name(number), "up")

    @contextlib.contextmanager
    def apart(self, *numbers: int) -> Iterator[None]:
        """From each other."""
        try:
            for number in numbers:
                self._isolate(number, "on")
            yield
        finally:
            for number in numbers:
                self._isolate(number, "off")

    def _isolate(self, number: int, value: str) -> None:
        _run("bridge", "link", "set", "dev", self._name(number), "isolated", value)


@contextlib.contextmanager
def network_namespaces(count: int) -> Iterator[Namespaces]:
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("bridge"):
        pytest.skip("network namespaces need Linux, root and iproute2")
    with contextlib.ExitStack() as stack:
        try:
            made = Namespaces(count, stack)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield made


def _accept(listener: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError):  # closed
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", port))
            except OSError:
                near.close()
                continue
            for ends in ((near, far), (far, near)):
                threading.Thread(target=_pass, args=ends, daemon=True).start()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BUFFER_BYTES):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
