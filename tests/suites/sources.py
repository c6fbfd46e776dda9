"""How a suite is fetched and run: as a Go module, or as a source distribution of PyPI.

A suite that cannot be fetched or run here is left out. All processes of a suite end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from suites.results import Outcome, read_go_events, read_go_output, read_junit

CACHE = Path(__file__).resolve().parents[2] / ".suites"

Environment = Mapping[str, str]
Brokers = Callable[[Path], AbstractContextManager[Environment]]
"""Starts brokers in a folder, and yields the variables that tell the suite about them."""

_FETCH_SECONDS = 600.0
_GO_TEST = re.compile(r"^func (Test\w+)\(t ", re.MULTILINE)


class LeftOutError(Exception):
    """The suite cannot run here; the message says what to install."""


def run_within(
    seconds: float, command: Sequence[str], *, folder: Path, environment: Environment, output: Path
) -> int | None:
    """The exit code, or None when the time was over. None of its processes is left."""
    with output.open("ab") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # one group of processes, which can be ended together
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def fetch(
    command: Sequence[str], log: Path, *, folder: Path = CACHE, environment: Environment
) -> str:
    """What the command printed. Raises LeftOutError when it fails."""
    begin = log.stat().st_size if log.exists() else 0
    code = run_within(_FETCH_SECONDS, command, folder=folder, environment=environment, output=log)
    printed = log.read_bytes()[begin:].decode(errors="replace")
    if code != 0:
        why = f"took more than {_FETCH_SECONDS:.0f} s" if code is None else f"ended with {code}"
        last = printed.strip().splitlines()[-1:] or ["it printed nothing"]
        raise LeftOutError(f"`{' '.join(command)}` {why}: {last[0]}")
    return printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite(ABC):
    name: str
    version: str
    brokers: Brokers
    require: Callable[[Path], None] | None = None  # raises LeftOutError; is given the log
    limit_seconds: int  # for all tests together; several times what they take
    least_passed: int  # fewer means that a part of the suite did not run
    environment: Environment = field(default_factory=dict)
    known_differences: Mapping[str, str] = field(default_factory=dict)  # what fails, and why
    not_run: Mapping[str, str] = field(default_factory=dict)  # what ends the whole suite, and why

    def prepare(self, log: Path) -> Path:
        """Fetch the suite; the folder to run it in. Raises LeftOutError."""
        CACHE.mkdir(parents=True, exist_ok=True)
        if self.require is not None:
            self.require(log)
        return self._fetch(log)

    @abstractmethod
    def _fetch(self, log: Path) -> Path: ...

    @abstractmethod
    def run(
        self, folder: Path, brokers: Environment, log: Path, only: Sequence[str] = ()
    ) -> dict[str, Outcome]:
        """The outcome of every test, or of those that are named. What they print is added to the
        log."""

    def _judge(self, outcomes: dict[str, Outcome], code: int | None) -> dict[str, Outcome]:
        """An end that no test explains is reported on its own."""
        if code is None:
            outcomes[f"the suite did not end within {self.limit_seconds} s"] = Outcome.BROKEN
        elif code != 0 and not {Outcome.FAILED, Outcome.BROKEN} & set(outcomes.values()):
            outcomes[f"the suite ended with {code}"] = Outcome.BROKEN
        return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class GoSuite(Suite):
    module: str
    packages: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    test_files: str | None = None  # run only the tests in these files of the folder (a pattern)

    def _fetch(self, log: Path) -> Path:
        folder = fetch_go_module(self.module, self.version, log)
        fetch(("go", "mod", "download"), log, folder=folder, environment=go_environment())
        return folder

    def run(
        self, folder: Path, brokers: Environment, log: Path, only: Sequence[str] = ()
    ) -> dict[str, Outcome]:
        events = log.with_suffix(".json")
        events.unlink(missing_ok=True)
        own_limit = max(self.limit_seconds - 60, 1)  # go prints what every goroutine waits for
        command = ["go", "test", "-json", "-count=1", "-p=1", f"-timeout={own_limit}s"]
        if self.not_run:
            command.append("-skip=" + "|".join(map(_go_pattern, self.not_run)))
        names = {name.partition(".")[2].partition("/")[0] for name in only}
        if self.test_files is not None and not only:
            sources = (path.read_text(encoding="utf-8") for path in folder.glob(self.test_files))
            names = {name for source in sources for name in _GO_TEST.findall(source)}
        if names:
            command.append(f"-run=^({'|'.join(sorted(names))})$")
        code = run_within(
            self.limit_seconds,
            [*command, *self.arguments, *self.packages],
            folder=folder,
            environment={**go_environment(), **self.environment, **brokers},
            output=events,
        )
        lines = events.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        with log.open("a", encoding="utf-8") as sink:
            sink.write(f"{read_go_output(lines)}go test ended with {code}\n")
        events.unlink()
        return self._judge(read_go_events(lines), code)


def _go_pattern(name: str) -> str:
    """That matches this test alone; `go test` splits it at the slashes."""
    return "/".join(f"^{re.escape(part)}$" for part in name.partition(".")[2].split("/"))


def fetch_go_module(module: str, version: str, log: Path) -> Path:
    """The folder of its sources. Raises LeftOutError."""
    if shutil.which("go") is None:
        raise LeftOutError("go is not installed (https://go.dev/dl)")
    command = ("go", "mod", "download", "-json", f"{module}@v{version}")
    printed = fetch(command, log, environment=go_environment())
    return Path(json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["Dir"])


def go_environment() -> dict[str, str]:
    """Modules are kept in our cache, where `make clean` can remove them."""
    flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw -buildvcs=false".strip()
    return {"GOMODCACHE": str(CACHE / "go"), "GOFLAGS": flags}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSuite(Suite):
    """Runs in a virtual environment of its own."""

    extras: str  # of the package: what its tests need
    folder: str  # of the tests
    missing_files: Mapping[str, str] = field(default_factory=dict)
    """Modules of the tests that the source distribution lacks, and what takes their place."""

    def _fetch(self, log: Path) -> Path:
        home = CACHE / f"{self.name}-{self.version}"
        source = home / f"{self.name.replace('-', '_')}-{self.version}"
        complete = home / "complete"
        if complete.exists():
            return source
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps")
        wanted = (f"--no-binary={self.name}", f"{self.name}=={self.version}", f"--dest={home}")
        fetch((*download, *wanted), log, environment={})
        with tarfile.open(next(home.glob("*.tar.gz"))) as archive:
            archive.extractall(home, filter="data")
        for name, text in self.missing_files.items():
            (source / name).write_text(text, encoding="utf-8")
        fetch((sys.executable, "-m", "venv", str(home / "venv")), log, environment={})
        install = (
            self._python(source),
            "-m",
            "pip",
            "install",
            "--quiet",
            f"{source}[{self.extras}]",
        )
        fetch(install, log, environment={})
        complete.touch()
        return source

    def _python(self, source: Path) -> str:
        return str(source.parent / "venv" / "bin" / "python")

    def run(
        self, folder: Path, brokers: Environment, log: Path, only: Sequence[str] = ()
    ) -> dict[str, Outcome]:
        results = log.with_suffix(".xml")
        results.unlink(missing_ok=True)
        pytest = (self._python(folder), "-m", "pytest", "-p", "no:cacheprovider", "--verbose")
        one_fails = "--timeout-method=signal"  # a test that hangs does not end all others
        left_out = [f"--deselect={self._place(name)}" for name in self.not_run]
        chosen = [self._place(name) for name in only]
        code = run_within(
            self.limit_seconds,
            (*pytest, one_fails, f"--junitxml={results}", *left_out, *(chosen or [self.folder])),
            folder=folder,
            environment={"PYTHONPATH": "", **self.environment, **brokers},  # nothing of ours
            output=log,
        )
        outcomes = read_junit(results.read_text(encoding="utf-8")) if results.exists() else {}
        results.unlink(missing_ok=True)
        return self._judge(outcomes, code)

    def _place(self, name: str) -> str:
        """As pytest takes it."""
        module, separator, rest = name.partition("::")
        return f"{self.folder}/{module}.py{separator}{rest}"
