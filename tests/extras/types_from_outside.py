"""`make extras EXTRAS=types`: a user's program, checked against the installed wheel.

By mypy --strict and by pyright, as users have them: what the package exports without types, or as
`Any`, hides mistakes. So the program has some, and each has to be found, and nothing else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from environments import TIMEOUT_SECONDS, Environment, clean_environ

PROGRAM = Path(__file__).parent / "typed_program.py"


def check_types(environment: Environment) -> None:
    """Raise CalledProcessError, with what differs, at the first checker that does not agree."""
    environment.add("mypy", "pyright[nodejs]", "pytest")
    folder = environment.work / "types"
    folder.mkdir()
    shutil.copy(PROGRAM, folder)
    wanted = {
        number
        for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# wrong")
    }
    _compare("mypy", _mypy(environment, folder), wanted)
    _compare("pyright", _pyright(environment, folder), wanted)


def _mypy(environment: Environment, folder: Path) -> dict[int, str]:
    command = [str(environment.bin / "mypy"), "--strict", "--output", "json", PROGRAM.name]
    found = [json.loads(line) for line in _output(command, folder).splitlines() if line[:1] == "{"]
    return {one["line"]: one["message"] for one in found if one["severity"] == "error"}


def _pyright(environment: Environment, folder: Path) -> dict[int, str]:
    python = str(environment.bin / "python")
    settings = {"include": [PROGRAM.name], "typeCheckingMode": "strict"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [str(environment.bin / "pyright"), "--outputjson", "--pythonpath", python]
    found = json.loads(_output(command, folder))["generalDiagnostics"]
    return {
        one["range"]["start"]["line"] + 1: one["message"]
        for one in found
        if one["severity"] == "error"
    }


def _output(command: list[str], folder: Path) -> str:
    """A checker that finds something ends with 1."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(
            done.returncode, command, (done.stdout + done.stderr).encode()
        )
    return done.stdout


def _compare(checker: str, found: dict[int, str], wanted: set[int]) -> None:
    missed = [f"line {number} is wrong, and nobody says so" for number in wanted - found.keys()]
    strange = [f"line {number}: {found[number]}" for number in found.keys() - wanted]
    if missed or strange:
        said = "\n".join((*missed, *strange)).encode()
        raise subprocess.CalledProcessError(1, [checker, PROGRAM.name], said)
