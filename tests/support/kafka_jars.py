"""Apache Kafka's own jars (broker, client, Streams, tools), where Maven can get them.

`python -m support.kafka_jars` fetches all of them. `make test` does this before the tests, so that
none of them waits for a download.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

_MAVEN_SECONDS = 400

Dependencies = tuple[tuple[str, str, str], ...]
"""Of Maven: group, artifact, version."""

_NO_LOG = ("org.slf4j", "slf4j-nop", "1.7.36")
CLIENTS: Dependencies = (
    ("org.apache.kafka", "kafka-clients", "4.1.0"),
    ("org.apache.kafka", "kafka-streams", "4.1.0"),
    ("org.apache.kafka", "kafka-tools", "4.1.0"),
    _NO_LOG,
)
CORE: Dependencies = (("org.apache.kafka", "kafka_2.13", "4.3.0"), _NO_LOG)
"""The broker's own jar, in which are the tools that configure it."""
NEWEST: Dependencies = (
    ("org.apache.kafka", "kafka-streams", "4.3.0"),
    ("org.apache.kafka", "kafka-clients", "4.3.0"),
    ("org.apache.kafka", "kafka-tools", "4.3.0"),
    _NO_LOG,
)
"""Share consumers, Kafka Streams with its own group protocol (KIP-1071), and their tools."""
ON_ZOOKEEPER: Dependencies = (("org.apache.kafka", "kafka_2.13", "3.9.1"), _NO_LOG)
"""The last broker that worked with ZooKeeper."""


class JarsUnavailableError(Exception):
    """The jars cannot be had here; the message says why."""


def require_class_path(dependencies: Dependencies = CLIENTS) -> str:
    """What `java -cp` takes. The jars stay in Maven's own repository."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("javac") is None:
        raise JarsUnavailableError("there is no mvn or no Java compiler")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "moldau"
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"class-path-{sha256(repr(dependencies).encode()).hexdigest()[:16]}"
    with (cache / ".maven-lock").open("w") as lock:  # test processes want the same jars
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            path = kept.read_text(encoding="utf-8")
            if all(Path(jar).exists() for jar in path.split(os.pathsep)):
                return path
        path = _ask_maven(maven, dependencies)
        kept.write_text(path, encoding="utf-8")
    return path


def _ask_maven(maven: str, dependencies: Dependencies) -> str:
    command = [maven, "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
    with tempfile.TemporaryDirectory(prefix="moldau-test-") as name:
        folder = Path(name)
        (folder / "pom.xml").write_text(_pom(dependencies), encoding="utf-8")
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_MAVEN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise JarsUnavailableError(f"Maven takes more than {_MAVEN_SECONDS} s") from None
        if done.returncode != 0:
            wanted = ":".join(dependencies[0])
            raise JarsUnavailableError(f"Maven has no {wanted} here: {done.stdout[-300:]}")
        return (folder / "classpath").read_text(encoding="utf-8").strip()


def _pom(wanted: Dependencies) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>moldau</groupId><artifactId>interop</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def main() -> None:
    for dependencies in (CLIENTS, CORE, NEWEST, ON_ZOOKEEPER):
        try:
            require_class_path(dependencies)
        except JarsUnavailableError as error:
            sys.stderr.write(f"{':'.join(dependencies[0])} is not fetched: {error}\n")


if __name__ == "__main__":
    main()
