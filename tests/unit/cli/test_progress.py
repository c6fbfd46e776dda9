"""The line that shows that long work goes on."""

from __future__ import annotations

import io

import pytest

from moldau.cli import output
from moldau.cli.output import Progress


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
    monkeypatch.setattr(output, "time", made)
    return made


def test_long_work_is_shown_again_and_again_and_cleared(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    shown = Progress(total_bytes=1000, has_end=True)
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


def test_beside_a_prompt_nothing_is_shown(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    shown = Progress(has_end=False, has_prompt=True)
    clock.now += 100
    shown.show(1, 10)
    shown.clear()
    assert terminal.getvalue() == ""


def test_short_work_shows_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    shown = Progress(has_end=False)
    clock.now += 0.9
    shown.show(10, 5_000_000, 0)
    shown.clear()
    assert terminal.getvalue() == ""


def test_in_a_log_there_is_a_line_now_and_then(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    shown, endless = Progress(has_end=True), Progress(has_end=False)
    for count in range(25):
        shown.show(count, count * 1_000_000)
        endless.show(count, count * 1_000_000)  # nothing: it would fill the log
        clock.now += 1
    shown.clear()
    assert log.getvalue().splitlines() == [
        "moldau: 10 records, 10.0 MB, 1 records/s",
        "moldau: 20 records, 20.0 MB, 1 records/s",
    ]
