"""The tables that `--times` prints."""

from __future__ import annotations

import pytest

from support.times import Reading, Spent, TestTimes


def test_what_was_spent_is_the_difference_of_two_readings() -> None:
    spent = Reading(10.0, 2.0, 5.0).since(Reading(4.0, 1.5, 5.0))

    assert spent == Spent(wall=6.0, own_cpu=0.5, child_cpu=0.0, count=1)


def report(nodeid: str, spent: list[float]) -> pytest.TestReport:
    fixtures = {"broker": spent}
    properties: list[tuple[str, object]] = [("times", [spent, fixtures])]
    return pytest.TestReport(
        nodeid,
        ("", None, ""),
        {},
        "passed",
        None,
        "teardown",
        user_properties=properties,
    )


def test_tests_are_added_up_by_module_and_by_folder() -> None:
    times = TestTimes(show=True)
    for nodeid in ("tests/unit/test_a.py::test_one", "tests/unit/test_b.py::test_two"):
        times.pytest_runtest_logreport(report(nodeid, [2.0, 1.0, 0.5, 1]))

    printed = "\n".join(times.describe())

    folder = next(line for line in printed.splitlines() if line.startswith("tests/unit "))
    assert folder.split() == ["tests/unit", "2", "4.0", "2.0", "1.0"]
    assert printed.index("tests/unit/test_b.py") > printed.index("tests/unit ")
