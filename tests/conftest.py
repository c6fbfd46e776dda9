"""What all tests share. Its place puts `tests/` on the path, so that `support` can be imported."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from moldau.processes import NoJavaError, require_java
from support import left_out
from support.client_threads import ClientThreads
from support.ctrl_c import ctrl_c_heard
from support.dealing import deal, workers_for
from support.memory_stores import close_memory_stores
from support.times import TestTimes

# No deadline, and no complaint about slow drawing: a busy machine is no failure. In CI the examples
# are the same in every run, so that a change is judged by its own tests; at home they differ, and
# find what nobody thought of.
settings.register_profile(
    "moldau",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("moldau")
settings.register_profile("quick", settings.get_profile("moldau"), max_examples=20)  # make check

OPTIONAL_TESTS = {
    "matrix": "the tests of all combinations instead of a selection",
    "soak": "the tests that run for a configured time",
}
"""Markers, each with an option of its name. Without the option these tests are deselected."""

# Sessions of Spark last seconds here: most of their processor time is the compiler's otherwise.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_FIGURE = "figure"
_CLIENT_THREADS = ClientThreads()


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, described in OPTIONAL_TESTS.items():
        parser.addoption(f"--{name}", action="store_true", help=f"also run {described}")
    parser.addoption("--times", action="store_true", help="print where the time of the run goes")


def pytest_configure(config: pytest.Config) -> None:
    for name, described in OPTIONAL_TESTS.items():
        config.addinivalue_line("markers", f"{name}: {described}; run only with --{name}")
    config.pluginmanager.register(TestTimes(show=config.getoption("--times")))


@pytest.hookimpl(trylast=True)  # the folders' own conftest files have set their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent = {name for name in OPTIONAL_TESTS if not config.getoption(name)}
    left = {item for item in items if any(mark.name in absent for mark in item.iter_markers())}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        order = deal([item.nodeid for item in items], worker["workercount"])
        items[:] = [items[index] for index in order]


def pytest_collection_finish() -> None:
    """Collected tests stay until the end: the garbage collector passes them over from now on."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return workers_for(len(os.sched_getaffinity(0)), memory)


@pytest.fixture(autouse=True)
def memory_stores_are_closed() -> Iterator[None]:
    yield
    close_memory_stores()


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """What a command that is run within a test does to the log ends with the test: the next one
    would find a handler that writes to a closed file."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """With the last test of a module, and its fixtures, all clients have been closed."""
    yield
    _CLIENT_THREADS.note_after(item.nodeid)
    if nextitem is None or nextitem.path != item.path:
        left = _CLIENT_THREADS.take_left()
        assert not left, f"clients were never closed: {left}"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT arrives, also where the test run was started in the background."""
    with ctrl_c_heard():
        yield


@pytest.fixture
def show_figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """For what a test measures and does not judge: it is printed at the end of the run."""

    def show(text: str) -> None:
        request.node.user_properties.append((_FIGURE, text))

    return show


def pytest_report_header() -> str:
    try:
        return f"java: {require_java('the test run')}"
    except NoJavaError as error:
        return f"java: {error}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    ]
    if skipped:
        terminalreporter.section("left out, and how to get it")
        terminalreporter.write_line("\n".join(left_out.describe(skipped)))
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: {text}"
        for report in terminalreporter.getreports("passed")
        for name, text in report.user_properties
        if name == _FIGURE and report.when == "call"
    ]
    if lines:
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join(lines))
