"""Where ZooKeeper comes from: the jars inside the PySpark package, and a Java runtime."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from moldau.errors import StartupError
from moldau.processes import NoJavaError, require_java

_JARS = ("zookeeper-3*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*")
_NETTY = "netty-*"  # what TLS is spoken with; the parts in machine code are not needed
_NATIVE = ("native-epoll", "native-kqueue", "boringssl", "netty-all")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

# A small heap, and no time spent on optimising what runs for seconds or idles for days.
_FLAGS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def zookeeper_command(
    config_file: Path, properties: Mapping[str, str], *, speaks_tls: bool = False
) -> list[str]:
    """What to run for one node. Raises `StartupError` that says what is missing."""
    jars = find_jars(speaks_tls=speaks_tls)
    settings = [f"-D{name}={value}" for name, value in properties.items()]
    class_path = os.pathsep.join(map(str, jars))
    return [_java_command(), *_FLAGS, *settings, "-cp", class_path, _MAIN, str(config_file)]


def require_server(*, speaks_tls: bool) -> None:
    """Raises `StartupError` where a server could not be run: before anything is made for it."""
    find_jars(speaks_tls=speaks_tls)
    _java_command()


def find_jars(*, speaks_tls: bool = False) -> list[Path]:
    folder = _jar_folder()
    if folder is None:
        raise StartupError(
            "ZooKeeper's own server comes with PySpark, which is not installed: "
            "`pip install 'moldau[spark]'`, or start brokers on servers that you have: "
            "`moldau start --zookeeper HOST:PORT,...`"
        )
    jars = []
    for pattern in _JARS:
        found = sorted(folder.glob(f"{pattern}.jar"))
        if not found:
            raise StartupError(f"{folder} has no {pattern}.jar; PySpark 4 has it")
        jars.append(found[-1])
    if speaks_tls:
        found = [
            jar
            for jar in sorted(folder.glob(f"{_NETTY}.jar"))
            if not any(part in jar.name for part in _NATIVE)
        ]
        if not found:
            raise StartupError(f"{folder} has no {_NETTY}.jar, and TLS needs it; PySpark 4 has it")
        jars += found
    return jars


def _jar_folder() -> Path | None:
    """Without importing PySpark, which takes a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    return folder if folder.is_dir() else None


def _java_command() -> str:
    try:
        return require_java("ZooKeeper").command
    except NoJavaError as error:
        raise StartupError(str(error)) from error
