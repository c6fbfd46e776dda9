"""A clock that runs and can be pushed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from moldau.simulation.manual_clock import MovingClock

PATIENCE = 30.0


@pytest.fixture
def clock() -> Iterator[MovingClock]:
    """On a loop in a thread of its own, as a cluster has it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield MovingClock(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)
    loop.close()


def test_pushing_moves_both_readings(clock: MovingClock) -> None:
    now_ms, monotonic = clock.now_ms(), clock.monotonic()
    clock.advance(3600)
    assert clock.now_ms() >= now_ms + 3_600_000
    assert clock.monotonic() >= monotonic + 3600


def test_timers_that_come_due_are_called_before_the_push_returns(clock: MovingClock) -> None:
    called: list[int] = []
    armed = threading.Event()

    def arm() -> None:
        clock.call_later(600, lambda: called.append(2))
        clock.call_later(300, lambda: called.append(1))
        clock.call_later(100, lambda: called.append(0)).cancel()
        clock.call_later(7200, lambda: called.append(9))
        armed.set()

    clock._loop.call_soon_threadsafe(arm)
    assert armed.wait(PATIENCE)
    clock.advance(3600)
    assert called == [1, 2]


def test_a_sleep_ends_early_when_the_clock_is_pushed(clock: MovingClock) -> None:
    asleep = threading.Event()

    async def sleep() -> None:
        asleep.set()
        await clock.sleep(3600)

    sleeping = asyncio.run_coroutine_threadsafe(sleep(), clock._loop)
    assert asleep.wait(PATIENCE)
    clock.advance(3601)
    sleeping.result(PATIENCE)
