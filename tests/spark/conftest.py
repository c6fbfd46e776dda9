"""A broker and a Spark session for the tests of the data source; one of each for a test process.

Starting Spark takes seconds, and every plan of a query starts Python processes: what can be tested
without a session is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau.testing
from moldau.processes import Java, NoJavaError, require_java
from moldau.spark.worker import close_clients
from moldau.testing.running_broker import RunningBroker
from support.spark_versions import PYSPARKS_OWN_WARNINGS
from support.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER_SETTINGS = {
    "log.retention.ms": "-1",  # the records of the tests are years old
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
}

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
            for words in PYSPARKS_OWN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(words))


@pytest.fixture(scope="session", autouse=True)
def java() -> Java:
    """The Java that the sessions of the tests use; the tests are skipped where there is none."""
    try:
        return require_java("Spark")
    except NoJavaError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    with moldau.testing.broker(BROKER_SETTINGS) as running:
        yield running
        close_clients()


@pytest.fixture(scope="session")
def bootstrap(broker: RunningBroker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from moldau.spark import session

    folder = tmp_path_factory.mktemp("spark")
    made = session(
        "local[2]",
        app_name="moldau tests",
        **{
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": f"{QUICK_START} -Djava.io.tmpdir={folder}",
            "spark.local.dir": folder / "local",
            "spark.sql.warehouse.dir": folder / "warehouse",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.streaming.stateStore.maintenanceInterval": "600s",
        },
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()
