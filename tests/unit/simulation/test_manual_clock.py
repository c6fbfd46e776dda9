"""The clocks of `moldau.testing`: what only they do. What every clock does is in tests/contract."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from moldau.simulation.manual_clock import ManualClock, PausableClock, SkewedClock, wait_until_idle

T = TypeVar("T")


def run(story: Coroutine[object, object, T]) -> T:
    return asyncio.run(story)


def test_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(start_ms=5_000)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)
    clock.jump(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)


def test_time_moves_by_exactly_what_was_asked() -> None:
    async def story() -> tuple[int, float]:
        clock = ManualClock(start_ms=0)
        for _ in range(10):
            await clock.advance(0.1)
        return clock.now_ms(), clock.monotonic()

    assert run(story()) == (1_000, 1.0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="back"):
        ManualClock().jump(-1)
    with pytest.raises(ValueError, match="back"):
        run(ManualClock().advance(-0.001))


def test_code_that_sleeps_in_a_loop_sees_each_wake_up_at_its_time() -> None:
    async def story() -> list[float]:
        clock = ManualClock()
        seen: list[float] = []

        async def tick() -> None:
            while True:
                await clock.sleep(0.1)
                seen.append(clock.monotonic())

        task = asyncio.create_task(tick())
        await clock.advance(0.55)
        task.cancel()
        return seen

    assert run(story()) == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_the_whole_chain_that_a_timer_wakes_runs_at_the_time_of_the_timer() -> None:
    """A hundred tasks, each woken by the one before, and the next timer a moment later."""

    async def story() -> list[float]:
        clock = ManualClock()
        events = [asyncio.Event() for _ in range(100)]
        seen: list[float] = []

        async def link(number: int) -> None:
            await events[number].wait()
            if number + 1 < len(events):
                events[number + 1].set()
            else:
                seen.append(clock.monotonic())

        tasks = [asyncio.create_task(link(number)) for number in range(100)]
        clock.call_later(1, events[0].set)
        clock.call_later(1.001, lambda: seen.append(clock.monotonic()))
        await clock.advance(2)
        await asyncio.gather(*tasks)
        return seen

    assert run(story()) == [1.0, 1.001]


def test_what_a_timer_sends_to_a_socket_of_this_loop_arrives_before_time_moves_on() -> None:
    async def story() -> list[float]:
        clock = ManualClock()
        seen: list[float] = []
        near, far = socket.socketpair()
        with near, far:
            loop = asyncio.get_running_loop()
            loop.add_reader(far, lambda: (far.recv(10), seen.append(clock.monotonic())))
            clock.call_later(1, lambda: near.sendall(b"x"))
            clock.call_later(1.001, lambda: seen.append(clock.monotonic()))
            await clock.advance(2)
            loop.remove_reader(far)
        return seen

    assert run(story()) == [1.0, 1.001]


def test_two_sleepers_wake_in_the_order_of_time_whoever_came_first() -> None:
    async def story() -> list[tuple[str, float]]:
        clock = ManualClock()
        seen: list[tuple[str, float]] = []

        async def tick(name: str, seconds: float) -> None:
            while True:
                await clock.sleep(seconds)
                seen.append((name, clock.monotonic()))

        tasks = [asyncio.create_task(tick("slow", 0.3)), asyncio.create_task(tick("fast", 0.2))]
        await clock.advance(0.6)
        for task in tasks:
            task.cancel()
        return seen

    assert run(story()) == [
        ("fast", 0.2),
        ("slow", 0.3),
        ("fast", 0.4),
        ("slow", 0.6),  # armed at 0.3, before the fast one was armed again at 0.4
        ("fast", 0.6),
    ]


def test_timers_of_equal_times_fire_in_the_order_in_which_they_were_armed() -> None:
    async def story() -> list[int]:
        clock = ManualClock()
        order: list[int] = []
        for number in range(50):
            clock.call_later(1.0, lambda number=number: order.append(number))
        await clock.advance(1)
        return order

    assert run(story()) == list(range(50))


def test_a_timer_may_cancel_another_of_the_same_time() -> None:
    async def story() -> bool:
        clock = ManualClock()
        fired = asyncio.Event()

        def cancel() -> None:
            second.cancel()

        clock.call_later(1.0, cancel)
        second = clock.call_later(1.0, fired.set)
        await clock.advance(1)
        return fired.is_set()

    assert not run(story())


def test_a_timer_fires_at_its_time_and_not_before() -> None:
    async def story() -> list[bool]:
        clock = ManualClock()
        fired = asyncio.Event()
        clock.call_later(10, fired.set)
        await clock.advance(9.999)
        before = fired.is_set()
        await clock.advance(0.001)
        return [before, fired.is_set()]

    assert run(story()) == [False, True]


def test_what_was_just_started_runs_before_time_moves() -> None:
    async def story() -> float:
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(5))
        await clock.advance(5)
        assert task.done()
        return clock.monotonic()

    assert run(story()) == 5.0


def test_a_remainder_too_small_for_the_clock_still_takes_time() -> None:
    """0.1 + 0.2 is more than 0.3, by less than a nanosecond: code that waits for it must end."""

    async def story() -> int:
        clock = ManualClock()
        deadline = 0.1 + 0.2
        turns = 0

        async def wait() -> None:
            nonlocal turns
            while clock.monotonic() < deadline:
                turns += 1
                await clock.sleep(deadline - clock.monotonic())

        await clock.run_until_done(wait())
        return turns

    assert run(story()) <= 2


def test_after_a_jump_every_due_timer_sees_the_new_time() -> None:
    async def story() -> list[tuple[str, float]]:
        clock = ManualClock()
        seen: list[tuple[str, float]] = []
        for name, seconds in (("b", 2.0), ("a", 1.0), ("late", 100.0)):
            clock.call_later(seconds, lambda name=name: seen.append((name, clock.monotonic())))
        clock.jump(60)
        assert seen == []
        await wait_until_idle()
        return seen

    assert run(story()) == [("a", 60.0), ("b", 60.0)]


def test_a_timer_is_called_on_the_loop_that_armed_it_when_another_thread_jumps() -> None:
    clock = ManualClock()
    armed = threading.Event()

    async def story() -> int:
        called: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        clock.call_later(10, lambda: called.set_result(threading.get_ident()))
        armed.set()
        return await called

    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(run(story())))
    thread.start()
    armed.wait(timeout=60)
    clock.jump(10)
    thread.join(timeout=60)
    assert result == [thread.ident]


def test_timers_of_a_loop_that_was_closed_are_forgotten() -> None:
    clock = ManualClock()

    async def arm() -> None:
        clock.call_later(1, lambda: pytest.fail("its loop is closed"))

    run(arm())
    run(clock.advance(5))
    assert clock.pending_timers == 0


def test_waiting_for_work_passes_the_time_that_it_needs() -> None:
    async def story() -> tuple[str, float]:
        clock = ManualClock()

        async def work() -> str:
            for _ in range(3):
                await clock.sleep(7)
            return "done"

        return await clock.run_until_done(work()), clock.monotonic()

    assert run(story()) == ("done", 21.0)


def test_the_exception_of_awaited_work_is_raised() -> None:
    async def story() -> None:
        clock = ManualClock()

        async def fail() -> None:
            await clock.sleep(1)
            raise KeyError("its own")

        await clock.run_until_done(fail())

    with pytest.raises(KeyError, match="its own"):
        run(story())


def test_work_that_nothing_can_wake_is_reported() -> None:
    async def story() -> None:
        await ManualClock().run_until_done(asyncio.Event().wait())

    with pytest.raises(TimeoutError):
        run(story())


def test_work_that_takes_too_long_is_ended() -> None:
    async def story() -> None:
        clock = ManualClock()
        task = asyncio.ensure_future(clock.sleep(100))
        with pytest.raises(TimeoutError):
            await clock.run_until_done(task, limit_seconds=99)
        await asyncio.wait([task])
        assert task.cancelled()
        assert clock.pending_timers == 0

    run(story())


def test_two_cannot_advance_it_at_once() -> None:
    async def story() -> None:
        clock = ManualClock()
        clock.call_later(1, lambda: None)
        first = asyncio.create_task(clock.advance(5))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already"):
            await clock.advance(5)
        await first

    run(story())


def test_a_task_that_never_waits_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.simulation.manual_clock._MOST_ROUNDS", 50)

    async def story() -> None:
        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        task = asyncio.create_task(spin())
        try:
            await wait_until_idle()
        finally:
            task.cancel()

    with pytest.raises(RuntimeError, match="busy"):
        run(story())


def test_pending_timers_can_be_looked_at() -> None:
    async def story() -> None:
        clock = ManualClock()
        assert (clock.pending_timers, clock.find_next_timer()) == (0, None)
        first, _ = clock.call_later(2, lambda: None), clock.call_later(3, lambda: None)
        assert (clock.pending_timers, clock.find_next_timer()) == (2, 2.0)
        first.cancel()
        assert (clock.pending_timers, clock.find_next_timer()) == (1, 3.0)
        await clock.advance(1)
        assert clock.find_next_timer() == 2.0
        await clock.advance(2)
        assert (clock.pending_timers, clock.find_next_timer()) == (0, None)

    run(story())


def test_a_cancelled_sleep_leaves_no_timer() -> None:
    async def story() -> int:
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(5))
        await asyncio.sleep(0)
        assert clock.pending_timers == 1
        task.cancel()
        await asyncio.wait([task])
        return clock.pending_timers

    assert run(story()) == 0


# The clocks that wrap another


def test_a_skewed_clock_differs_in_wall_time_only() -> None:
    base = ManualClock(start_ms=1_000_000)
    skewed = SkewedClock(base, -30_000)
    base.jump(1)
    assert (skewed.now_ms(), skewed.monotonic()) == (971_000, 1.0)
    skewed.skew_ms = 500
    assert skewed.now_ms() == 1_001_500


def test_a_skewed_clock_sleeps_as_its_base_does() -> None:
    async def story() -> float:
        base = ManualClock()
        await base.run_until_done(SkewedClock(base, 10_000).sleep(3))
        return base.monotonic()

    assert run(story()) == 3.0


def test_timers_that_come_due_in_a_pause_fire_on_resume_in_their_order() -> None:
    async def story() -> tuple[list[str], list[str]]:
        base = ManualClock()
        clock = PausableClock(base)
        fired: list[str] = []
        for name, seconds in (("second", 2.0), ("first", 1.0), ("later", 20.0)):
            clock.call_later(seconds, lambda name=name: fired.append(name))
        clock.pause()
        await base.advance(10)
        during = list(fired)
        clock.resume()
        await wait_until_idle()
        return during, fired

    assert run(story()) == ([], ["first", "second"])


def test_time_goes_on_in_a_pause() -> None:
    async def story() -> tuple[int, float]:
        base = ManualClock(start_ms=0)
        clock = PausableClock(base)
        task = asyncio.create_task(clock.sleep(1))
        clock.pause()
        await base.advance(10)
        assert not task.done()
        clock.resume()
        await task
        return clock.now_ms(), clock.monotonic()

    assert run(story()) == (10_000, 10.0)


def test_a_held_timer_can_be_cancelled() -> None:
    async def story() -> list[str]:
        base = ManualClock()
        clock = PausableClock(base)
        fired: list[str] = []
        timer = clock.call_later(1, lambda: fired.append("cancelled"))
        clock.pause()
        await base.advance(5)
        timer.cancel()
        clock.resume()
        await wait_until_idle()
        return fired

    assert run(story()) == []


def test_a_second_pause_right_after_a_resume_holds_again() -> None:
    async def story() -> tuple[list[str], list[str]]:
        base = ManualClock()
        clock = PausableClock(base)
        fired: list[str] = []
        clock.call_later(1, lambda: fired.append("held twice"))
        clock.pause()
        await base.advance(5)
        clock.resume()
        clock.pause()
        await wait_until_idle()
        before = list(fired)
        clock.resume()
        await wait_until_idle()
        return before, fired

    assert run(story()) == ([], ["held twice"])
