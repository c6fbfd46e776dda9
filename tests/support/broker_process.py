"""A real broker in a process of its own, as a user would run it, always ended with the test.

`running_broker` is what most tests want; `BrokerProcess` can be killed and started again.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from moldau.processes import build_module_command
from moldau.testing.free_ports import take_port
from support.waiting import PATIENCE_SECONDS, eventually

NOTHING: Mapping[str, str] = MappingProxyType({})

_PROC = Path("/proc")
_LISTENING = re.compile(r"^listening on (\S+):(\d+)$", re.MULTILINE)
_WATCH = 'read line || kill -9 "$0"'
"""Ends a broker whose test run has died: then nobody writes the line, and the pipe ends."""
_SIGNS_OF_A_BUG = ("Traceback (most recent call last)", "internal error", "Exception ignored")


def moldau_command(*arguments: str) -> list[str]:
    return build_module_command("moldau", *arguments)


def write_hostile_modules(folder: Path) -> Path:
    """A working directory with files that Python would import in the place of ours and its own."""
    for name in ("moldau", "queue", "signal"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name}.py was imported')\n")
    return folder


class BrokerProcess:
    """`moldau start` with a data folder and a port that stay the same from start to start."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] = NOTHING,
        arguments: Sequence[str] = (),
        port: int | None = None,
        data_folder: Path | None = None,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        program: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.host = host
        self.data_folder = folder / "data" if data_folder is None else data_folder
        self.port = take_port() if port is None else port
        self.settings = dict(settings)
        self._arguments = list(arguments)
        self._inside = list(inside)  # a command that runs commands in some other surroundings
        self.program = list(program) or moldau_command()  # what knows `start`
        self._output = folder / "broker.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self._read_from = 0  # where the output of the present run begins

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """What the present run has printed, on both streams."""
        return self._output.read_bytes()[self._read_from :].decode(errors="replace")

    def memory_bytes(self) -> int:
        """What the process has in memory right now; 0 where there is no /proc to tell."""
        return self._status("VmRSS")

    def peak_memory_bytes(self) -> int:
        """The most that it had in memory since it was started; 0 as above."""
        return self._status("VmHWM")

    def reserved_memory_bytes(self) -> int:
        """What it has asked for, whether it touched it or not; 0 as above."""
        return self._status("VmSize")

    def _status(self, field: str) -> int:
        if not _PROC.exists():
            return 0
        status = (_PROC / f"{self.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def open_descriptors(self) -> int:
        """How many files and sockets the process has open; 0 as above."""
        return sum(1 for _ in (_PROC / f"{self.pid}/fd").iterdir()) if _PROC.exists() else 0

    # Its life

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        assert not self.is_alive, "the broker is already running"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [*self.program, "start"]
        if "listeners" not in self.settings:
            command += ["--listen", self.bootstrap]
        if "log.dirs" not in self.settings:
            command += ["--data-dir", str(self.data_folder)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        with self._output.open("ab") as output:
            self._read_from = output.tell()
            self._process = subprocess.Popen(
                [*self._inside, *command, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, str(self.pid)], stdin=subprocess.PIPE, close_fds=True
        )

    def start(self) -> BrokerProcess:
        """Start, and return when it answers."""
        self.launch()
        return self.wait_until_listening()

    def wait_until_listening(self) -> BrokerProcess:
        """After `launch`."""
        eventually(
            lambda: _LISTENING.search(self.output) or not self.is_alive,
            lambda: f"listening on ...; its output:\n{self.output}",
        )
        found = _LISTENING.search(self.output)
        assert found is not None, f"the broker ended with {self.wait()}:\n{self.output}"
        self.port = int(found[2])
        return self

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        assert self._process is not None
        code = self._process.wait(PATIENCE_SECONDS)
        self._end_watch()
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop and wait until it has; the exit code."""
        self.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """As a power cut ends a process, but the page cache stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._end_watch()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.communicate(b"it has ended\n")
            self._watch = None

    def assert_healthy(self) -> None:
        """Nothing in any run looked like a bug."""
        printed = self._output.read_text(errors="replace") if self._output.exists() else ""
        for sign in _SIGNS_OF_A_BUG:
            assert sign not in printed, f"the broker printed:\n{printed}"


@contextlib.contextmanager
def broker_process(folder: Path, **options: object) -> Iterator[BrokerProcess]:
    """A broker that is not started yet, and that is gone and was healthy at the end."""
    process = BrokerProcess(folder, **options)  # type: ignore[arg-type]
    try:
        yield process
    finally:
        process.kill()
    process.assert_healthy()


@contextlib.contextmanager
def running_broker(
    settings: Mapping[str, str] = NOTHING, *, arguments: Sequence[str] = ()
) -> Iterator[BrokerProcess]:
    """A broker that answers, in a folder that goes with it."""
    with (
        tempfile.TemporaryDirectory(prefix="moldau-test-", ignore_cleanup_errors=True) as folder,
        broker_process(Path(folder), settings=settings, arguments=arguments) as process,
    ):
        yield process.start()
