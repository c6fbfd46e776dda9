"""What every clock does, on the system's clock and on those of `moldau.testing`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

import pytest

from moldau.clock import Clock, MachineClock, SystemClock
from moldau.simulation.manual_clock import ManualClock, PausableClock, SkewedClock

T = TypeVar("T")

TICK = 0.001  # what the system's clock really waits
LONG = 3600.0  # nobody waits for this


class Subject:
    """A clock, and how its time passes."""

    def __init__(self, wrap: Callable[[Clock], Clock] | None = None, *, manual: bool) -> None:
        self._manual = ManualClock() if manual else None
        base: Clock = self._manual or SystemClock()
        self.clock = wrap(base) if wrap else base

    async def wait(self, work: Awaitable[T]) -> T:
        return await (self._manual.run_until_done(work) if self._manual else work)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "system": lambda: Subject(manual=False),
    "machine": lambda: Subject(lambda _: MachineClock(), manual=False),
    "manual": lambda: Subject(manual=True),
    "skewed": lambda: Subject(lambda base: SkewedClock(base, 90_000), manual=True),
    "pausable": lambda: Subject(PausableClock, manual=True),
    "pausable system": lambda: Subject(PausableClock, manual=False),
}


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[request.param]()


def run(story: Coroutine[object, object, T]) -> T:
    return asyncio.run(story)


def test_a_sleep_ends_when_its_time_has_passed(subject: Subject) -> None:
    async def story() -> None:
        before = subject.clock.monotonic()
        await subject.wait(subject.clock.sleep(TICK))
        assert subject.clock.monotonic() >= before + TICK

    run(story())


def test_both_readings_of_time_move_together(subject: Subject) -> None:
    async def story() -> None:
        wall, steady = subject.clock.now_ms(), subject.clock.monotonic()
        await subject.wait(subject.clock.sleep(0.005))
        assert subject.clock.now_ms() > wall
        assert subject.clock.monotonic() > steady

    run(story())


@pytest.mark.parametrize("seconds", [0, 0.0, -1.0])
def test_sleeping_for_no_time_gives_others_a_turn_and_returns(
    subject: Subject, seconds: float
) -> None:
    async def story() -> list[str]:
        order: list[str] = []
        asyncio.get_running_loop().call_soon(order.append, "other")
        await subject.clock.sleep(seconds)
        return [*order, "sleeper"]

    assert run(story()) == ["other", "sleeper"]


def test_timers_fire_in_the_order_of_their_times(subject: Subject) -> None:
    async def story() -> list[int]:
        order: list[int] = []
        for number in (3, 1, 2):
            subject.clock.call_later(number * 2 * TICK, lambda number=number: order.append(number))
        await subject.wait(subject.clock.sleep(10 * TICK))
        return order

    assert run(story()) == [1, 2, 3]


def test_a_timer_fires_once(subject: Subject) -> None:
    async def story() -> int:
        fired: list[None] = []
        subject.clock.call_later(TICK, lambda: fired.append(None))
        await subject.wait(subject.clock.sleep(3 * TICK))
        await subject.wait(subject.clock.sleep(3 * TICK))
        return len(fired)

    assert run(story()) == 1


def test_a_timer_of_no_time_fires_soon_but_not_inside_the_call(subject: Subject) -> None:
    async def story() -> None:
        fired = asyncio.Event()
        subject.clock.call_later(0, fired.set)
        assert not fired.is_set()
        await fired.wait()

    run(story())


def test_a_cancelled_timer_does_not_fire(subject: Subject) -> None:
    async def story() -> list[str]:
        fired: list[str] = []
        subject.clock.call_later(TICK, lambda: fired.append("cancelled")).cancel()
        subject.clock.call_later(0, lambda: fired.append("cancelled too")).cancel()
        subject.clock.call_later(TICK, lambda: fired.append("kept"))
        await subject.wait(subject.clock.sleep(3 * TICK))
        return fired

    assert run(story()) == ["kept"]


def test_cancelling_a_timer_that_has_fired_does_nothing(subject: Subject) -> None:
    async def story() -> None:
        fired = asyncio.Event()
        timer = subject.clock.call_later(TICK, fired.set)
        await subject.wait(fired.wait())
        timer.cancel()
        timer.cancel()

    run(story())


def test_a_timer_may_arm_the_next_one(subject: Subject) -> None:
    async def story() -> None:
        done = asyncio.Event()
        subject.clock.call_later(TICK, lambda: subject.clock.call_later(TICK, done.set) and None)
        await subject.wait(done.wait())

    run(story())


def test_a_sleep_can_be_cancelled(subject: Subject) -> None:
    async def story() -> None:
        task = asyncio.ensure_future(subject.clock.sleep(LONG))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story())


def test_a_failing_callback_is_reported_to_the_loop_and_stops_nothing(subject: Subject) -> None:
    async def story() -> list[object]:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reports.append(context["exception"])
        )

        def fail() -> None:
            raise ValueError("the callback's own")

        subject.clock.call_later(TICK, fail)
        await subject.wait(subject.clock.sleep(3 * TICK))
        return reports

    assert [str(report) for report in run(story())] == ["the callback's own"]


def test_a_timer_needs_a_running_loop(subject: Subject) -> None:
    with pytest.raises(RuntimeError):
        subject.clock.call_later(1, lambda: None)
