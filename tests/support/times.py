"""Where the time of a test run goes: by folder and by fixture, computing and waiting apart.

`--times` prints the tables at the end of the run. CPU time of child processes counts when they have
been waited for, so processes that outlive their test are counted in a later one.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import pytest

_PROPERTY = "times"
_FIXTURES_SHOWN = 15
_MODULES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What the clocks of a test worker say."""

    wall: float
    own_cpu: float
    child_cpu: float

    @classmethod
    def take_now(cls) -> Reading:
        cpu = os.times()
        own, child = cpu.user + cpu.system, cpu.children_user + cpu.children_system
        return cls(time.monotonic(), own, child)

    def since(self, earlier: Reading) -> Spent:
        return Spent(
            self.wall - earlier.wall,
            self.own_cpu - earlier.own_cpu,
            self.child_cpu - earlier.child_cpu,
        )


@dataclass(slots=True)
class Spent:
    wall: float = 0.0
    own_cpu: float = 0.0
    child_cpu: float = 0.0
    count: int = 1

    def add(self, other: Spent) -> None:
        self.wall += other.wall
        self.own_cpu += other.own_cpu
        self.child_cpu += other.child_cpu
        self.count += other.count


@dataclass(slots=True, eq=False)  # pytest keeps its plugins in sets
class TestTimes:
    """A pytest plugin, on the workers and on the process that starts them."""

    __test__ = False

    show: bool
    _started: Reading = field(default_factory=Reading.take_now)
    _fixtures: dict[str, Spent] = field(default_factory=dict)
    _by_module: defaultdict[str, Spent] = field(
        default_factory=lambda: defaultdict(lambda: Spent(count=0))
    )
    _by_fixture: defaultdict[str, Spent] = field(
        default_factory=lambda: defaultdict(lambda: Spent(count=0))
    )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._started = Reading.take_now()
        self._fixtures = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        before = Reading.take_now()
        try:
            return (yield)
        finally:
            spent = Reading.take_now().since(before)
            self._fixtures.setdefault(fixturedef.argname, Spent(count=0)).add(spent)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            spent = Reading.take_now().since(self._started)
            fixtures = {name: _as_list(one) for name, one in self._fixtures.items()}
            report.user_properties.append((_PROPERTY, [_as_list(spent), fixtures]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and report.when == "teardown":
                spent, fixtures = value
                self._by_module[report.nodeid.partition("::")[0]].add(Spent(*spent))
                for fixture, one in fixtures.items():
                    self._by_fixture[fixture].add(Spent(*one))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.show and self._by_module:
            terminalreporter.section("times")
            terminalreporter.write_line("\n".join(self.describe()))

    def describe(self) -> Iterator[str]:
        folders: defaultdict[str, Spent] = defaultdict(lambda: Spent(count=0))
        for module, spent in self._by_module.items():
            folders["/".join(module.split("/")[:2])].add(spent)
        yield from _table("folder", "tests", folders, len(folders))
        yield from _table("module", "tests", self._by_module, _MODULES_SHOWN)
        yield from _table("fixture", "set up", self._by_fixture, _FIXTURES_SHOWN)


def _as_list(spent: Spent) -> list[float]:
    return [spent.wall, spent.own_cpu, spent.child_cpu, spent.count]


def _table(what: str, counted: str, rows: dict[str, Spent], limit: int) -> Iterator[str]:
    yield f"{what:52} {counted:>7} {'seconds':>8} {'own CPU':>8} {'children':>8}"
    for name, one in sorted(rows.items(), key=lambda row: -row[1].wall)[:limit]:
        yield f"{name:52} {one.count:7} {one.wall:8.1f} {one.own_cpu:8.1f} {one.child_cpu:8.1f}"
    yield ""
