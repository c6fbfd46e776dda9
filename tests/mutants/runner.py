"""Tries mutants, each in a process of its own, and compares what happens with its verdict.

python -m mutants [PATTERN ...] [--seeds N] [--enough K] [--jobs J] [--only seeds|tests]
        [--json PATH] [--list]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mutants.catalogue import MUTANTS
from mutants.mutant import Mutant
from mutants.trial import TESTS, Trial

MOST_SECONDS = 1800.0
"""For one mutant. More is a hang, which is nobody's verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A trial, and what is wrong with the verdict in the light of it."""

    mutant: Mutant
    trial: Trial
    seconds: float
    objection: str = ""

    @property
    def verdict(self) -> str:
        if self.objection:
            return "WRONG"
        return "redundant" if self.mutant.redundant else "caught"

    def describe(self) -> str:
        return f"{self.verdict:9s}  {self.mutant.name:58s}  {self.objection or self._evidence()}"

    def _evidence(self) -> str:
        trial, evidence = self.trial, []
        if self.mutant.seeds is not None:
            by = ", ".join(f"{rule} {count}" for rule, count in trial.by.items())
            first = f" from {trial.caught[0]} on ({by})" if trial.caught else ""
            evidence.append(f"{len(trial.caught)} of {trial.tried} seeds{first}")
        if trial.failed_tests:
            evidence.append(f"fails {', '.join(trial.failed_tests)}")
        if self.mutant.redundant:
            caught_with = self.mutant.caught_with
            more = f"; caught with {caught_with}" if caught_with else ""
            evidence.append(f"because {self.mutant.redundant}{more}")
        return "; ".join(evidence)


def judge(mutant: Mutant, trial: Trial) -> str:
    """What does not agree with the verdict; empty when all does."""
    if trial.faults:
        return trial.faults[0]
    if mutant.redundant:
        if trial.caught or trial.failed_tests:
            return f"is called redundant and is caught: {trial.first or trial.failed_tests}"
        return ""
    if trial.passed_tests:
        return f"survives {', '.join(trial.passed_tests)}"
    if mutant.seeds is not None and not trial.caught:
        return f"survives {trial.tried} seeds"
    if mutant.seeds is None and not mutant.tests:
        return "has no proof"
    return ""


def try_mutant(
    mutant: Mutant, *, seeds: int = 0, enough: int = 1, is_careful: bool = False
) -> Result:
    """Who is careful runs the first seed that noticed again, with the code as it is."""
    began = time.monotonic()
    trial = _run(mutant.name, "--seeds", str(seeds), "--enough", str(enough))
    if is_careful and trial.caught and not trial.faults:
        seed = trial.caught[0]
        unbroken = _run(mutant.name, "--unbroken", str(seed))
        trial.faults += unbroken.faults
        if unbroken.caught:
            trial.faults.append(f"seed {seed} complains without it, too: {unbroken.first}")
    seconds = time.monotonic() - began
    return Result(mutant=mutant, trial=trial, seconds=seconds, objection=judge(mutant, trial))


def _run(*arguments: str) -> Trial:
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "mutants.trial", *arguments],
                cwd=TESTS.parent,
                env=_environment(folder),
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Trial(faults=[f"hangs: no end after {MOST_SECONDS:.0f} s"])
    return _parse(done)


def _environment(folder: str) -> Mapping[str, str]:
    """Examples of hypothesis are the same each time, and none is kept that a mutant has spoilt."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH", ""))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "CI": "true",
        "HYPOTHESIS_STORAGE_DIRECTORY": folder,
    }


def _parse(done: subprocess.CompletedProcess[str]) -> Trial:
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode or not last.startswith("{"):
        return Trial(faults=[f"ended with {done.returncode}: {done.stderr.strip()[-600:]}"])
    return Trial(**json.loads(last))


def choose(patterns: Sequence[str], only: str | None = None) -> list[Mutant]:
    return [
        mutant
        for mutant in MUTANTS
        if (not patterns or any(fnmatchcase(mutant.name, pattern) for pattern in patterns))
        and (only != "tests" or mutant.seeds is None)
        and (only != "seeds" or mutant.seeds is not None)
    ]


def write_json(path: Path, results: Iterable[Result]) -> None:
    rows = [
        {
            "name": result.mutant.name,
            "rule": result.mutant.rule,
            "breaks": result.mutant.breaks,
            "verdict": result.verdict,
            "objection": result.objection,
            "redundant": result.mutant.redundant,
            "seconds": round(result.seconds, 1),
            **asdict(result.trial),
        }
        for result in results
    ]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="names, with * and ?; all without")
    parser.add_argument(
        "--seeds", type=int, default=0, help="run so many of each and count; 0: until caught"
    )
    parser.add_argument("--enough", type=int, default=3, help="stop at so many that notice")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: one for each core")
    parser.add_argument("--json", type=Path, help="write all of it there, too")
    parser.add_argument("--only", choices=("seeds", "tests"), help="those with such a proof alone")
    parser.add_argument("--list", action="store_true", help="print the catalogue and try nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = choose(options.patterns, options.only)
    if not chosen:
        _say("no mutant has such a name")
        return 2
    if options.list:
        for mutant in chosen:
            _say(f"{mutant.name}\n    {mutant.rule}: {mutant.breaks}")
        return 0
    enough = options.seeds or options.enough
    jobs = options.jobs or len(os.sched_getaffinity(0))
    results = []
    with ThreadPoolExecutor(jobs) as pool:

        def run(mutant: Mutant) -> Result:
            return try_mutant(mutant, seeds=options.seeds, enough=enough, is_careful=True)

        for result in pool.map(run, chosen):
            results.append(result)
            _say(result.describe())
    if options.json is not None:
        write_json(options.json, results)
    wrong = [result.mutant.name for result in results if result.objection]
    redundant = sum(result.verdict == "redundant" for result in results)
    caught = len(results) - redundant - len(wrong)
    _say(f"{len(results)} mutants: {caught} caught, {redundant} redundant, {len(wrong)} wrong")
    if wrong:
        _say(f"wrong: {', '.join(wrong)}")
    return 1 if wrong else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
