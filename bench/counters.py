"""How the work of a process is counted: instructions where they can be had, else CPU time.

Instructions of the program (not of the kernel) hardly vary, however busy the machine is. The
processor's own counters give them through `perf`; virtual machines often have none, and then
valgrind counts them, exactly, some thirty times slower. CPU time is the last resort: it is divided
by that of a loop in the same run, and still varies by a fifth.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.processes import ServerProcess, cpu_seconds

_ANSWER_SECONDS = 60.0


class Counter:
    """Counts what a process does while something is asked of it."""

    name = ""
    tolerance = 0.0
    """How much more than the baseline is called a regression, as a share."""

    is_undisturbed = True
    """Whether it counts the same while others are counted beside it."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one so that it can be counted."""
        return list(command)

    def attach(self, pid: int) -> None:
        """Before the first count of a process."""

    def count(self, pid: int, work: Callable[[], None]) -> float:
        raise NotImplementedError

    def count_start(self, command: Sequence[str]) -> float:
        """From the first instruction of a server until it listens."""
        raise NotImplementedError


class PerfCounter(Counter):
    name = "perf instructions:u"
    tolerance = 0.03

    def count(self, pid: int, work: Callable[[], None]) -> float:
        command = ["perf", "stat", "-x,", "-e", "instructions:u", "-p", str(pid)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        time.sleep(0.05)  # it says nowhere that it has begun
        work()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        return float(errors.split(",", 1)[0])

    def count_start(self, command: Sequence[str]) -> float:
        with tempfile.NamedTemporaryFile(prefix="moldau-bench-", mode="r") as report:
            options = ("-x,", "-e", "instructions:u", "-o", report.name)
            server = ServerProcess(["perf", "stat", *options, "--", *command])
            try:
                server.wait_until_ready()
                server.signal(signal.SIGINT)
                server.wait(_ANSWER_SECONDS)
            finally:
                server.end()
            lines = [line for line in report if line[:1].isdigit()]
            return float(lines[0].split(",", 1)[0])

    @staticmethod
    def is_there() -> bool:
        if shutil.which("perf") is None:
            return False
        command = ["perf", "stat", "-x,", "-e", "instructions:u", "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr.split(",", 1)[0].isdigit()


class CallgrindCounter(Counter):
    name = "callgrind instructions"
    tolerance = 0.03

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="moldau-bench-")
        # A broker that is killed leaves its pipes behind: here they go with the folder.
        self._pipes = f"--vgdb-prefix={self._folder.name}/pipe"

    def wrap(self, command: Sequence[str]) -> list[str]:
        out = f"--callgrind-out-file={self._folder.name}/%p"
        options = ("-q", "--tool=callgrind", "--instr-atstart=no", out, self._pipes)
        return ["valgrind", *options, *command]

    def count_start(self, command: Sequence[str]) -> float:
        out = f"--callgrind-out-file={self._folder.name}/%p"
        server = ServerProcess(["valgrind", "-q", "--tool=callgrind", out, self._pipes, *command])
        try:
            server.wait_until_ready()
            return self._read_dump(server.pid)
        finally:
            server.end()

    def attach(self, pid: int) -> None:
        self._tell(pid, "instrumentation", "on")

    def count(self, pid: int, work: Callable[[], None]) -> float:
        self._tell(pid, "zero")
        work()
        return self._read_dump(pid)

    def _read_dump(self, pid: int) -> float:
        folder = Path(self._folder.name)
        before = set(folder.glob(f"{pid}.*"))
        self._tell(pid, "dump")
        (dumped,) = set(folder.glob(f"{pid}.*")) - before
        found = re.findall(r"^totals: (\d+)", dumped.read_text(errors="replace"), re.MULTILINE)
        dumped.unlink()
        return float(found[-1])

    def _tell(self, pid: int, *words: str) -> None:
        command = ("vgdb", self._pipes, f"--pid={pid}", *words)
        subprocess.run(command, check=True, capture_output=True, timeout=_ANSWER_SECONDS)

    @staticmethod
    def is_there() -> bool:
        return shutil.which("valgrind") is not None and shutil.which("vgdb") is not None


class CpuCounter(Counter):
    name = "CPU time against a loop"
    tolerance = 0.35
    is_undisturbed = False

    def count(self, pid: int, work: Callable[[], None]) -> float:
        unit = min(_time_loop() for _ in range(3))
        before = cpu_seconds(pid)
        work()
        return (cpu_seconds(pid) - before) / unit

    def count_start(self, command: Sequence[str]) -> float:
        unit = min(_time_loop() for _ in range(3))
        server = ServerProcess(command)
        try:
            server.wait_until_ready()
            return server.cpu_seconds() / unit
        finally:
            server.end()


def _time_loop() -> float:
    before, total = time.thread_time(), 0
    for number in range(200_000):
        total += number * number
    return time.thread_time() - before


def choose_counter() -> Counter:
    if PerfCounter.is_there():
        return PerfCounter()
    return CallgrindCounter() if CallgrindCounter.is_there() else CpuCounter()
