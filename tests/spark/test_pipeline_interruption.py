"""Ctrl-C and SIGTERM in `moldau pipeline run`: at any moment one message, and nothing left behind.

The moments are told by what the driver leaves to be seen: its processes, Spark's log, its batches.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.pipeline_driver import PATIENCE_SECONDS, log_of, pipeline_driver, started_by
from support.pipelines import send
from support.topics import Topics
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("ctrl_c")]

SPARK_STARTS = b"Setting default log level"
MASTER = ("--master", "local[2]")
FILE = """
name = "copy"
[sources.words]
topic = "{source}"
format = "text"
[sinks.copy]
topic = "{feed}"
[spark]
spark.driver.memory = "512m"
spark.driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@pytest.fixture
def path(bootstrap: str, topics: Topics, tmp_path: Path) -> Path:
    source = topics.create()
    send(bootstrap, source, [b"one", b"two"])
    path = tmp_path / "copy.toml"
    path.write_text(FILE.format(source=source, feed=topics.create()))
    return path


def said(path: Path) -> list[str]:
    return (path.parent / "log.txt").read_text().splitlines()


def wait_for(
    process: subprocess.Popen[bytes], path: Path, is_time: Callable[[], object], what: str
) -> None:
    def look() -> object:
        assert process.poll() is None, log_of(path)
        return is_time()

    eventually(look, lambda: f"{what}: {log_of(path)}", PATIENCE_SECONDS)


def wait_until_nothing_is_left(process: subprocess.Popen[bytes]) -> None:
    eventually(lambda: not started_by(process), "processes are left behind", PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_while_java_starts_ends_in_one_line(
    bootstrap: str, path: Path, number: signal.Signals
) -> None:
    with pipeline_driver(path, bootstrap, *MASTER) as process:
        wait_for(
            process, path, lambda: started_by(process, b"org.apache.spark.deploy"), "Java starts"
        )
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 0, log_of(path)
        assert said(path) == ["copy: stopped"]
        wait_until_nothing_is_left(process)
    assert not list((path.parent / "scratch").glob("tmp*")), "where PySpark waits for Java"


def test_ctrl_c_while_spark_starts_ends_in_one_line(bootstrap: str, path: Path) -> None:
    log = path.parent / "checkpoints/copy/spark.log"
    with pipeline_driver(path, bootstrap, *MASTER) as process:
        wait_for(process, path, lambda: log.exists() and SPARK_STARTS in log.read_bytes(), "Spark")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0, log_of(path)
        assert said(path)[-1] == "copy: stopped"
        assert "Traceback" not in "\n".join(said(path))
        wait_until_nothing_is_left(process)


def test_ctrl_c_after_a_batch_tells_what_was_done(bootstrap: str, path: Path) -> None:
    with pipeline_driver(path, bootstrap, *MASTER) as process:
        wait_for(process, path, lambda: any("batch 0, 2 rec" in one for one in said(path)), "batch")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0, log_of(path)
        assert "copy: stopped" in said(path)
        assert said(path)[-1].startswith("  copy  2 records read in ")
        assert "Traceback" not in "\n".join(said(path))
        wait_until_nothing_is_left(process)


def test_a_second_ctrl_c_does_not_wait_for_a_run_that_does_not_end(
    bootstrap: str, path: Path
) -> None:
    with pipeline_driver(path, bootstrap, *MASTER) as process:
        wait_for(process, path, lambda: any("batch 0, 2 rec" in one for one in said(path)), "batch")
        (java,) = started_by(process, b"org.apache.spark.deploy")
        os.kill(java, signal.SIGSTOP)  # so that the run cannot end in order
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # two of one number may come as one
        assert process.wait(PATIENCE_SECONDS) in (130, 143), log_of(path)
        assert "Traceback" not in "\n".join(said(path))
        wait_until_nothing_is_left(process)
