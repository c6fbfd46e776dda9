"""Where ZooKeeper comes from: the jars inside the PySpark package, and the Java of this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from moldau.errors import StartupError

_MIN_JAVA = 17
_JARS = ("zookeeper-3*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*")
_NETTY = "netty-*"  # what TLS is spoken with; the parts in machine code are not needed
_NATIVE = ("native-epoll", "native-kqueue", "boringssl", "netty-all")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_VERSION = re.compile(r'version "(\d+)')

# A small heap, and no time spent on optimising what runs for seconds or idles for days.
_FLAGS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def zookeeper_command(
    config_file: Path, properties: Mapping[str, str], *, speaks_tls: bool = False
) -> list[str]:
    """What to run for one node. Raises `StartupError` that says what is missing."""
    jars = find_jars(speaks_tls=speaks_tls)
    settings = [f"-D{name}={value}" for name, value in properties.items()]
    class_path = os.pathsep.join(map(str, jars))
    return [find_java(), *_FLAGS, *settings, "-cp", class_path, _MAIN, str(config_file)]


def require_server(*, speaks_tls: bool) -> None:
    """Raises `StartupError` where a server could not be run: before anything is made for it."""
    find_jars(speaks_tls=speaks_tls)
    find_java()


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


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else None
    java = java or shutil.which("java")
    if java is None:
        raise StartupError(
            f"ZooKeeper needs Java {_MIN_JAVA} or newer, and there is no `java` on the PATH; "
            "install it, or set JAVA_HOME"
        )
    version = _java_version(java)
    if version is not None and version < _MIN_JAVA:
        raise StartupError(
            f"ZooKeeper needs Java {_MIN_JAVA} or newer, and {java} is Java {version}; "
            "install a newer one, or set JAVA_HOME"
        )
    return java


def _java_version(java: str) -> int | None:
    try:
        asked = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(asked.stderr + asked.stdout)
    return None if found is None else int(found[1])
