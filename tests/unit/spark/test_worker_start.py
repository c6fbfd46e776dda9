"""A worker calls Spark back before it imports anything that takes time; Spark is played here."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.spark import session_factory
from support.waiting import PATIENCE_SECONDS

pytest.importorskip("pyspark")

SECRET = "a secret"
MODULE = """
import os, sys
from pyspark.util import local_connect_and_auth

with open("go") as pipe:   # an import that takes as long as the test wants
    pipe.read()
port, path = os.environ.get("PYTHON_WORKER_FACTORY_PORT"), os.environ.get("SOCKET_PATH")
stream, _ = local_connect_and_auth(int(port) if port else path, SECRET)
stream.write(f"{__name__} {__spec__.name} {sys.argv[1:]} {os.getcwd() in sys.path}".encode())
stream.close()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "go")
    return tmp_path


@pytest.fixture(params=["port", "path"])
def spark(request: pytest.FixtureRequest, folder: Path) -> Iterator[socket.socket]:
    """Where Spark waits for its worker."""
    if request.param == "port":
        listener = socket.create_server(("127.0.0.1", 0))
    else:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(folder / "socket"))
        listener.listen()
    listener.settimeout(PATIENCE_SECONDS)
    with listener:
        yield listener


def start_worker(spark: socket.socket, folder: Path) -> subprocess.Popen[bytes]:
    """As Spark does: a program, `-m`, a module."""
    is_path = spark.family == socket.AF_UNIX
    secret = None if is_path else SECRET
    (folder / "slow_worker.py").write_text(f"SECRET = {secret!r}\n{MODULE}")
    where = (
        {
            "PYTHON_WORKER_FACTORY_SOCK_PATH": str(folder / "socket"),
            "SOCKET_PATH": str(folder / "socket"),
        }
        if is_path
        else {
            "PYTHON_WORKER_FACTORY_PORT": str(spark.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
        }
    )
    session_factory.use_this_python("local[2]")
    command = [os.environ["PYSPARK_PYTHON"], "-m", "slow_worker", "an argument"]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **where})


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "MOLDAU_WORKER_PYTHON"):
        monkeypatch.setenv(name, "")


def test_a_worker_calls_back_before_its_module_is_loaded(
    spark: socket.socket, folder: Path
) -> None:
    worker = start_worker(spark, folder)
    connection, _ = spark.accept()  # while the module waits for the pipe
    with connection, connection.makefile("rwb") as stream:
        connection.settimeout(PATIENCE_SECONDS)
        if spark.family != socket.AF_UNIX:
            assert stream.read(4 + len(SECRET)) == len(SECRET).to_bytes(4, "big") + SECRET.encode()
            stream.write(b"\x00\x00\x00\x02ok")
            stream.flush()
        (folder / "go").write_text("go")
        said = stream.read().decode()
    assert said == "__main__ slow_worker ['an argument'] True"
    assert worker.wait(PATIENCE_SECONDS) == 0


def test_a_daemon_which_is_not_waited_for_is_started_as_it_is(folder: Path) -> None:
    (folder / "a_daemon.py").write_text("print(__name__, flush=True)\n")
    session_factory.use_this_python("local[2]")
    command = [os.environ["PYSPARK_PYTHON"], "-m", "a_daemon"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    assert done.stdout == "__main__\n"
