"""The levels of testing keep the record of their last green run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import levels
from levels import Step, run_level


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


PASSES = Step("one", script("print('= 3 passed, 1 skipped in 0.10s ='); print()"))
FAILS = Step("two", script("print('1 failed'); raise SystemExit(1)"))
ABSENT = Step("three", script(""), lambda: "Java is missing")


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(levels, "RECORDS", tmp_path)
    return tmp_path


def test_a_green_run_is_kept_with_its_commit_its_duration_and_its_counts(records: Path) -> None:
    run_level("check", [PASSES, ABSENT], lambda text: None)
    kept = json.loads((records / "check.json").read_text())
    assert kept["commit"] == levels.read_commit()
    assert kept["seconds"] >= 0
    assert [(one["verdict"], one["result"]) for one in kept["outcomes"]] == [
        ("passed", "3 passed, 1 skipped in 0.10s"),
        ("left out", "Java is missing"),
    ]


def test_a_failed_run_does_not_replace_the_last_green_one(records: Path) -> None:
    run_level("check", [PASSES], lambda text: None)
    before = (records / "check.json").read_text()
    record = run_level("check", [PASSES, FAILS], lambda text: None)
    assert not record.is_green
    assert (records / "check.json").read_text() == before


def test_a_part_of_a_level_is_not_kept(records: Path) -> None:
    run_level("test", [PASSES], lambda text: None, keep=False)
    assert not list(records.iterdir())


@pytest.mark.parametrize(("level", "run"), [("test", 1), ("proof", 2)])
def test_only_the_proof_goes_on_after_a_failure(level: str, run: int) -> None:
    assert len(run_level(level, [FAILS, PASSES], lambda text: None).outcomes) == run


def test_the_output_of_a_step_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    run_level("check", [PASSES], said.append)
    assert "3 passed, 1 skipped" in "".join(said)
