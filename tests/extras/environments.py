"""Clean environments: nothing of the source tree or of the developers' environment is in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_SECONDS = 900


class Environment:
    """A virtual environment with the built wheel, and a folder for what works with it."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self._wheel = wheel
        self.work.mkdir(parents=True)
        run(sys.executable, "-m", "venv", str(folder / "venv"))

    def install(self, extra: str) -> None:
        """The wheel with an extra; one that is there already is added to."""
        self.add(f"{self._wheel}{extra}")

    def add(self, *requirements: str) -> None:
        run(str(self.bin / "python"), "-m", "pip", "install", "--quiet", *requirements)

    def do(self, job: Path) -> None:
        """In a folder of its own: jobs may share an environment, and nothing else."""
        folder = self.work / job.stem
        folder.mkdir()
        run(str(self.bin / "python"), "-I", str(job), folder=folder)


def copy_source(folder: Path) -> Path:
    """A copy of the tree: what an earlier build left in it must not get into a distribution."""
    folder.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src"):
        if (ROOT / name).is_dir():
            left = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=left)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build_wheel(folder: Path) -> Path:
    source = copy_source(folder.parent / "source")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder))
    run(*pip, str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def clean_environ(**more: str) -> Mapping[str, str]:
    """Without what would lead Python or Moldau to the source tree or to somebody's broker."""
    foreign = ("PYTHON", "MOLDAU_", "PYSPARK_", "VIRTUAL_ENV", "MAKE", "MFLAGS")
    bare = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**bare, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def run(*command: str, folder: Path | None = None, **environ: str) -> None:
    """Raise CalledProcessError or TimeoutExpired, with what was said."""
    subprocess.run(
        command,
        check=True,
        cwd=folder,
        env=clean_environ(**environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS,
    )


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and Path(home).exists())
