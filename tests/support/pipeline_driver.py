"""`moldau pipeline run` as a process of its own, which tests may kill, with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.broker_process import NOTHING, moldau_command

PATIENCE_SECONDS = 600
"""Starting Spark takes long on a busy machine, and so does a first batch."""
EXECUTOR = b"CoarseGrainedExecutorBackend"
_LOG = "log.txt"


@contextlib.contextmanager
def pipeline_driver(
    path: Path, bootstrap: str, *more: str, environment: Mapping[str, str] = NOTHING
) -> Iterator[subprocess.Popen[bytes]]:
    """A running pipeline; whatever is left of it is gone at the end."""
    command = moldau_command("pipeline", "run", str(path), *more)
    scratch = path.parent / "scratch"  # a process that is killed leaves its temporary files behind
    scratch.mkdir(exist_ok=True)
    places = {
        "SPARK_LOCAL_DIRS": str(scratch),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}",
        "TMPDIR": str(scratch),
    }
    with (path.parent / _LOG).open("ab") as log:
        process = subprocess.Popen(
            [*command, "--bootstrap", bootstrap],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **places, **environment},
        )
    try:
        yield process
    finally:
        for pid in started_by(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)


def log_of(path: Path) -> str:
    """What the drivers of a pipeline file have said, and Spark in the last of them."""
    logs = [path.parent / _LOG, *path.parent.glob("checkpoints/*/spark.log")]
    return "\n".join(log.read_text(errors="replace") for log in logs)


def started_by(process: subprocess.Popen[bytes], word: bytes = b"") -> list[int]:
    """The driver and the processes of its session whose command has the word: Java, workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid and word in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def family_of(pid: int) -> list[int]:
    """A process and all that come from it: an executor has workers, and they do the writing."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def spark_home(folder: Path) -> Path:
    """What pip installed, in a folder where executors may leave their work."""
    import pyspark

    home = folder / "spark-home"
    home.mkdir()
    for name in ("bin", "jars", "sbin"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home
