"""What the tests of a suite did, and which of the failures were expected."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from xml.etree import ElementTree


class Outcome(Enum):
    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    BROKEN = "broken"  # no test: the run itself went wrong, so that other tests may not have run


_OF_GO = {
    "run": Outcome.FAILED,  # until it ends
    "pass": Outcome.PASSED,
    "skip": Outcome.SKIPPED,
    "fail": Outcome.FAILED,
}
_END_OF_GO = ("panic: ", "fatal error: ")
_LEVELS = "/[:"
"""What separates the name of a test from the names below it: subtests, parameters, a module."""


def read_go_events(lines: Iterable[str]) -> dict[str, Outcome]:
    """The outcomes of `go test -json`, by package and name: `kgo.TestGroupETL/some_part`.

    A test that has subtests counts only when it failed and none of them did. A test that was begun
    and did not end has failed. A package is broken that panicked, that did not end, or that
    failed without a test, since it was not built.
    """
    tests: dict[str, Outcome] = {}
    packages: dict[str, Outcome] = {}
    broken: set[str] = set()
    for event in _events(lines):
        package = event.get("Package", "").rpartition("/")[2]
        outcome = _OF_GO.get(event["Action"])
        if event["Action"] == "start":
            packages[package] = Outcome.BROKEN  # until it ends
        if event.get("Output", "").startswith(_END_OF_GO):
            broken.add(package)
        if outcome is None:
            continue
        if "Test" in event:
            tests[f"{package}.{event['Test']}"] = outcome
        else:
            packages[package] = outcome
    failed = [name for name, outcome in tests.items() if outcome is Outcome.FAILED]
    above = {higher for name in tests for higher in _above(name)}
    above_failures = {higher for name in failed for higher in _above(name)}
    for name in above - (set(failed) - above_failures):
        tests.pop(name, None)  # names of subtests may have slashes themselves
    for package, outcome in packages.items():
        explained = any(name.startswith(f"{package}.") for name in failed)
        failed_alone = outcome is Outcome.FAILED and (package in broken or not explained)
        if failed_alone or outcome is Outcome.BROKEN:
            tests[package] = Outcome.BROKEN
    return tests


def _above(name: str) -> list[str]:
    """The tests of Go that it is a subtest of."""
    return [name[:place] for place, letter in enumerate(name) if letter == "/"]


def read_go_output(lines: Iterable[str]) -> str:
    """The text that the tests printed, without the events around it."""
    return "".join(event.get("Output", "") for event in _events(lines))


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict) and "Action" in event:
            yield event
        else:  # of the go command itself
            yield {"Action": "output", "Output": line}


def read_junit(text: str) -> dict[str, Outcome]:
    """The outcomes in pytest's JUnit file, as `test_module::test_name[parameters]`."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        parts = case.get("classname", "").split(".")
        module = next((i for i, part in enumerate(parts) if part.startswith("test_")), 0)
        name = "::".join((*parts[module:], case.get("name", "")))
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.SKIPPED if "skipped" in kinds else Outcome.PASSED
        if outcomes.get(name) is not Outcome.FAILED:  # the tear-down has a case of its own
            outcomes[name] = outcome
    return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcomes of a run beside the differences that are known."""

    passed: int
    skipped: int
    unexpected: tuple[str, ...]  # names of tests that failed, and are not known to
    known: tuple[str, ...]  # names of tests that failed as expected
    without_difference: tuple[str, ...]  # entries of the table of which every test passed

    def describe(self) -> str:
        return (
            f"{self.passed} passed, {self.skipped} skipped, {len(self.unexpected)} failed, "
            f"{len(self.known)} known differences"
        )


def compare(outcomes: Mapping[str, Outcome], known_differences: Mapping[str, str]) -> Comparison:
    """An entry of the table is the name of a test, or of what is above it (`TestConn`)."""
    failures = (Outcome.FAILED, Outcome.BROKEN)
    failed = sorted(name for name, one in outcomes.items() if one in failures)
    passed = [name for name, one in outcomes.items() if one is Outcome.PASSED]
    known = [name for name in failed if any(_covers(one, name) for one in known_differences)]
    return Comparison(
        passed=len(passed),
        skipped=len(outcomes) - len(passed) - len(failed),
        unexpected=tuple(name for name in failed if name not in known),
        known=tuple(known),
        without_difference=tuple(
            one
            for one in known_differences
            if any(_covers(one, name) for name in passed)
            and not any(_covers(one, name) for name in failed)
        ),
    )


def _covers(entry: str, name: str) -> bool:
    return name == entry or (name.startswith(entry) and name[len(entry)] in _LEVELS)
