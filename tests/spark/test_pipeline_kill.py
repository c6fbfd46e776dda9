"""Pipelines whose driver is killed: files exactly once, topics with nothing lost.

The driver is a process of its own, killed without warning at a moment that hurts, chosen by chance;
every single step of publishing is in `test_pipeline_lake.py`. What the test looks at is what a
stranger would see: a plain read of the folder, a plain read of the topic.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import moldau
from support.pipeline_driver import PATIENCE_SECONDS, log_of, pipeline_driver
from support.topics import Topics
from support.waiting import eventually

COUNT = 160
MASTER = ("--master", "local[2]")
FILE = """
name = "killed"
[sources.numbers]
topic = "{source}"
format = "json"
schema = "n INT, at TIMESTAMP"
options = {{ maxOffsetsPerTrigger = 40 }}
[sinks.feed]
topic = "{feed}"
value = "CAST(n AS STRING)"
from = "numbers"
[sinks.lake]
parquet = "lake"
time = "at"
trigger = "0s"
compact_min_files = 3
[spark]
spark.driver.memory = "512m"
spark.driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


def kill_when(path: Path, bootstrap: str, is_time: Callable[[], object], what: str) -> None:
    """Run the pipeline until it is time, then kill its driver as nobody should be."""
    with pipeline_driver(path, bootstrap, *MASTER) as process:

        def look() -> object:
            assert process.poll() is None, log_of(path)
            return is_time()

        eventually(look, lambda: f"{what}: {log_of(path)}", PATIENCE_SECONDS)
        process.kill()


@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_leaves_files_exactly_once_and_loses_nothing_of_a_topic(
    bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, feed = topics.create(2), topics.create()
    path = tmp_path / "killed.toml"
    path.write_text(FILE.format(source=source, feed=feed))
    lake = tmp_path / "lake"
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(source, [_value(number) for number in range(COUNT)]).result()

    def batches() -> int:
        return len(list(lake.glob("_moldau/*/journal/batch-*.json")))

    moments: dict[str, Callable[[], object]] = {
        "files are staged": lambda: any(lake.glob("_moldau/*/staging/*/_temporary")),
        "a batch is noted": batches,
        "a batch is seen": lambda: any(lake.glob("date=*/*/*.parquet")),
        "a feed is written": lambda: _find_last(tmp_path / "checkpoints/killed/feed/commits"),
    }
    what = random.choice(list(moments))
    kill_when(path, bootstrap, moments[what], what)
    if any(lake.glob("date=*/*/*.parquet")):
        assert not _twice(_in_lake(lake)), f"rows are seen twice, killed when {what}"
    with pipeline_driver(path, bootstrap, "--once", *MASTER) as process:
        process.wait(PATIENCE_SECONDS)
        assert process.returncode == 0, log_of(path)

    assert sorted(_in_lake(lake)) == list(range(COUNT)), f"killed when {what}"
    values = moldau.read_table(feed, bootstrap=bootstrap)["value"].to_pylist()
    assert set(map(int, values)) == set(range(COUNT)), f"killed when {what}"


LATE = """
name = "late"
[sources.clicks]
topic = "{source}"
format = "json"
schema = "n INT, at TIMESTAMP"
watermark = {{ column = "at", delay = "1 minute" }}
options = {{ maxOffsetsPerTrigger = 400 }}
[transforms.per_minute]
sql = "SELECT window.start AS minute, count(*) AS n FROM clicks GROUP BY window(at, '1 minute')"
[sinks.feed]
topic = "{feed}"
output_mode = "update"
[spark]
spark.driver.memory = "512m"
spark.driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@pytest.mark.timeout(900)
def test_late_records_are_counted_once_though_a_driver_is_killed_in_the_middle_of_a_batch(
    bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, feed = topics.create(), topics.create()
    path = tmp_path / "late.toml"
    path.write_text(LATE.format(source=source, feed=feed))
    values = [json.dumps({"n": 0, "at": "2026-11-15T11:30:30Z"}).encode()] * 400
    for number in range(2000):  # far behind the watermark that the first batch sets
        at = f"2026-11-15T10:{number % 12:02d}:00Z"
        values.append(json.dumps({"n": number, "at": at}).encode())
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(source, values).result()
    query = tmp_path / "checkpoints/late/feed"
    moments: dict[str, Callable[[], object]] = {
        "late records are counted": (query / "moldau-tally.json").exists,
        "the fourth batch is planned": (query / "offsets/3").exists,
        "the fourth batch is done": (query / "commits/3").exists,
    }
    what = random.choice(list(moments))
    kill_when(path, bootstrap, moments[what], what)
    with pipeline_driver(path, bootstrap, "--once", *MASTER) as process:
        process.wait(PATIENCE_SECONDS)
        assert process.returncode == 0, log_of(path)

    written = moldau.read_table(feed, bootstrap=bootstrap)["value"].to_pylist()
    counts = {row["minute"]: row["n"] for row in map(json.loads, written)}
    missing = len(values) - sum(counts.values())
    assert missing > 1000, f"nothing was late, killed when {what}"
    tally = json.loads((query / "moldau-tally.json").read_text())
    assert tally["late_records"] == missing, f"killed when {what}"


def _find_last(folder: Path) -> bool:
    return folder.is_dir() and any(path.name.isdigit() for path in folder.iterdir())


def _value(number: int) -> bytes:
    return json.dumps({"n": number, "at": f"2026-11-15T0{number % 2}:00:00Z"}).encode()


def _in_lake(lake: Path) -> list[int]:
    return list(pq.read_table(lake)["n"].to_pylist())


def _twice(numbers: list[int]) -> bool:
    return len(numbers) != len(set(numbers))
