"""The command line for tests: inside this process, or as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.cli.main import run
from moldau.processes import build_module_command

COMMAND = build_module_command("moldau")
PATIENCE = 60


class Cli:
    """Runs commands in this process against one broker."""

    def __init__(self, bootstrap: str, capture: pytest.CaptureFixture[bytes]) -> None:
        self._bootstrap = bootstrap
        self._capture = capture
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What the command prints, after a look at its exit code."""
        found = run([*arguments, "--bootstrap", self._bootstrap])
        out, err = self._capture.readouterr()
        self.err = err.decode()
        assert found == code, self.err
        return out.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def json_lines(self, *arguments: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]


def write_lines(folder: Path, *lines: str) -> str:
    path = folder / "input.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def run_process(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, until it ends."""
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*COMMAND, *arguments],
        **{"capture_output": True, "text": True, "timeout": 120, "check": False, **options},
    )


def start_process(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [*COMMAND, *arguments],
        env=os.environ | {"PYTHONUNBUFFERED": ""},
        **{"stderr": subprocess.PIPE, **options},
    )


@contextlib.contextmanager
def process(*arguments: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    started = start_process(*arguments, **options)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()
