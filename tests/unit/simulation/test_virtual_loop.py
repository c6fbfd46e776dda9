"""The event loop on virtual time: order, time, and processes that are held or killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from moldau.simulation.virtual_loop import (
    ProcessClock,
    SimulatedProcess,
    StuckError,
    VirtualLoop,
    current_process_name,
)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


async def tick(log: list[tuple[float, str]], seconds: float = 1.0) -> None:
    try:
        while True:
            await asyncio.sleep(seconds)
            log.append((asyncio.get_running_loop().time(), current_process_name()))
    finally:
        log.append((-1.0, "cleanup"))


def test_time_jumps_from_timer_to_timer(loop: VirtualLoop) -> None:
    async def story() -> float:
        await asyncio.sleep(3600)
        async with asyncio.timeout(10):
            await asyncio.sleep(5)
        return loop.time()

    assert loop.run(story()) == 3605


def test_timers_of_one_time_fire_in_the_order_in_which_they_were_armed(loop: VirtualLoop) -> None:
    fired: list[int] = []

    async def story() -> None:
        for number in range(5):
            loop.call_later(1, fired.append, number)
        loop.call_later(0.5, fired.append, 99)
        await asyncio.sleep(2)

    loop.run(story())
    assert fired == [99, 0, 1, 2, 3, 4]


def test_a_paused_process_takes_no_step_and_catches_up(loop: VirtualLoop) -> None:
    log: list[tuple[float, str]] = []
    process = SimulatedProcess("p", loop)

    async def story() -> None:
        process.spawn(tick(log))
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(2)
        assert log == [(1.0, "p")]
        process.resume()
        await asyncio.sleep(0.1)
        assert log == [(1.0, "p"), (3.5, "p")]

    loop.run(story())


def test_a_killed_process_takes_no_step_not_even_to_clean_up(loop: VirtualLoop) -> None:
    log: list[tuple[float, str]] = []
    killed, other = SimulatedProcess("killed", loop), SimulatedProcess("other", loop)

    async def story() -> None:
        killed.kept.append(killed.spawn(tick(log)))
        other.kept.append(other.spawn(tick(log)))
        await asyncio.sleep(1.5)
        killed.kill()
        killed.resume()
        await asyncio.sleep(2)

    loop.run(story())
    assert log == [(1.0, "killed"), (1.0, "other"), (2.0, "other"), (3.0, "other")]


def test_a_timer_of_a_process_clock_belongs_to_the_process_whoever_arms_it(
    loop: VirtualLoop,
) -> None:
    process = SimulatedProcess("p", loop)
    clock = ProcessClock(loop, process, start_ms=0)
    seen: list[str] = []

    async def story() -> None:
        clock.call_later(1, lambda: seen.append(current_process_name()))
        process.pause()
        await asyncio.sleep(2)
        assert seen == []
        process.resume()
        await asyncio.sleep(1)
        assert seen == ["p"]

    loop.run(story())


def test_a_fast_clock_is_ahead_and_its_timers_fire_early(loop: VirtualLoop) -> None:
    process = SimulatedProcess("p", loop)
    clock = ProcessClock(loop, process, start_ms=5000, monotonic_start=100, rate=1.25)

    async def story() -> None:
        await clock.sleep(10)
        assert loop.time() == pytest.approx(8)
        assert clock.monotonic() == pytest.approx(110)
        assert clock.now_ms() == 15_000

    loop.run(story())


def test_a_task_that_turns_in_circles_is_found_out(loop: VirtualLoop) -> None:
    async def story() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="still busy"):
        loop.run(story())


def test_a_story_that_waits_for_nothing_is_found_out(loop: VirtualLoop) -> None:
    async def story() -> None:
        await loop.create_future()

    with pytest.raises(StuckError, match="everything waits"):
        loop.run(story())


def test_the_same_story_takes_the_same_steps() -> None:
    def play() -> tuple[int, list[tuple[float, str]]]:
        loop = VirtualLoop()
        log: list[tuple[float, str]] = []

        async def story() -> None:
            tasks = [SimulatedProcess(name, loop).spawn(tick(log, 0.3)) for name in "abc"]
            await asyncio.sleep(5)
            for task in tasks:
                task.cancel()

        loop.run(story())
        loop.close()
        return loop.steps, log

    assert play() == play()
