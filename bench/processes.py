"""The processes that are measured: started, watched from outside, and always ended.

A server prints `listening on HOST:PORT` when it is ready; the broker does, and so do the small
servers of this package. Others are ready when they accept connections. CPU time and memory come
from the kernel's counters of the process.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_READY = "listening on "
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_START_SECONDS = 90.0
_PAUSE_SECONDS = 0.002
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of the kernel: all threads of a process, in nanoseconds


def usual_environment() -> dict[str, str]:
    """The environment of a child: with compiled modules kept, as they are for every user."""
    return {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}


class ServerProcess:
    """A child process that listens. Its CPU time counts all of its threads."""

    def __init__(self, command: Sequence[str], port: int = 0, log: Path | None = None) -> None:
        """With a port, it is ready when that accepts; without one, it says where it listens."""
        self.spawned_at = time.perf_counter()
        self.host, self.port = "127.0.0.1", port
        self.authority: Path | None = None  # whose certificate it shows, where it speaks TLS
        self.is_ready = False
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(log.open("ab")) if log is not None else None
            # A session of its own: Ctrl-C is for the benchmark, which ends its children itself.
            self._process = subprocess.Popen(
                command,
                stdout=(errors or subprocess.DEVNULL) if port else subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                env=usual_environment(),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        if self.port:
            self._wait_until_accepting()
        else:
            self._wait_until_told()
        self.is_ready = True

    def _wait_until_told(self) -> None:
        output = self._process.stdout
        line = "" if output is None else output.readline().strip()
        if not line.startswith(_READY):
            raise RuntimeError(f"the server did not start: {line or 'it said nothing'}")
        self.host, _, port = line.removeprefix(_READY).rpartition(":")
        self.port = int(port)

    def _wait_until_accepting(self) -> None:
        deadline = time.perf_counter() + _START_SECONDS
        while True:
            try:
                socket.create_connection((self.host, self.port)).close()
                return
            except OSError as error:
                if self._process.poll() is not None:
                    raise RuntimeError(f"the server ended: {self._process.args!r}") from error
                if time.perf_counter() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> None:
        self._process.wait(seconds)

    def end(self) -> None:
        """Kill it: a clean stop would first bring gigabytes to the disk that nobody wants."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class StartedElsewhere(ServerProcess):
    """A process that another one has started, and says where it listens."""

    def __init__(self, host: str, port: int, pid: int) -> None:
        self.host, self.port = host, port
        self.authority = None
        self.is_ready = True
        self._pid = pid

    @property
    def pid(self) -> int:
        return self._pid

    def wait_until_ready(self) -> None:
        pass

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def cpu_seconds(pid: int) -> float:
    """Of all threads."""
    if platform.system() == "Linux":
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    return _parse_cpu_time(_ask_ps(pid, "time"))  # hundredths of a second, on macOS


def resident_bytes(pid: int) -> int:
    if platform.system() == "Linux":
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()
    return int(_ask_ps(pid, "rss")) * 1024


def _ask_ps(pid: int, field: str) -> str:
    command = ("ps", "-o", f"{field}=", "-p", str(pid))
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _parse_cpu_time(text: str) -> float:
    """`[[days-]hours:]minutes:seconds`, with a fraction on macOS."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86_400 * int(days or 0)


@contextlib.contextmanager
def serving(command: Sequence[str]) -> Iterator[ServerProcess]:
    process = ServerProcess(command)
    try:
        process.wait_until_ready()
        yield process
    finally:
        process.end()


@contextlib.contextmanager
def serving_module(module: str, *arguments: str) -> Iterator[ServerProcess]:
    """One of this package's own servers."""
    with serving((sys.executable, "-m", module, *arguments)) as process:
        yield process


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Where TMPDIR says. It goes with the block."""
    with tempfile.TemporaryDirectory(prefix="moldau-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def broker_command(
    folder: Path, settings: Sequence[str] = (), blocked_modules: Sequence[str] = ()
) -> list[str]:
    """`moldau start` on a free port; blocked modules are as if they were not installed."""
    sets = [part for setting in settings for part in ("--set", setting)]
    options = ["start", "--data-dir", str(folder), "--listen", "127.0.0.1:0", *sets]
    if not blocked_modules:
        return [sys.executable, "-m", "moldau", *options]
    blocks = "".join(f"sys.modules[{name!r}] = None; " for name in blocked_modules)
    run = f"import sys; {blocks}from moldau.cli.entry import main; main()"
    return [sys.executable, "-c", run, *options]


@contextlib.contextmanager
def running_broker(
    settings: Sequence[str] = (), blocked_modules: Sequence[str] = ()
) -> Iterator[ServerProcess]:
    """A broker with an empty data folder; both go with the block."""
    with (
        temporary_folder() as folder,
        serving(broker_command(folder, settings, blocked_modules)) as process,
    ):
        yield process
