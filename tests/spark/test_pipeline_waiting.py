"""What a pipeline says while it waits, and when it fails: to somebody who looks at its log only."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau
from moldau.errors import BrokerUnreachableError
from moldau.spark.pipeline.cluster import ClusterWatch
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.run import PipelineFailedError
from moldau.testing.free_ports import take_port
from support.broker_process import BrokerProcess, broker_process, moldau_command
from support.pipeline_driver import PATIENCE_SECONDS, log_of, pipeline_driver
from support.pipelines import run_file, send
from support.topics import Topics
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time over Spark's first batches

COPY = """
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


def declare(folder: Path, source: str = "words", feed: str = "copied") -> Path:
    path = folder / "copy.toml"
    path.write_text(COPY.format(source=source, feed=feed))
    return path


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    folder = tmp_path / "broker"
    folder.mkdir()
    with broker_process(folder) as process:
        yield process


def test_it_is_said_at_once_that_no_broker_answers_and_that_one_does_again(
    own_broker: BrokerProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        """Of this broker: other clients of this process may have lost theirs."""
        return [one for one in caplog.messages if own_broker.bootstrap in one]

    stop = threading.Event()
    with ClusterWatch(load_pipeline(declare(tmp_path)), own_broker.bootstrap) as watch:
        with pytest.raises(BrokerUnreachableError):
            watch.wait_until_answered(stop, 2.0)
        eventually(said, "nothing was said of the missing broker")
        own_broker.start()
        watch.wait_until_answered(stop, None)
        eventually(lambda: len(said()) > 1, "nothing was said of its coming")
    away, again = said()
    assert away.startswith(f"no broker answers at {own_broker.bootstrap} (Connection refused)")
    assert again.startswith(f"{own_broker.bootstrap} answers again, after ")


def test_a_pipeline_speaks_of_its_batches_and_of_a_broker_that_goes_away_under_it(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    path = declare(tmp_path)
    own_broker.start()
    bootstrap = own_broker.bootstrap
    send(bootstrap, "words", [b"one", b"two"])
    with pipeline_driver(path, bootstrap, "--master", "local[2]") as process:

        def log() -> str:
            assert process.poll() is None, log_of(path)
            return (tmp_path / "log.txt").read_text()

        def wait_for(words: str) -> None:
            eventually(lambda: words in log(), lambda: f"{words}: {log_of(path)}", PATIENCE_SECONDS)

        wait_for("copy: batch 0, 2 records in ")
        own_broker.kill()
        wait_for(f"moldau: no broker answers at {bootstrap}")
        own_broker.start()
        wait_for(f"moldau: {bootstrap} answers again, after ")
        send(bootstrap, "words", [b"three"])
        wait_for("copy: batch 1, 1 record in ")
    values = moldau.read_table("copied", bootstrap=bootstrap)["value"].to_pylist()
    assert set(values) == {b"one", b"two", b"three"}


def test_a_pipeline_whose_broker_never_answers_says_so_before_spark_is_there(
    tmp_path: Path,
) -> None:
    path = declare(tmp_path)
    with pipeline_driver(path, f"127.0.0.1:{take_port()}", "--master", "local[2]") as process:
        eventually(
            lambda: "(Connection refused); trying again" in (tmp_path / "log.txt").read_text(),
            lambda: log_of(path),
            PATIENCE_SECONDS,
        )
        assert process.poll() is None, log_of(path)
        assert not list(tmp_path.glob("checkpoints/copy/copy/offsets/*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            yield disk
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
            return
    pytest.skip("this machine does not allow mounting")


def test_a_full_disk_is_named_and_with_room_again_the_pipeline_goes_on(
    spark: SparkSession, bootstrap: str, topics: Topics, small_disk: Path
) -> None:
    source, feed = topics.create(), topics.create()
    path = declare(small_disk, source, feed)
    send(bootstrap, source, [b"one"])
    run_file(spark, bootstrap, path)
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    send(bootstrap, source, [b"two"])
    with pytest.raises(
        PipelineFailedError, match=r"the disk is full: .*make room and start it again"
    ):
        run_file(spark, bootstrap, path)
    filler.unlink()
    run_file(spark, bootstrap, path)
    assert moldau.read_table(feed, bootstrap=bootstrap)["value"].to_pylist() == [b"one", b"two"]


def test_check_with_a_plan_says_what_is_wrong_with_sql_and_nothing_else(
    bootstrap: str, tmp_path: Path
) -> None:
    path = declare(tmp_path)
    path.write_text(path.read_text() + '[transforms.t]\nsql = "SELECT x FROM nowhere"\n')
    arguments = ["pipeline", "check", str(path), "--plan", "--bootstrap", bootstrap]
    ended = subprocess.run(moldau_command(*arguments), capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("moldau: copy failed: [TABLE_OR_VIEW_NOT_FOUND]")
