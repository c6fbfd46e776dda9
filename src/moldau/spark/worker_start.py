"""Starts a Python worker of Spark so that it calls back at once: `worker_start.py -m MODULE`.

Spark gives up a worker that has not connected ten seconds after its start, and has no setting for
that. PySpark connects when everything is imported, which takes about a second of work, and ten and
more on a machine that is very busy. So the connection is made before, and handed to PySpark when it
asks for it; for what follows, Spark waits as long as it takes. A shell, run as a script by
`worker_python.sh`; nothing but what Python has itself is imported before the connection.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO

    Connection = tuple[IO[bytes], socket.socket]
    Address = int | str

_LENGTH_BYTES = 4


def main(arguments: list[str]) -> None:
    """Run a module as `python -m` does, with the connection that it will ask for made already."""
    module = arguments[1]
    address = find_address()
    connection = None if address is None else connect(address)
    sys.path.insert(0, os.getcwd())  # as -m has it  # noqa: PTH109
    sys.argv = arguments[1:]
    if address is not None and connection is not None:
        offer(address, connection)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def find_address() -> Address | None:
    """Where Spark waits for this worker: a port, or the path of a socket; a daemon has neither."""
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    port = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if path is not None:
        return path
    return None if port is None else int(port)


def connect(address: Address) -> Connection:
    """As PySpark does it: at a port, Spark wants to hear a secret and answers `ok`."""
    timeout = int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    if isinstance(address, str):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(timeout)
        made.connect(address)
        return _open(made), made
    prefers_ipv6 = os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true"
    made = socket.create_connection(("::1" if prefers_ipv6 else "127.0.0.1", address), timeout)
    stream = _open(made)
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    stream.write(len(secret).to_bytes(_LENGTH_BYTES, "big") + secret)
    stream.flush()
    answer = stream.read(int.from_bytes(stream.read(_LENGTH_BYTES), "big"))
    if answer != b"ok":
        raise ConnectionError(f"Spark does not know this worker: {answer!r}")
    return stream, made


def _open(made: socket.socket) -> IO[bytes]:
    size = int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))
    return made.makefile("rwb", size)  # type: ignore[return-value]  # the stub says IOBase


def offer(address: Address, connection: Connection) -> None:
    """Have PySpark take this connection when it asks for one to that address, once."""
    import pyspark.util

    original: Callable[[Address, str | None], Connection] = pyspark.util.local_connect_and_auth
    offered = [connection]

    def connect_or_take(wanted: Address, secret: str | None) -> Connection:
        return offered.pop() if offered and wanted == address else original(wanted, secret)

    for name, module in list(sys.modules.items()):
        if name.startswith("pyspark.") and hasattr(module, "local_connect_and_auth"):
            module.local_connect_and_auth = connect_or_take  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1:])
