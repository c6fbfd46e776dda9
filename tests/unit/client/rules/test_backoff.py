"""Pauses between attempts."""

from __future__ import annotations

import pytest

from moldau.client.rules.backoff import Backoff


def test_pauses_double_up_to_the_limit() -> None:
    backoff = Backoff(first_seconds=0.1, max_seconds=1.0, jitter=0.0)
    pauses = [backoff.delay_seconds(attempt, lambda: 0.5) for attempt in range(6)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_chance_moves_a_pause_by_the_jitter_at_most() -> None:
    backoff = Backoff(first_seconds=1.0, max_seconds=1.0, jitter=0.2)
    assert backoff.delay_seconds(0, lambda: 0.0) == pytest.approx(0.8)
    assert backoff.delay_seconds(0, lambda: 1.0) == pytest.approx(1.2)


def test_a_thousandth_attempt_is_no_overflow() -> None:
    assert Backoff(jitter=0.0).delay_seconds(1000, lambda: 0.5) == 1.0
