"""Runs rows: systems in turns, medians and spread, failures kept beside the figures.

Systems stand for all rows that want them, and are started when the first one does. A row that fails
for one system is told of and goes on with the others; a system that broke is started anew for the
next row. Every sample of a row is taken in turns, in an order that turns around.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.loads import KIB, Sample, Site, append, read
from bench.processes import temporary_folder
from bench.rows import ROWS, Row
from bench.systems import SYSTEMS, Running
from bench.wires import WIRES, RefusedError

Tell = Callable[[str], None]
_START_SECONDS = {"kafka": 6.0, "moldau": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how often."""

    seconds: float
    repetitions: int
    warm_seconds: float
    """Of requests to a system that has just started: compilers at run time want to see them."""


FULL = Effort(seconds=2.0, repetitions=5, warm_seconds=15.0)
QUICK = Effort(seconds=0.2, repetitions=1, warm_seconds=0.0)
_EFFORTS = (
    FULL,
    Effort(seconds=1.0, repetitions=5, warm_seconds=15.0),
    Effort(seconds=1.0, repetitions=3, warm_seconds=10.0),
    Effort(seconds=0.5, repetitions=3, warm_seconds=5.0),
)


class Spread:
    """Some samples of one figure."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = sorted(values)
        self.median = median(values)
        self.percent = (self.values[-1] - self.values[0]) / 2 / (self.median or 1) * 100
        """Half of the range, as a share of the median."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What was found for one row."""

    row: Row
    samples: dict[str, list[Sequence[float]]] = field(default_factory=dict)
    """By system; for each sample, the figures of the row."""
    failures: dict[str, str] = field(default_factory=dict)

    def spread(self, system: str, place: int) -> Spread | None:
        rounds = self.samples.get(system)
        return Spread([one[place] for one in rounds]) if rounds else None

    @classmethod
    def read_json(cls, written: Mapping[str, Any]) -> Found | None:
        """As `as_json` wrote it; None where the row is not there any more."""
        row = next((row for row in ROWS if row.name == written["row"]), None)
        if row is None:
            return None
        return cls(row=row, samples=written["samples"], failures=written["failures"])

    def as_json(self) -> dict[str, object]:
        return {
            "row": self.row.name,
            "title": self.row.title,
            "figures": [figure.name for figure in self.row.figures],
            "more_is_better": [figure.more_is_better for figure in self.row.figures],
            "samples": self.samples,
            "failures": self.failures,
        }


def estimate_seconds(row: Row, systems: Sequence[str], effort: Effort) -> float:
    """So that a run keeps its bound; a guess from runs on a busy machine of two cores."""
    repetitions = min(effort.repetitions, row.repetitions or effort.repetitions)
    sample = row.sample_seconds or effort.seconds + 0.3
    return len(systems) * (row.setup_seconds + (repetitions + 1) * sample)


def choose(
    rows: Sequence[Row], systems: Mapping[str, Sequence[str]], minutes: float | None
) -> tuple[list[Row], Effort]:
    """The rows and the effort that fit into a bound; what matters most stays."""
    if minutes is None:
        return list(rows), FULL
    started = {name for row in rows for name in systems[row.name]}
    for effort in _EFFORTS:
        bound = minutes * 60 - sum(
            _START_SECONDS.get(SYSTEMS[name].family, 1.0) * SYSTEMS[name].nodes
            + effort.warm_seconds
            for name in started
        )
        if sum(estimate_seconds(row, systems[row.name], effort) for row in rows) <= bound:
            return list(rows), effort
    chosen: list[Row] = []
    spent = 0.0
    for row in sorted(rows, key=lambda one: -one.weight):
        cost = estimate_seconds(row, systems[row.name], effort)
        if spent + cost <= bound:
            chosen.append(row)
            spent += cost
    return [row for row in rows if row in chosen], effort


