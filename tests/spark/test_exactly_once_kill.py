"""The streaming sink with exactlyOnce, its driver and executors killed: exactly the input, once.

The driver is a process of its own with all that belongs to it, killed without warning at moments
that hurt, and started again. In the second batch the first attempt of each task fails. What is
looked at is what a reader of committed records sees. `MOLDAU_SPARK_KILLS=30` kills as many times,
after as many random times.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import moldau
import moldau.testing
from moldau.client.admin.values import ONGOING, OffsetSpec
from moldau.spark.exactly_once import STATE_TOPIC
from support.pipeline_driver import EXECUTOR, PATIENCE_SECONDS, family_of, spark_home, started_by
from support.topics import Topics
from support.waiting import eventually

COUNT = 200
TESTS = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {
        "transaction.two.phase.commit.enable": "true",
        "transaction.state.log.num.partitions": "2",
    }
    with moldau.testing.broker(settings) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[moldau.Admin]:
    with moldau.Admin(bootstrap) as made:
        yield made


class Copying:
    """One query: its topics, its checkpoint, and how far it has got."""

    def __init__(self, bootstrap: str, folder: Path, admin: moldau.Admin) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        topics = Topics(bootstrap)
        self.source, self.target = topics.create(2), topics.create(3)
        self.sent = 0
        self.send_more()
        self.admin = admin

    def send_more(self) -> None:
        values = [b"%d" % one for one in range(self.sent, self.sent + COUNT)]
        with moldau.Producer(self.bootstrap) as producer:
            producer.send_many(self.source, values).result()
        self.sent += COUNT

    @contextlib.contextmanager
    def driver(self, *master: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "support.exactly_once_driver", self.bootstrap]
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        with (self.folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [*command, self.source, self.target, str(self.folder), *master],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": paths,
                    "TMPDIR": str(self.folder),
                    **environment,
                },
            )
        try:
            yield process
        finally:
            for pid in started_by(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)

    def kill_when(self, is_time: Callable[[], object]) -> None:
        """Kill the driver as soon as it is time; it may also have come to its end."""
        with self.driver() as process:
            eventually(lambda: process.poll() is not None or is_time(), self.log, PATIENCE_SECONDS)
            assert process.poll() in (None, 0), self.log()

    def finish(self) -> None:
        with self.driver() as process:
            process.wait(PATIENCE_SECONDS)
            assert process.returncode == 0, self.log()

    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")

    # How far it is

    def open_count(self) -> int:
        return len(self.admin.list_transactions(states=[ONGOING]))

    def decided(self) -> int:
        """How much was written to the state topic by all queries."""
        found = self.admin.describe_topics([STATE_TOPIC])[STATE_TOPIC]
        if isinstance(found, moldau.errors.KafkaError):
            return 0
        wanted = {
            moldau.TopicPartition(STATE_TOPIC, one.index): OffsetSpec.LATEST
            for one in found.partitions
        }
        listed = self.admin.list_offsets(wanted).values()
        return sum(one.offset for one in listed if not isinstance(one, moldau.errors.KafkaError))

    def seen(self) -> list[int]:
        table = moldau.read_table(self.target, bootstrap=self.bootstrap, read_committed=True)
        return sorted(int(value) for value in table["value"].to_pylist())

    def require_exactly_once(self, what: str) -> None:
        eventually(lambda: len(self.seen()) >= self.sent, f"killed when {what}: rows are missing")
        assert self.seen() == list(range(self.sent)), f"killed when {what}"
        assert self.open_count() == 0, f"killed when {what}: {self.admin.list_transactions()}"


@pytest.mark.timeout(1800)
def test_a_driver_that_is_killed_and_started_again_writes_each_row_once(
    bootstrap: str, admin: moldau.Admin, tmp_path: Path
) -> None:
    copying = Copying(bootstrap, tmp_path, admin)
    decided = copying.decided()
    copying.kill_when(copying.open_count)  # a task writes
    copying.kill_when(lambda: copying.decided() > decided)  # a batch is decided, or just complete
    seen = copying.seen()
    copying.kill_when(lambda: len(copying.seen()) > len(seen))  # a batch is seen
    seen = copying.seen()
    assert len(set(seen)) == len(seen)
    copying.finish()
    copying.require_exactly_once("it hurts")
    assert "the first attempt stumbles" in copying.log()


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="executors are found through /proc"
)
@pytest.mark.timeout(1800)
def test_executors_that_are_killed_or_paused_while_they_write_add_nothing(
    bootstrap: str, admin: moldau.Admin, tmp_path: Path
) -> None:
    """The tasks of both run elsewhere; the one that was paused goes on when all is decided."""
    copying = Copying(bootstrap, tmp_path, admin)
    paused: list[int] = []
    master, home = "local-cluster[2,1,1024]", str(spark_home(tmp_path))
    with copying.driver(master, SPARK_HOME=home) as process:

        def find_writing() -> list[int]:
            assert process.poll() is None, copying.log()
            return started_by(process, EXECUTOR) if copying.open_count() else []

        victim, *_ = eventually(find_writing, copying.log, PATIENCE_SECONDS)
        os.kill(victim, signal.SIGKILL)
        seen = copying.seen()
        eventually(lambda: len(copying.seen()) > len(seen), copying.log, PATIENCE_SECONDS)
        late, *_ = eventually(find_writing, copying.log, PATIENCE_SECONDS)
        paused += family_of(late)
        for pid in paused:
            os.kill(pid, signal.SIGSTOP)
        process.wait(PATIENCE_SECONDS)
        assert process.returncode == 0, copying.log()
        for pid in paused:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    copying.send_more()
    copying.finish()  # which ends what was left prepared
    copying.require_exactly_once("executors were killed and paused")


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_driver_that_is_killed_at_many_moments_writes_each_row_once(
    bootstrap: str, admin: moldau.Admin, tmp_path: Path
) -> None:
    kills = 0
    wanted = int(os.environ.get("MOLDAU_SPARK_KILLS", "10"))
    while kills < wanted:
        folder = tmp_path / f"after-{kills}"
        folder.mkdir()
        copying = Copying(bootstrap, folder, admin)
        for _ in range(random.randint(1, 3)):
            copying.kill_when(_soon_after_it_works(copying, random.uniform(0.0, 5.0)))
            kills += 1
        copying.finish()
        copying.require_exactly_once(f"{kills} kills")


def _soon_after_it_works(copying: Copying, seconds: float) -> Callable[[], bool]:
    """So long after the driver has begun to write: in any of its batches, at any of its steps."""
    before = copying.decided(), copying.open_count()
    began: list[float] = []

    def is_time() -> bool:
        if not began and (copying.decided(), copying.open_count()) != before:
            began.append(time.monotonic())
        return bool(began) and time.monotonic() - began[0] >= seconds

    return is_time
