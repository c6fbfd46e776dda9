"""`make extras EXTRAS=dist`: what would be published, built and tried.

The source distribution is built, and the wheel from it, so that what it lacks is noticed. Both are
looked at by twine. Then the source distribution is installed on every Python of `pyproject.toml`
that is here, into a clean environment, and once as on a machine without a compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from environments import ROOT, copy_source, run

JOB = Path(__file__).parent / "job_dist.py"
_VERSION = re.compile(r"Python :: (3\.\d+)\"")
_NO_COMPILER = {"CC": "/bin/false", "PIP_NO_CACHE_DIR": "1"}


def try_distributions(folder: Path) -> None:
    """Raise CalledProcessError or TimeoutExpired at the first thing that does not work."""
    python = _make_environment(sys.executable, folder / "build")
    run(python, "-m", "pip", "install", "--quiet", "build", "twine")
    made = folder / "dist"
    run(python, "-m", "build", "--outdir", str(made), str(copy_source(folder / "source")))
    run(python, "-m", "twine", "check", "--strict", *map(str, sorted(made.iterdir())))
    (source,) = made.glob("*.tar.gz")
    for version in _wanted():
        interpreter = find_interpreter(version)
        if interpreter is None:
            print(f"dist: skipped, there is no Python {version} here", flush=True)  # noqa: T201
            continue
        _try(source, interpreter, folder / version, "native")
        print(f"dist: serves on Python {version}", flush=True)  # noqa: T201
    _try(source, sys.executable, folder / "plain", "plain", **_NO_COMPILER)
    print("dist: serves without a compiler, and says so", flush=True)  # noqa: T201


def find_interpreter(version: str) -> str | None:
    """On the path, or where pyenv keeps it."""
    name = f"python{version}"
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *map(str, sorted(kept.glob(f"{version}.*/bin/{name}")))]
    for command in filter(None, found):
        if subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0:
            return command
    return None


def _wanted() -> list[str]:
    return _VERSION.findall((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _try(source: Path, interpreter: str, folder: Path, expected: str, **environ: str) -> None:
    python = _make_environment(interpreter, folder)
    run(python, "-m", "pip", "install", "--quiet", str(source), **environ)
    work = folder / "work"
    work.mkdir()
    run(python, "-I", str(JOB), expected, folder=work)


def _make_environment(interpreter: str, folder: Path) -> str:
    run(interpreter, "-m", "venv", str(folder / "venv"))
    return str(folder / "venv" / "bin" / "python")
