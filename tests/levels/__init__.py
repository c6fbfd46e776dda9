"""The levels of testing: what each one runs, and the record of its last green run.

A level is a list of steps, and a step is a command. The last line that a command prints is its
result: pytest, the campaign and the mutants print their counts there.
"""

from __future__ import annotations

import codecs
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RECORDS = ROOT / ".levels"

PYTHON = sys.executable
JOBS = os.environ.get("JOBS", "auto")
RUN_TESTS = os.environ.get("RUN_TESTS", "-m pytest").split()
"""`.ci/run` sets it to `tests/second_try.py`."""
PYTEST = (PYTHON, *RUN_TESTS, "-n", JOBS, "--dist", "worksteal")
QUICK_TESTS = (
    "tests/unit",
    "tests/scenarios",
    "tests/mutants/test_catalogue.py",
    *(f"tests/contract/test_{name}.py" for name in ("clock", "files", "network", "workers")),
)
UTF_8 = codecs.getincrementaldecoder("utf-8")
UPGRADE_FROM = "6d6c3ab"  # the last commit before offsets carry the id of their topic


def make(target: str, *settings: str) -> tuple[str, ...]:
    return ("make", "--no-print-directory", target, *settings)


def missing_program(name: str, package: str) -> Callable[[], str]:
    """A check for a step that needs a program that is not a part of the project."""

    def find() -> str:
        return "" if shutil.which(name) else f"{name} is missing ({package})"

    return find


def cannot_debootstrap() -> str:
    if os.geteuid() != 0:
        return "root is needed"
    return missing_program("debootstrap", "apt install debootstrap")()


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    command: Sequence[str]
    find_missing: Callable[[], str] = lambda: ""
    """Returns what this machine lacks for the step, or an empty string."""


LINT = Step("lint", make("lint"))
JARS = Step("jars of Kafka", ("env", "PYTHONPATH=tests", PYTHON, "-m", "support.kafka_jars"))
MACHINES = (PYTHON, "tests/machines")

LEVELS: Mapping[str, tuple[Step, ...]] = {
    "check": (
        LINT,
        Step("tests without processes", (*PYTEST, "--hypothesis-profile=quick", *QUICK_TESTS)),
        Step("20 seeds", make("campaign", "SEEDS=20")),
    ),
    "test": (LINT, JARS, Step("all tests", (*PYTEST, "--times"))),
    "proof": (
        LINT,
        JARS,
        Step("all tests and the matrix", (*PYTEST, "--times", "--matrix")),
        Step("extras and README", make("extras")),
        Step("distributions", make("extras", "EXTRAS=dist")),
        Step("documentation", make("docs")),
        Step("Python 3.13, Debian 13, no Java", (*MACHINES, "trixie"), cannot_debootstrap),
        Step("Python 3.14, Debian sid, no Java", (*MACHINES, "sid"), cannot_debootstrap),
        Step(
            "Python 3.11.2, Debian 12, Java, ordinary user",
            (*MACHINES, "bookworm", "--java", "--user"),
            cannot_debootstrap,
        ),
        Step("10,000 seeds", make("campaign", "SEEDS=10000")),
        Step("mutants", make("mutants")),
        Step("suites of other projects", make("suites")),
        Step("upgrade and downgrade", make("upgrade", f"FROM={UPGRADE_FROM}")),
        Step("exactly-once", make("exactly-once", "ROUNDS=10", "KILLS=10")),
        Step("soaks", make("soak", "SECONDS=600")),
    ),
}
KEEP_GOING = frozenset({"proof"})
"""Levels that run their other steps after one has failed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    step: str
    verdict: str
    """`passed`, `failed` or `left out`."""

    seconds: float
    result: str


@dataclass(slots=True)
class Record:
    """A run of a level. The last green one of each level is kept."""

    level: str
    commit: str
    began: str
    python: str
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return RECORDS / f"{self.level}.json"

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.outcomes)

    @property
    def is_green(self) -> bool:
        return all(outcome.verdict != "failed" for outcome in self.outcomes)

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {**asdict(self), "seconds": round(self.seconds, 1)}
        self.path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def describe(self) -> Iterator[str]:
        for one in self.outcomes:
            yield f"{one.verdict:8}  {one.seconds:6.0f} s  {one.step}: {one.result}"
        verdict = "green" if self.is_green else "FAILED"
        yield f"make {self.level}: {verdict}, {self.commit}, {self.seconds / 60:.1f} minutes"


def run_level(
    level: str, steps: Sequence[Step], say: Callable[[str], None], *, keep: bool = True
) -> Record:
    """Run the steps. With `keep`, the record of a green run is written."""
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record = Record(level, read_commit(), began, sys.version.split()[0])
    for step in steps:
        say(f"== {level}: {step.name}\n")
        outcome = run_step(step, say)
        record.outcomes.append(outcome)
        if outcome.verdict == "failed" and level not in KEEP_GOING:
            break
    if keep and record.is_green:
        record.write()
    return record


def run_step(step: Step, say: Callable[[str], None]) -> Outcome:
    missing = step.find_missing()
    if missing:
        return Outcome(step.name, "left out", 0.0, missing)
    began = time.monotonic()
    with subprocess.Popen(
        step.command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        last, decoder = "", UTF_8(errors="replace")
        while piece := process.stdout.read(65536):
            text = decoder.decode(piece)
            say(text)
            last = (last + text)[-1000:]
    lines = [line.strip("= ") for line in last.splitlines() if line.strip("= ")]
    verdict = "failed" if process.returncode else "passed"
    return Outcome(
        step.name, verdict, round(time.monotonic() - began, 1), lines[-1] if lines else ""
    )


def read_commit() -> str:
    """The commit that is checked out; `, changed` follows if the tree differs from it."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    return f"{commit}, changed" if _git("status", "--porcelain") else commit


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
