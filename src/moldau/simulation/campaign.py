"""Runs many seeds of the simulated cluster over the cores: `make campaign SEEDS=1000 FIRST=1`.

    python -m moldau.simulation.campaign --seeds 1000 [--first 1] [--jobs 2] [--events]

Prints a line for each seed that broke a promise, with all that is needed to see it again, and ends
with 1 if there was one. With `--events` the whole run of each failing seed is printed.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from random import Random

from moldau.simulation.cluster import SimulatedCluster, SimulationOutcome
from moldau.simulation.fault_plan import HARMLESS
from moldau.simulation.faults import ABSENCES
from moldau.simulation.operations import TOPICS

_SEEDS_PER_CHUNK = 5
_SECONDS_BETWEEN_LINES = 5.0
_EVENTS_SHOWN = 40
_STORE_SHARE = 0.05
"""Of the seeds. Each takes three times as long as another one."""
_COMMITTED_SHARE = 0.05
"""Of the other seeds: these have transactions, and a share group that may read what they write."""
_SERVED_SHARE = 0.05


def is_store_seed(seed: int) -> bool:
    """Whether people damage the coordination store in this seed (`cluster_accidents.ABSENCES`)."""
    return Random(f"store {seed}").random() < _STORE_SHARE  # noqa: S311 not a secret


def is_served_seed(seed: int) -> bool:
    """Whether all brokers are on one machine in this seed, as with `moldau start --brokers`."""
    return Random(f"served {seed}").random() < _SERVED_SHARE  # noqa: S311 not a secret


def run_seed(seed: int) -> SimulationOutcome:
    if is_store_seed(seed):
        return SimulatedCluster(
            seed=seed,
            kinds=HARMLESS,
            operations=(ABSENCES, TOPICS),
            transactions=True,
            shares=True,
        ).run()
    random = Random(f"committed {seed}")  # noqa: S311 not a secret
    if random.random() < _COMMITTED_SHARE:
        return SimulatedCluster(seed=seed, transactions=True, shares=True).run()
    return SimulatedCluster(
        seed=seed,
        transactions=None,
        shares=None,
        streams=None,
        access=None,
        is_served=is_served_seed(seed),
    ).run()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    progress = _Progress(len(seeds))
    failed: list[int] = []
    for outcome in _run_all(seeds, options.jobs or len(os.sched_getaffinity(0))):
        progress.count(outcome)
        if outcome.violations:
            failed.append(outcome.seed)
            shown = len(outcome.events) if options.events else _EVENTS_SHOWN
            _say(outcome.describe(shown))
    _say(progress.summary())
    if failed:
        _say(f"failed: {', '.join(map(str, sorted(failed)))}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m moldau.simulation.campaign")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: one for each core")
    parser.add_argument("--events", action="store_true", help="print all events of a failure")
    return parser


def _run_all(seeds: range, jobs: int) -> Iterator[SimulationOutcome]:
    if jobs == 1 or len(seeds) == 1:
        if len(seeds) > 1:
            _warm_up()
        yield from map(run_seed, seeds)
        return
    with get_context("spawn").Pool(jobs, initializer=_warm_up) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=_SEEDS_PER_CHUNK)


def _warm_up() -> None:
    """Load everything, and let the garbage collector, which runs after each seed, pass it over."""
    run_seed(0)
    gc.freeze()


class _Progress:
    """Counts, and says so now and then."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._failed = 0
        self._virtual_seconds = 0.0
        self._acknowledged = 0
        self._began = self._said = time.monotonic()

    def count(self, outcome: SimulationOutcome) -> None:
        self._done += 1
        self._failed += bool(outcome.violations)
        self._virtual_seconds += outcome.virtual_seconds
        self._acknowledged += outcome.acknowledged
        if time.monotonic() - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            _say(f"{self._done} of {self._total} seeds, {self._failed} failed")

    def summary(self) -> str:
        took = time.monotonic() - self._began
        return (
            f"{self._done} seeds in {took:.0f} s: {self._virtual_seconds:.0f} s of virtual time, "
            f"{self._acknowledged} records acknowledged with acks=all, {self._failed} failed"
        )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
