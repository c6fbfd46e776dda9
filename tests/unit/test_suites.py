"""How the results of other projects' suites are read, and which failures were expected."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from suites.__main__ import may_try_again, try_suite
from suites.catalogue import SUITES, brokers_as_containers
from suites.results import Outcome, compare, read_go_events, read_go_output, read_junit
from suites.sources import Environment, LeftOutError, Suite, fetch, run_within
from support.broker_process import BrokerProcess
from support.waiting import PATIENCE_SECONDS, eventually

PASSED, SKIPPED, FAILED, BROKEN = Outcome
KGO = "github.com/twmb/franz-go/pkg/kgo"


def go_events(*events: tuple[str, str | None], package: str = KGO) -> list[str]:
    """Lines of `go test -json`, from pairs of an action and the name of a test."""
    rows = [{"Action": action, "Package": package, "Test": name} for action, name in events]
    return [json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows]


def test_tests_of_go_are_counted_by_package_and_name() -> None:
    lines = go_events(
        ("run", "TestPing"),
        ("pass", "TestPing"),
        ("run", "TestScram"),
        ("skip", "TestScram"),
        ("run", "TestGroup"),
        ("fail", "TestGroup"),
        ("fail", None),
    )
    assert read_go_events(lines) == {
        "kgo.TestPing": PASSED,
        "kgo.TestScram": SKIPPED,
        "kgo.TestGroup": FAILED,
    }


def test_a_test_of_go_with_subtests_is_not_counted_beside_them() -> None:
    lines = go_events(
        ("run", "TestConn"),
        ("run", "TestConn/read"),
        ("run", "TestConn/write"),
        ("pass", "TestConn/read"),
        ("fail", "TestConn/write"),
        ("fail", "TestConn"),
    )
    assert read_go_events(lines) == {"kgo.TestConn/read": PASSED, "kgo.TestConn/write": FAILED}


def test_the_name_of_a_subtest_may_have_slashes() -> None:
    lines = go_events(("run", "TestA"), ("run", "TestA/tcp/9092"), ("pass", "TestA/tcp/9092"))
    assert read_go_events([*lines, *go_events(("pass", "TestA"))]) == {"kgo.TestA/tcp/9092": PASSED}


def test_a_test_of_go_that_fails_beside_its_subtests_is_counted() -> None:
    lines = go_events(
        ("run", "TestConn"), ("run", "TestConn/a"), ("pass", "TestConn/a"), ("fail", "TestConn")
    )
    assert read_go_events(lines) == {"kgo.TestConn": FAILED, "kgo.TestConn/a": PASSED}


def test_a_test_of_go_that_was_begun_and_did_not_end_has_failed() -> None:
    lines = go_events(("run", "TestConn"), ("run", "TestConn/a"), ("fail", None))
    assert read_go_events(lines) == {"kgo.TestConn/a": FAILED}


def test_a_package_of_go_that_cannot_be_built_is_broken() -> None:
    lines = go_events(("run", "TestA"), ("pass", "TestA"), ("pass", None))
    lines += go_events(("fail", None), package="example.org/broken")
    assert read_go_events(lines) == {"kgo.TestA": PASSED, "broken": BROKEN}


def test_a_package_of_go_that_panicked_is_broken() -> None:
    panic = json.dumps({"Action": "output", "Package": KGO, "Output": "panic: no such index\n"})
    lines = [*go_events(("run", "TestA"), ("fail", "TestA")), panic, *go_events(("fail", None))]
    assert read_go_events(lines) == {"kgo.TestA": FAILED, "kgo": BROKEN}


def test_a_package_of_go_that_did_not_end_is_broken() -> None:
    lines = go_events(("start", None), ("run", "TestA"), ("pass", "TestA"), ("run", "TestB"))
    found = {"kgo.TestA": PASSED, "kgo.TestB": FAILED}
    assert read_go_events(lines) == {**found, "kgo": BROKEN}
    assert read_go_events([*lines, *go_events(("fail", None))]) == found


def test_lines_that_are_no_events_are_output() -> None:
    event = json.dumps({"Action": "output", "Package": KGO, "Output": "of a test\n"})
    lines = ["go: downloading x\n", event + "\n", '"text"\n']
    assert read_go_output(lines) == 'go: downloading x\nof a test\n"text"\n'
    assert read_go_events(lines) == {}


def test_tests_in_a_junit_file_are_counted_by_module_and_name() -> None:
    text = """<testsuites><testsuite>
        <testcase classname="test.integration.test_admin" name="test_acls" />
        <testcase classname="test.integration.test_admin" name="test_quorum">
          <failure message="no">...</failure></testcase>
        <testcase classname="test.integration.test_ssl.TestSsl" name="test_one[tls]">
          <error message="no">...</error></testcase>
        <testcase classname="test.integration.test_sasl" name="test_one">
          <skipped message="no">...</skipped></testcase>
        </testsuite></testsuites>"""
    assert read_junit(text) == {
        "test_admin::test_acls": PASSED,
        "test_admin::test_quorum": FAILED,
        "test_ssl::TestSsl::test_one[tls]": FAILED,
        "test_sasl::test_one": SKIPPED,
    }


@pytest.mark.parametrize("cases", [("", "<error />"), ("<error />", "")])
def test_a_failure_while_a_test_is_torn_down_is_a_failure(cases: tuple[str, str]) -> None:
    text = "".join(f'<testcase classname="test_a" name="one">{case}</testcase>' for case in cases)
    assert read_junit(f"<testsuite>{text}</testsuite>") == {"test_a::one": FAILED}


def test_only_failures_that_are_not_known_are_unexpected() -> None:
    outcomes = {
        "kgo.TestA": FAILED,
        "kgo.TestConn/read": FAILED,
        "kgo.TestConnection": FAILED,
        "kgo.TestPing": PASSED,
        "kgo.TestScram": SKIPPED,
        "test_ssl::test_one[tls]": FAILED,
    }
    known = {"kgo.TestConn": "reads differ", "test_ssl": "starts a Kafka", "kgo.TestPing": "slow"}
    found = compare(outcomes, known)
    assert found.unexpected == ("kgo.TestA", "kgo.TestConnection")
    assert found.known == ("kgo.TestConn/read", "test_ssl::test_one[tls]")
    assert found.without_difference == ("kgo.TestPing",)
    assert found.describe() == "1 passed, 1 skipped, 2 failed, 2 known differences"


def test_a_run_that_went_wrong_is_unexpected() -> None:
    assert compare({"a": PASSED, "kgo": BROKEN}, {}).unexpected == ("kgo",)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [([], False), ([FAILED], True), ([FAILED, BROKEN], False), ([FAILED] * 7, False)],
)
def test_a_few_tests_that_failed_get_a_second_try(failures: list[Outcome], expected: bool) -> None:
    assert may_try_again(failures) is expected


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSuite(Suite):
    runs: list[dict[str, Outcome]]  # the outcomes of each
    asked: list[Sequence[str]] = field(default_factory=list)  # for which tests

    def _fetch(self, log: Path) -> Path:
        return log.parent

    def run(
        self, folder: Path, brokers: Environment, log: Path, only: Sequence[str] = ()
    ) -> dict[str, Outcome]:
        self.asked.append(only)
        return self.runs[len(self.asked) - 1]


@contextlib.contextmanager
def no_brokers(folder: Path) -> Iterator[Environment]:
    yield {}


@contextlib.contextmanager
def brokers_with_a_traceback(folder: Path) -> Iterator[Environment]:
    yield {}
    raise AssertionError("the broker printed: Traceback")


def fake_suite(*runs: dict[str, Outcome], **changes: Any) -> FakeSuite:
    settings = {"brokers": no_brokers, "limit_seconds": 60, "least_passed": 1, **changes}
    return FakeSuite(name="fake", version="1.0", runs=list(runs), **settings)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("suites.__main__.CACHE", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("cache")
def test_a_suite_succeeds_when_only_known_tests_fail(capsys: pytest.CaptureFixture[str]) -> None:
    suite = fake_suite({"a": PASSED, "b": FAILED}, known_differences={"b": "it is so"})
    assert try_suite(suite)
    assert "fake 1.0: 1 passed, 0 skipped, 0 failed, 1 known differences" in capsys.readouterr().out


@pytest.mark.usefixtures("cache")
def test_tests_that_failed_are_run_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    first = {"a": PASSED, "b": FAILED, "c": FAILED}
    suite = fake_suite(first, {"b": PASSED, "c": FAILED})
    assert not try_suite(suite)
    assert suite.asked == [(), ("b", "c")]
    printed = capsys.readouterr().out
    assert "passed only at the second try: b" in printed
    assert "2 passed, 0 skipped, 1 failed" in printed
    assert "  failed: c" in printed


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "changes", [{"least_passed": 2}, {"brokers": brokers_with_a_traceback}], ids=["few", "broken"]
)
def test_a_suite_fails_without_a_test_that_failed(changes: dict[str, Any]) -> None:
    assert not try_suite(fake_suite({"a": PASSED}, **changes))


@pytest.mark.usefixtures("cache")
def test_a_suite_that_cannot_run_here_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: Path) -> None:
        raise LeftOutError("go is not installed")

    suite = fake_suite(require=refuse)
    assert try_suite(suite)
    assert "fake 1.0: left out: go is not installed" in capsys.readouterr().out
    assert not suite.asked


@pytest.mark.parametrize("name", SUITES)
def test_every_difference_has_a_reason(name: str) -> None:
    reasons = {**SUITES[name].known_differences, **SUITES[name].not_run}
    assert all(len(reason.split()) > 3 for reason in reasons.values())


def test_a_command_that_takes_too_long_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    program = "sleep 600 & echo $!; wait"
    output = tmp_path / "out"
    command = ("sh", "-c", program)
    assert run_within(1, command, folder=tmp_path, environment={}, output=output) is None
    pid = int(output.read_text())

    def has_ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").exists() and "Z" in Path(f"/proc/{pid}/stat").read_text()

    eventually(has_ended, "the child has ended")


def test_a_suite_that_cannot_be_fetched_is_left_out_with_the_last_line(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "print('one'); print('no such host'); raise SystemExit(3)")
    with pytest.raises(LeftOutError, match="ended with 3: no such host"):
        fetch(command, tmp_path / "log", folder=tmp_path, environment={})


class FakeBroker:
    """What the suite does with a broker."""

    def __init__(self) -> None:
        self.is_alive = True
        self.output = "listening"

    def start(self) -> None:
        self.is_alive = True

    def stop(self) -> None:
        self.is_alive = False


def test_brokers_are_stopped_and_started_by_the_name_of_docker(tmp_path: Path) -> None:
    broker = FakeBroker()

    def ask_docker(*arguments: str) -> str:
        command = [str(folder / "docker"), "compose", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        return done.stdout if done.returncode == 0 else "refused"

    brokers = cast("Mapping[int, BrokerProcess]", {2: broker})
    with brokers_as_containers(brokers, tmp_path / "bin") as folder:
        assert ask_docker("stop", "kafka-2") == ""
        assert not broker.is_alive
        assert ask_docker("start", "kafka-2") == ""
        assert broker.is_alive
        assert ask_docker("logs", "--since", "2026-11-19T20:00:00Z", "kafka-2") == "listening"
        assert ask_docker("exec", "kafka-2") == "refused"
