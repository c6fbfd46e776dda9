"""`make extras`: the built wheel with each extra alone, in a clean environment, does its job once;
the README is followed command by command; a user's program is checked for its types. `dist` takes
minutes and is done when it is asked for: the distributions are tried on every Python that is here.

What the source tree or the developers' environment has beside it hides what an extra forgot to
bring. So the wheel is built, each environment holds nothing but it and one extra, and the job runs
in an empty folder. An extra that contains another is added to the environment of that one, which is
then what a new one would be. With names as arguments, only those are tried.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from distributions import try_distributions
from environments import TIMEOUT_SECONDS, Environment, build_wheel, has_java
from readme import follow_readme
from types_from_outside import check_types

HERE = Path(__file__).parent
CHAINS = (
    {"core": "", "arrow": "[arrow]"},
    {"spark": "[spark]", "delta": "[delta]", "java": "[spark,java]"},
    {"regex": "[regex]", "security": "[security]"},
    {"console": "[console]"},
    {"schemas": "[schemas]"},
)
"""Names and what is installed for them, one chain beside the other. The job of each is the file
`job_<name>.py` beside this one."""

README, DIST, TYPES = "readme", "dist", "types"
NAMES = (*(name for chain in CHAINS for name in chain), README, DIST, TYPES)
OF_README = ("core", "spark")
JAVA_FROM_PYPI = "java"
"""Is installed first where the system has no Java, since the jobs of its chain need one."""


def main(names: Sequence[str]) -> int:
    strange = set(names) - set(NAMES)
    if strange:
        sys.stderr.write(f"no such job: {', '.join(sorted(strange))}; {', '.join(NAMES)}\n")
        return 2
    chosen = tuple(names or (name for name in NAMES if name != DIST))
    with tempfile.TemporaryDirectory(prefix="moldau-extras-") as folder:
        wheel = build_wheel(Path(folder) / "wheel")
        say(f"built {wheel.name}")
        with ThreadPoolExecutor(len(CHAINS)) as pool:
            run = Run(chosen, wheel, Path(folder))
            done = [verdict for chain in pool.map(run.follow, CHAINS) for verdict in chain]
        if README in chosen:
            done.append(run.attempt(README, run.follow_readme))
        if TYPES in chosen:
            done.append(run.attempt(TYPES, run.check_types))
        if DIST in chosen:
            done.append(
                run.attempt(DIST, lambda: try_distributions(Path(folder) / "distributions"))
            )
    say(f"extras: {done.count(True)} passed, {done.count(False)} failed")
    return 0 if all(done) else 1


class Run:
    """The environments of one run."""

    def __init__(self, chosen: Sequence[str], wheel: Path, folder: Path) -> None:
        self._chosen = chosen
        self._needed = {*chosen, *(OF_README if README in chosen else ())}
        self._wheel = wheel
        self._folder = folder
        self._environments: dict[str, Environment] = {}

    def follow(self, chain: dict[str, str]) -> list[bool]:
        """Each of a chain in turn."""
        wanted = [name for name in chain if name in self._needed]
        return [self.attempt(name, partial(self._do, name, chain)) for name in wanted]

    def attempt(self, name: str, job: Callable[[], None]) -> bool:
        began = time.monotonic()
        try:
            job()
        except subprocess.CalledProcessError as error:
            said = (error.output or b"").decode(errors="replace")
            say(f"{said}\n{name}: {_command(error)} ended with {error.returncode}")
            verdict = False
        except subprocess.TimeoutExpired as error:
            said = (error.output or b"").decode(errors="replace")
            say(f"{said}\n{name}: {_command(error)} took more than {TIMEOUT_SECONDS} s")
            verdict = False
        else:
            verdict = True
        told = "does its job" if verdict else "FAILED"
        say(f"{name}: {told}, {time.monotonic() - began:.0f} s")
        return verdict

    def follow_readme(self) -> None:
        """In the environments that the chains left."""
        follow_readme(self._environments["core"], self._environments["spark"])

    def check_types(self) -> None:
        """In an environment of its own: what other jobs installed would bring its own types."""
        environment = Environment(self._folder / TYPES, self._wheel)
        environment.install("")
        check_types(environment)

    def _do(self, name: str, chain: dict[str, str]) -> None:
        first = next(iter(chain))
        if first not in self._environments:
            self._environments[first] = Environment(self._folder / first, self._wheel)
            if JAVA_FROM_PYPI in chain and not has_java():
                self._environments[first].install(chain[JAVA_FROM_PYPI])
        environment = self._environments[first]
        environment.install(chain[name])
        if name in self._chosen:
            environment.do(HERE / f"job_{name}.py")


def _command(error: subprocess.CalledProcessError | subprocess.TimeoutExpired) -> str:
    return " ".join(map(str, error.cmd)) if isinstance(error.cmd, list | tuple) else str(error.cmd)


_saying = threading.Lock()


def say(text: str) -> None:
    with _saying:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers and folders go, too
    sys.exit(main(sys.argv[1:]))
