"""Tries one mutant in this process, and prints what happened as JSON.

    python -m mutants.trial NAME [--seeds N] [--enough K] [--unbroken SEED]

With `--unbroken` one of its seeds is run with the code as it is: who complains then, too, has not
caught the mutant.

A mutant that fails for being no Python (a name that is not there, a wrong number of arguments) has
not been caught by anybody; such an error is reported as a fault of the catalogue.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from mutants.applying import Applied
from mutants.catalogue import find_mutant
from mutants.mutant import Mutant, Seeds

TESTS = Path(__file__).resolve().parent.parent

_REPORTED = re.compile(r"\s*[\d.]+ ([A-Z]+(?:-\d+)?): ")
_NO_PYTHON = ("NameError", "UnboundLocalError", "SyntaxError", "ImportError", "ModuleNotFoundError")


@dataclass(slots=True)
class Trial:
    """What became of a mutant."""

    tried: int = 0
    """Seeds that were run."""
    caught: list[int] = field(default_factory=list)
    """Seeds that noticed."""
    by: dict[str, int] = field(default_factory=dict)
    """What they reported, and how often."""
    first: str = ""
    """The first report of all."""
    passed_tests: list[str] = field(default_factory=list)
    """Named tests that did not notice."""
    failed_tests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Of the catalogue."""


def run_seeds(seeds: Seeds, trial: Trial, numbers: Iterable[int], enough: int) -> None:
    from moldau.simulation.cluster import SimulatedCluster
    from moldau.simulation.fault_plan import FaultKind
    from moldau.simulation.faults import ABSENCES
    from moldau.simulation.operations import FAMILIES

    families = {family.name: family for family in (ABSENCES, *FAMILIES)}
    stories = importlib.import_module("mutants.stories")
    gc.collect()
    gc.freeze()
    by: Counter[str] = Counter()
    for seed in numbers:
        cluster = SimulatedCluster(
            seed=seed,
            brokers=seeds.brokers,
            options=dict(seeds.options),
            kinds=[FaultKind[name] for name in seeds.kinds] or None,
            transactions=seeds.transactions,
            shares=seeds.shares,
            access=seeds.access,
            streams=seeds.streams,
            is_served=seeds.is_served,
            operations=[families[name] for name in seeds.operations] or None,
        )
        outcome = cluster.run(getattr(stories, seeds.story) if seeds.story else None)
        trial.tried += 1
        told = {_who_reports(violation): violation for violation in reversed(outcome.violations)}
        reported = next((rule for rule in seeds.by or reversed(told) if rule in told), None)
        broken = [rule for rule in told if rule in _NO_PYTHON]
        if broken:
            trial.faults.append(f"it is no Python: {told[broken[0]]}")
            break
        if reported is None:
            continue
        trial.caught.append(seed)
        by[reported] += 1
        trial.first = trial.first or f"seed {seed}: {told[reported].strip()}"
        if len(trial.caught) >= enough:
            break
    trial.by = dict(by)


def _who_reports(violation: str) -> str:
    """The invariant, or the exception that should not be."""
    found = _REPORTED.match(violation)
    if found is not None:
        return found[1]
    return violation.strip().rpartition("\n")[2].partition(":")[0].rpartition(".")[2]


class _Failures:
    """A plugin of pytest: what failed, and in which way."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.ran = 0
        self.broken: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        if report.failed:
            self.failed.append(report.nodeid)
            text = report.longreprtext
            self.broken += [name for name in _NO_PYTHON if re.search(rf"^E +{name}\b", text, re.M)]


def run_test(node: str, trial: Trial) -> None:
    failures = _Failures()
    arguments = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=short")
    plain = "--assert=plain"  # otherwise pytest loads our modules itself, past the edits
    code = pytest.main([*arguments, plain, str(TESTS / node)], plugins=[failures])
    if failures.broken:
        trial.faults.append(f"it is no Python, in {node}: {failures.broken[0]}")
    elif code == pytest.ExitCode.TESTS_FAILED and failures.failed:
        trial.failed_tests.append(failures.failed[0])
    elif code == pytest.ExitCode.OK and failures.ran:
        trial.passed_tests.append(node)
    else:
        trial.faults.append(f"pytest ends with {code!r} for {node}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants.trial")
    parser.add_argument("name")
    parser.add_argument("--seeds", type=int, default=0, help="how many; 0: as the catalogue says")
    parser.add_argument("--enough", type=int, default=1, help="stop after so many that notice")
    parser.add_argument("--unbroken", type=int, help="this seed, with the code as it is")
    options = parser.parse_args()
    mutant = find_mutant(options.name)
    trial = Trial()
    if options.unbroken is None:
        run_mutant(mutant, trial, options.seeds, options.enough)
    elif mutant.seeds is not None:
        run_seeds(mutant.seeds, trial, [options.unbroken], enough=1)
    sys.stdout.write(f"\n{json.dumps(asdict(trial))}\n")
    return 0


def run_mutant(mutant: Mutant, trial: Trial, count: int, enough: int) -> None:
    applied = Applied(mutant.edits)
    applied.install()
    for node in mutant.tests:
        run_test(node, trial)
    if mutant.seeds is not None:
        first = mutant.seeds.first
        numbers = range(first, first + (count or mutant.seeds.count))
        run_seeds(mutant.seeds, trial, numbers, enough)
    if applied.missing:
        trial.faults.append(f"never imported: {', '.join(applied.missing)}")


if __name__ == "__main__":
    sys.exit(main())
