"""Spark's own Kafka connector, fetched by Maven into a cache; without it the tests are skipped.

Which repository is asked is Maven's business: its settings, or its default. The connector is that
of the Spark that is installed; `MOLDAU_SPARK_CONNECTOR` names other artifacts, separated by commas.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau.testing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.1"
POOL = "org.apache.commons:commons-pool2:2.12.0"
MAVEN_SECONDS = 100

PYSPARKS_OWN_WARNINGS = (
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:unclosed:ResourceWarning:pyspark",
    "ignore:unclosed:ResourceWarning:py4j",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
            for words in PYSPARKS_OWN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(words))


@pytest.fixture(scope="session")
def connector() -> list[Path]:
    """The jars of the connector, or a skip with the reason."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("there is no mvn to fetch Spark's Kafka connector with")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "moldau" / "jars"
    return [_fetch(maven, artifact, cache) for artifact in _artifacts()]


def _artifacts() -> list[str]:
    given = os.environ.get("MOLDAU_SPARK_CONNECTOR")
    if given:
        return given.split(",")
    pyspark = pytest.importorskip("pyspark")
    names = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
    own = [f"org.apache.spark:{name}:{pyspark.__version__}" for name in names]
    return [*own, KAFKA_CLIENTS, POOL]


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
            timeout=MAVEN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Maven did not fetch {artifact} within {MAVEN_SECONDS} seconds")
    if done.returncode or not jar.exists():
        pytest.skip(f"Maven cannot fetch {artifact}: it is not in the repository, or out of reach")
    return jar


@pytest.fixture(scope="session")
def spark(
    connector: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    from moldau.spark import session

    made = session(
        "local[2]",
        app_name="moldau interop",
        **{
            "spark.jars": ",".join(map(str, connector)),
            "spark.sql.shuffle.partitions": 2,
            "spark.local.dir": tmp_path_factory.mktemp("spark"),
        },
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with moldau.testing.broker({"num.partitions": "2"}) as broker:
        yield broker.bootstrap
