"""Apache Kafka's own jars (client, Streams, tools), where Maven can get them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

VERSION = "4.1.0"
_MAVEN_SECONDS = 400
_DEPENDENCIES = (
    ("org.apache.kafka", "kafka-clients", VERSION),
    ("org.apache.kafka", "kafka-streams", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)


CORE = (
    ("org.apache.kafka", "kafka_2.13", "4.3.0"),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
"""The broker's own jar, in which are the tools that configure it."""


STREAMS = (
    ("org.apache.kafka", "kafka-streams", "4.3.0"),
    ("org.apache.kafka", "kafka-clients", "4.3.0"),
    ("org.apache.kafka", "kafka-tools", "4.3.0"),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
"""Kafka Streams with its own group protocol (KIP-1071), and `kafka-streams-groups.sh`."""


class JarsUnavailableError(Exception):
    """The jars cannot be had here; the message says why."""


Dependencies = tuple[tuple[str, str, str], ...]
"""Of Maven: group, artifact, version."""


def require_class_path(folder: Path, dependencies: Dependencies = _DEPENDENCIES) -> str:
    """What `java -cp` takes. Maven works in the folder; the jars stay in its own repository."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("javac") is None:
        raise JarsUnavailableError("there is no mvn or no Java compiler")
    (folder / "pom.xml").write_text(_pom(dependencies), encoding="utf-8")
    command = [maven, "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
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
