"""The line that shows that long work goes on."""

from __future__ import annotations

import io

import pytest

from moldau.cli import progress
from moldau.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_long_work_is_shown_again_and_again_and_cleared(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    shown = Progress(total_bytes=1000)
    clock.now += 2
    shown.show(10, 5_000_000, 250)
    shown.show(11, 5_000_000, 260)  # too soon for another line
    clock.now += 2
    shown.show(20, 9_000_000, 1200)
    shown.clear()
    assert terminal.getvalue().split("\r\x1b[K") == [
        "",
        "10 records, 5.0 MB, 5 records/s, 25% of the input",
        "20 records, 9.0 MB, 5 records/s, 100% of the input",
        "",
    ]


def test_short_work_shows_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    shown = Progress()
    clock.now += 0.9
    shown.show(10, 5_000_000, 0)
    shown.clear()
    assert terminal.getvalue() == ""


def test_where_nobody_looks_nothing_is_shown(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    shown = Progress()
    clock.now += 10
    shown.show(10, 5_000_000, 0)
    assert pipe.getvalue() == ""
