"""Which troubles are told, when, and how often."""

from __future__ import annotations

from moldau.client.connections import Outages


def test_what_passes_within_a_second_is_not_told() -> None:
    outages: Outages[str] = Outages()
    assert [outages.on_failure("b1", 100 + at) for at in (0.0, 0.3, 0.9)] == [False] * 3
    assert outages
    assert outages.on_success("b1", 101.0) is None
    assert not outages
    assert not outages.on_failure("b1", 102.0)  # another trouble, with a time of its own


def test_what_lasts_is_told_now_and_then_and_when_it_is_over() -> None:
    outages: Outages[str] = Outages()
    told = [at for at in range(70) if outages.on_failure("b1", float(at))]
    assert told == [1, 31, 61]
    assert outages.on_success("b1", 70.5) == 70.5
    assert outages.on_success("b1", 71.0) is None


def test_each_has_its_own_time() -> None:
    outages: Outages[str] = Outages()
    outages.on_failure("b1", 0.0)
    assert not outages.on_failure("b2", 1.5)
    assert outages.on_failure("b1", 1.6)
    assert outages.on_success("b2", 2.0) is None
    assert outages.on_success("b1", 2.0) == 2.0


def test_what_is_grave_or_has_lasted_already_is_told_at_once() -> None:
    outages: Outages[str] = Outages()
    assert outages.on_failure("disk", 5.0, is_grave=True)
    assert not outages.on_failure("disk", 6.0, is_grave=True)
    assert outages.on_failure("quiet", 5.0, lasted_seconds=2.0)
    assert outages.on_success("quiet", 6.0) == 3.0
