"""`make extras`: the built wheel with each extra alone, in a clean environment, does its job once.

What the source tree or the developers' environment has beside it hides what an extra forgot to
bring. So the wheel is built, each environment holds nothing but it and one extra, and the job runs
in an empty folder. With names as arguments, only those are tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
JOBS = {"core": "", "arrow": "[arrow]", "spark": "[spark]", "delta": "[delta]"}
"""The job of each environment is the file `job_<name>.py` beside this one."""

NEEDS_JAVA = frozenset({"spark", "delta"})
PATIENCE_SECONDS = 600


def main(names: Sequence[str]) -> int:
    strange = set(names) - JOBS.keys()
    if strange:
        sys.stderr.write(f"no such extra: {', '.join(sorted(strange))}\n")
        return 2
    failed = skipped = 0
    chosen = list(names or JOBS)
    with tempfile.TemporaryDirectory(prefix="moldau-extras-") as folder:
        wheel = build_wheel(Path(folder) / "wheel")
        say(f"built {wheel.name}")
        for name in chosen:
            if name in NEEDS_JAVA and not has_java():
                say(f"{name}: skipped, it needs Java 17 (JAVA_HOME, or java on the path)")
                skipped += 1
                continue
            began = time.monotonic()
            is_good = try_extra(name, wheel, Path(folder) / name)
            failed += not is_good
            verdict = "does its job" if is_good else "FAILED"
            say(f"{name}: {verdict}, {time.monotonic() - began:.0f} s")
    say(f"extras: {len(chosen) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def build_wheel(folder: Path) -> Path:
    """Of a copy of the tree: what an earlier build left in it must not get into the wheel."""
    source = folder.parent / "source"
    files = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
    source.mkdir(parents=True)
    for name in files:
        if (ROOT / name).is_dir():
            left = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=left)
        else:
            shutil.copy(ROOT / name, source / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder))
    run(*pip, str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_extra(name: str, wheel: Path, folder: Path) -> bool:
    python = folder / "venv" / "bin" / "python"
    work = folder / "work"
    work.mkdir(parents=True)
    try:
        run(sys.executable, "-m", "venv", str(folder / "venv"))
        run(str(python), "-m", "pip", "install", "--quiet", f"{wheel}{JOBS[name]}")
        run(str(python), "-I", str(HERE / f"job_{name}.py"), folder=work)
    except subprocess.CalledProcessError as error:
        say(f"{name}: {' '.join(map(str, error.cmd))} ended with {error.returncode}")
        return False
    except subprocess.TimeoutExpired as error:
        say(f"{name}: {' '.join(map(str, error.cmd))} took more than {PATIENCE_SECONDS} s")
        return False
    shutil.rmtree(folder, ignore_errors=True)  # the next one needs the room
    return True


def run(*command: str, folder: Path | None = None) -> None:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**bare, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run(
        command,
        check=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
    )


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and Path(home).exists())


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
