"""Spark's own Kafka connector: its jars, fetched by Maven into a cache. Shared with the tests.

Which repository is asked is Maven's business: its settings, or its default. The connector is that
of the Spark that is installed; `MOLDAU_SPARK_CONNECTOR` names other artifacts, separated by commas.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_CHOICE = "MOLDAU_SPARK_CONNECTOR"
_KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.1"
_POOL = "org.apache.commons:commons-pool2:2.12.0"
_MAVEN_SECONDS = 100


class ConnectorUnavailableError(Exception):
    """The connector cannot be had here; the message says why."""


def require_connector() -> list[Path]:
    """The jars of the connector; raises ConnectorUnavailableError."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ConnectorUnavailableError("there is no mvn to fetch Spark's Kafka connector with")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "moldau" / "jars"
    return [_fetch(maven, artifact, cache) for artifact in _artifacts()]


def _artifacts() -> list[str]:
    given = os.environ.get(_CHOICE)
    if given:
        return given.split(",")
    import pyspark

    names = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
    own = [f"org.apache.spark:{name}:{pyspark.__version__}" for name in names]
    return [*own, _KAFKA_CLIENTS, _POOL]


def _fetch(maven: str, artifact: str, cache: Path) -> Path:
    _, name, version = artifact.split(":")
    jar = cache / f"{name}-{version}.jar"
    if jar.exists():
        return jar
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={cache}"],
            capture_output=True,
            text=True,
            timeout=_MAVEN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConnectorUnavailableError(
            f"Maven did not fetch {artifact} within {_MAVEN_SECONDS} seconds"
        ) from error
    if done.returncode or not jar.exists():
        raise ConnectorUnavailableError(
            f"Maven cannot fetch {artifact}: it is not in the repository, or out of reach; "
            f"{_CHOICE} may name other artifacts"
        )
    return jar