class Stand:
    """The systems that are running."""

    def __init__(self, folder: Path, warm_seconds: float, tell: Tell) -> None:
        self._folder, self._warm_seconds, self._tell = folder, warm_seconds, tell
        self._running: dict[str, Running] = {}
        self._starts = 0

    def find(self, name: str) -> Running:
        if name not in self._running:
            self._tell(f"starting {name}")
            self._starts += 1
            folder = self._folder / f"{name}-{self._starts}"
            self._running[name] = SYSTEMS[name].start(folder)
            if self._warm_seconds:
                self._warm(name)
        return self._running[name]

    def _warm(self, name: str) -> None:
        """With requests of every kind that it knows, each alone and many at a time."""
        site = Site(
            system=SYSTEMS[name],
            wire=WIRES[SYSTEMS[name].protocol](),
            find_running=partial(self.find, name),
            seconds=self._warm_seconds / 3,
        )
        for load in (
            partial(append, in_flight=32),
            partial(append, batch_bytes=16 * KIB, record_bytes=KIB),
            read,
        ):
            with suppress(NotImplementedError), load(site) as sample:
                sample()

    def drop_if_dead(self, name: str, error: Exception) -> None:
        """What a system refuses does not harm it; what it does not answer may."""
        if not isinstance(error, RefusedError | NotImplementedError):
            self.drop(name)

    def drop(self, name: str) -> None:
        if name in self._running:
            self._running.pop(name).close()

    def keep_only(self, names: set[str]) -> None:
        """Who is not wanted any more shall not disturb the others."""
        for name in set(self._running) - names:
            self.drop(name)


@contextmanager
def standing(warm_seconds: float, tell: Tell) -> Iterator[Stand]:
    with temporary_folder() as folder:
        stand = Stand(folder, warm_seconds, tell)
        try:
            yield stand
        finally:
            stand.keep_only(set())


def run_rows(
    rows: Sequence[Row], systems: Mapping[str, Sequence[str]], effort: Effort, tell: Tell
) -> Iterator[Found]:
    with standing(effort.warm_seconds, tell) as stand:
        for place, row in enumerate(rows):
            before = time.perf_counter()
            stand.keep_only({name for later in rows[place:] for name in systems[later.name]})
            found = _run_row(row, systems[row.name], effort, stand, tell)
            spent = time.perf_counter() - before
            tell(f"[{place + 1}/{len(rows)}] {row.name}: {spent:.0f} s")
            yield found


def _run_row(row: Row, systems: Sequence[str], effort: Effort, stand: Stand, tell: Tell) -> Found:
    found = Found(row=row)
    broken: dict[str, Exception] = {}

    def fail(name: str, error: Exception) -> None:
        found.failures[name] = f"{type(error).__name__}: {error}".rstrip(": ")
        found.samples.pop(name, None)
        broken[name] = error
        tell(f"{row.name} failed for {name}: {found.failures[name]}")

    with ExitStack() as stack:
        samples: dict[str, Sample] = {}
        for name in systems:
            try:
                samples[name] = stack.enter_context(row.load(_site(name, effort, stand)))
                samples[name]()  # warm
            except Exception as error:  # noqa: BLE001 a row that fails ends no run
                samples.pop(name, None)
                fail(name, error)
        order = list(samples)
        for _ in range(min(effort.repetitions, row.repetitions or effort.repetitions)):
            for name in order:
                if name not in found.failures:
                    try:
                        found.samples.setdefault(name, []).append(samples[name]())
                    except Exception as error:  # noqa: BLE001 a row that fails ends no run
                        fail(name, error)
            order.reverse()
    for name, error in broken.items():
        stand.drop_if_dead(name, error)
    return found


def _site(name: str, effort: Effort, stand: Stand) -> Site:
    system = SYSTEMS[name]
    return Site(
        system=system,
        wire=WIRES[system.protocol](),
        find_running=partial(stand.find, name),
        seconds=effort.seconds,
    )


def quick(row: Row) -> Row:
    """The same row, once."""
    return replace(row, repetitions=1)
