"""How long work on a disk waits for its bytes."""

from __future__ import annotations

import asyncio

import pytest

from moldau.simulation.manual_clock import ManualClock
from moldau.storage.log_directory import Throttler


async def advance_until_done(clock: ManualClock, *tasks: asyncio.Task[None]) -> float:
    began = clock.monotonic()
    while not all(task.done() for task in tasks):
        assert clock.monotonic() - began < 60.0
        await clock.advance(0.25)
    return clock.monotonic() - began


@pytest.mark.parametrize(("rate", "seconds"), [(100.0, 10.0), (1_000.0, 1.0), (1e308, 0.0)])
def test_bytes_take_the_time_that_the_rate_gives_them(rate: float, seconds: float):
    async def story() -> None:
        clock = ManualClock()
        task = asyncio.create_task(Throttler(clock, lambda: rate).wait(1_000))
        await asyncio.sleep(0)
        assert await advance_until_done(clock, task) == pytest.approx(seconds, abs=0.3)

    asyncio.run(story())


def test_who_shares_a_rate_waits_for_the_bytes_of_all():
    async def story() -> None:
        clock = ManualClock()
        pace = Throttler(clock, lambda: 100.0)
        tasks = [asyncio.create_task(pace.wait(500)) for _ in range(2)]
        await asyncio.sleep(0)
        assert await advance_until_done(clock, *tasks) == pytest.approx(10.0, abs=0.3)

    asyncio.run(story())


def test_a_rate_that_was_far_too_low_holds_nobody_up_once_it_is_raised():
    async def story() -> None:
        clock = ManualClock()
        rate = 1.0
        task = asyncio.create_task(Throttler(clock, lambda: rate).wait(1_000_000))
        await asyncio.sleep(0)
        await clock.advance(5.0)
        assert not task.done()
        rate = 1_000_000.0
        assert await advance_until_done(clock, task) < 4.0

    asyncio.run(story())
