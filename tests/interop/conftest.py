"""Spark's own Kafka connector; where it cannot be had, the tests are skipped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau.testing

# The benchmarks measure the connector as well, and know where it comes from. They are not
# installed, and only `python -m pytest` finds them by itself.
sys.path.append(str(Path(__file__).parents[2]))

from bench.spark_connector import ConnectorUnavailableError, require_connector

from support.spark_versions import PYSPARKS_OWN_WARNINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    pytest.importorskip("pyspark")
    try:
        return require_connector()
    except ConnectorUnavailableError as error:
        pytest.skip(str(error))


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
    settings = {"num.partitions": "2", "log.retention.ms": "-1"}  # records may be years old
    with moldau.testing.broker(settings) as broker:
        yield broker.bootstrap
