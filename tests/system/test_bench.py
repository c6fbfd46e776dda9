"""The benchmarks keep working: each runs in its smallest size, and leaves nothing behind."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import PATIENCE_SECONDS, eventually

ROOT = Path(__file__).parents[2]
BENCHMARKS = sorted(
    path.stem for path in (ROOT / "bench").glob("*.py") if "\ndef run(" in path.read_text()
)

LONG = {
    "counting",
    "group_settle",
    "queues",
    "replication_failover",
    "scale_model",
    "spark_exactly_once",
    "spark_read",
}
"""A third of a minute or more, also in their smallest size: run with `--matrix`."""


def bench(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench", "--quick", "--data-dir", str(folder), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_benchmark_is_found() -> None:
    with bench("--list", folder=ROOT) as process:
        shown, _ = process.communicate()
    assert set(BENCHMARKS) > LONG
    assert all(name in shown for name in BENCHMARKS)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.matrix if name in LONG else ()) for name in BENCHMARKS],
)
def test_a_benchmark_runs_and_keeps_its_numbers(name: str, tmp_path: Path) -> None:
    data, numbers = tmp_path / "data", tmp_path / "numbers.json"
    data.mkdir()
    with bench(name, "--json", str(numbers), folder=data) as process:
        shown, errors = process.communicate()
    assert process.returncode == 0, errors
    tables = json.loads(numbers.read_text())[name]["tables"]
    assert tables
    for table in tables:
        assert table["title"] in shown
        assert table["rows"]
        for row in table["rows"]:
            figures = [value for value in row.values() if isinstance(value, int | float)]
            assert all(map(math.isfinite, figures)), row
    assert list(data.iterdir()) == []


def test_a_row_is_measured_beside_others(tmp_path: Path) -> None:
    data, numbers = tmp_path / "data", tmp_path / "numbers.json"
    data.mkdir()
    row = "requests/one-at-a-time"
    with bench(row, "--against", "plain", "--json", str(numbers), folder=data) as process:
        shown, errors = process.communicate()
    assert process.returncode == 0, errors
    (found,) = json.loads(numbers.read_text())["rows"]
    assert found["row"] == row, found
    assert "produce 100 B, one at a time" in shown
    assert list(data.iterdir()) == []


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_benchmark_ends_its_broker_and_removes_its_data(tmp_path: Path) -> None:
    with bench("latency", "--against", "plain", folder=tmp_path) as process:
        eventually(
            lambda: any(tmp_path.glob("moldau-bench-*/*/*/meta.properties")),
            "a broker that started",
        )
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, errors
    assert list(tmp_path.iterdir()) == []
    assert _processes_that_mention(str(tmp_path)) == []


def _processes_that_mention(text: str) -> list[str]:
    listing = subprocess.run(["ps", "-axo", "pid=,args="], capture_output=True, text=True).stdout
    mine = (str(os.getpid()), "ps")
    return [line for line in listing.splitlines() if text in line and line.split()[0] not in mine]
