"""A pipeline on a cluster of Spark, an executor of which is killed: tasks run again elsewhere.

`local-cluster` starts real executors, each a process of its own, from what pip installed.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import moldau
from support.pipeline_driver import (
    EXECUTOR,
    PATIENCE_SECONDS,
    log_of,
    pipeline_driver,
    spark_home,
    started_by,
)
from support.topics import Topics
from support.waiting import eventually

COUNT = 100
MASTER = ("--master", "local-cluster[2,1,1024]")
FILE = """
name = "clustered"
[sources.numbers]
topic = "{source}"
format = "json"
schema = "n INT, at TIMESTAMP"
options = {{ maxOffsetsPerTrigger = 50 }}
[sinks.lake]
parquet = "lake"
time = "at"
[sinks.feed]
topic = "{feed}"
value = "CAST(n AS STRING)"
[spark]
spark.driver.memory = "512m"
spark.sql.shuffle.partitions = 2
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="executors are found through /proc"
)


@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_costs_nothing_and_adds_nothing_to_files(
    bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, feed = topics.create(2), topics.create()
    path = tmp_path / "clustered.toml"
    path.write_text(FILE.format(source=source, feed=feed))
    lake, home = tmp_path / "lake", {"SPARK_HOME": str(spark_home(tmp_path))}
    values = [
        json.dumps({"n": number, "at": "2026-11-15T05:00:00Z"}).encode() for number in range(COUNT)
    ]
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(source, values).result()
    with pipeline_driver(path, bootstrap, "--once", *MASTER, environment=home) as process:

        def is_time() -> list[int]:
            assert process.poll() is None, log_of(path)
            has_begun = any(lake.glob("_moldau/*/journal/batch-*.json"))
            return started_by(process, EXECUTOR) if has_begun else []

        victim, *_ = eventually(is_time, lambda: log_of(path), PATIENCE_SECONDS)
        os.kill(victim, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
        assert process.returncode == 0, log_of(path)
    assert sorted(pq.read_table(lake)["n"].to_pylist()) == list(range(COUNT))
    found = moldau.read_table(feed, bootstrap=bootstrap)["value"].to_pylist()
    assert set(map(int, found)) == set(range(COUNT))
