"""Spark's own Kafka connector: its jars, fetched by Maven into a cache. Shared with the tests.

Which repository is asked is Maven's business: its settings, or its default. Wanted is the connector
of the Spark that is installed. Not every repository has it, and then older parts are taken that are
known to work with it. `MOLDAU_SPARK_CONNECTOR` names other artifacts, separated by commas.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_CHOICE = "MOLDAU_SPARK_CONNECTOR"
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.1"
_POOL = "org.apache.commons:commons-pool2:2.12.0"
_MAVEN_SECONDS = 300  # for all artifacts together


class ConnectorUnavailableError(Exception):
    """The connector cannot be had here; the message says why."""


def require_connector() -> list[Path]:
    """The jars of the connector; raises ConnectorUnavailableError."""
    return require_jars(_artifacts())


def require_jars(artifacts: Sequence[list[str]]) -> list[Path]:
    """The jars of artifacts, each with what may stand in for it, from the cache or from Maven."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "moldau" / "jars"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:  # tests in several processes want the same files
        fcntl.flock(lock, fcntl.LOCK_EX)
        deadline = time.monotonic() + _MAVEN_SECONDS
        return [_find(choices, cache, deadline) for choices in artifacts]


def _artifacts() -> list[list[str]]:
    """Each with what may stand in for it, the best first."""
    given = os.environ.get(_CHOICE)
    if given:
        return [[artifact] for artifact in given.split(",")]
    import pyspark

    own = pyspark.__version__
    connectors = [f"{_CONNECTOR}:{version}" for version in (own, "4.2.0", "4.0.0")]
    tokens = [f"{_TOKENS}:{version}" for version in (own, "4.0.0")]
    return [connectors, tokens, [_KAFKA_CLIENTS], [_POOL]]


def _find(choices: list[str], cache: Path, deadline: float) -> Path:
    """The first that is in the cache, or else the first that Maven has."""
    for artifact in choices:
        if _jar(artifact, cache).exists():
            return _jar(artifact, cache)
    for artifact in choices:
        if _fetch(artifact, cache, deadline):
            return _jar(artifact, cache)
    raise ConnectorUnavailableError(
        f"Maven cannot fetch {' or '.join(choices)}: not in its repository, or out of reach; "
        f"{_CHOICE} may name other artifacts"
    )


def _jar(artifact: str, cache: Path) -> Path:
    _, name, version = artifact.split(":")
    return cache / f"{name}-{version}.jar"


def _fetch(artifact: str, cache: Path, deadline: float) -> bool:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConnectorUnavailableError(f"there is no mvn to fetch {artifact} with")
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={cache}"],
            capture_output=True,
            timeout=max(deadline - time.monotonic(), 1),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConnectorUnavailableError(
            f"Maven did not fetch {artifact} within {_MAVEN_SECONDS} seconds"
        ) from error
    return done.returncode == 0 and _jar(artifact, cache).exists()
