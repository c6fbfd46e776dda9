"""Work that may take so long on a clock, and no longer; and work that others may end."""

from __future__ import annotations

import asyncio
import gc

import pytest

from moldau.clock import Interruption, WorkInterrupted, finish_within
from moldau.simulation.manual_clock import wait_until_idle
from moldau.testing import ManualClock


def test_work_that_is_done_in_time_gives_its_result() -> None:
    async def perform() -> None:
        clock = ManualClock()

        async def work() -> int:
            await clock.sleep(1)
            return 7

        waiting = asyncio.ensure_future(finish_within(work(), clock, 2))
        await wait_until_idle()
        await clock.advance(1)
        assert await waiting == 7

    asyncio.run(perform())


def test_work_that_takes_longer_is_cancelled_and_its_end_is_waited_for() -> None:
    async def perform() -> None:
        clock, ended = ManualClock(), []

        async def work() -> None:
            try:
                await clock.sleep(10)
            finally:
                await asyncio.sleep(0)
                ended.append(True)

        waiting = asyncio.ensure_future(finish_within(work(), clock, 2))
        await wait_until_idle()
        await clock.advance(2)
        with pytest.raises(TimeoutError, match="within 2 seconds"):
            await waiting
        assert ended

    asyncio.run(perform())


def test_work_that_fails_when_its_time_is_over_tells_why() -> None:
    async def work(clock: ManualClock) -> None:
        try:
            await clock.sleep(10)
        finally:
            raise OSError("lost")

    async def perform() -> None:
        clock = ManualClock()
        waiting = asyncio.ensure_future(finish_within(work(clock), clock, 2))
        await wait_until_idle()
        await clock.advance(2)
        with pytest.raises(OSError, match="lost"):
            await waiting

    asyncio.run(perform())


def test_a_time_out_is_no_cancellation_of_the_caller() -> None:
    async def perform() -> None:
        clock = ManualClock()
        left: list[int] = []

        async def wait_twice() -> None:
            task = asyncio.current_task()
            assert task is not None
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await finish_within(clock.sleep(10), clock, 2)
                left.append(task.cancelling())

        waiting = asyncio.ensure_future(wait_twice())
        await wait_until_idle()
        await clock.advance(5)
        await waiting
        assert left == [0, 0]

    asyncio.run(perform())


def test_a_caller_that_is_cancelled_as_the_time_ends_is_cancelled() -> None:
    async def perform() -> None:
        clock = ManualClock()
        waiting = asyncio.ensure_future(finish_within(clock.sleep(10), clock, 2))
        await wait_until_idle()
        clock.call_later(2, waiting.cancel)
        clock.jump(2)  # both timers fire before the task goes on
        await asyncio.wait((waiting,))
        assert waiting.cancelled()

    asyncio.run(perform())


def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no")

    async def perform() -> None:
        with pytest.raises(ValueError, match="no"):
            await finish_within(work(), ManualClock(), 2)

    asyncio.run(perform())


def test_whoever_is_cancelled_meanwhile_cancels_the_work() -> None:
    async def perform() -> None:
        ended = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        waiting = asyncio.ensure_future(finish_within(work(), ManualClock(), 2))
        await wait_until_idle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended

    asyncio.run(perform())


@pytest.mark.parametrize("fails_late", [False, True], ids=["before", "when it is cancelled"])
def test_work_that_fails_as_its_owner_is_cancelled_complains_to_nobody(fails_late: bool) -> None:
    """See seed 200289."""
    complaints: list[object] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        waiting: asyncio.Task[None]

        async def work() -> None:
            if not fails_late:
                waiting.cancel()
                raise OSError("lost")
            try:
                loop.call_soon(waiting.cancel)
                await loop.create_future()
            finally:
                raise OSError("lost")

        waiting = loop.create_task(finish_within(work(), ManualClock(), 2))
        await asyncio.wait((waiting,))
        assert waiting.cancelled()

    asyncio.run(story())
    gc.collect()
    assert not complaints


def test_work_that_is_interrupted_is_cancelled_and_its_task_goes_on() -> None:
    async def perform() -> None:
        interruption, ended = Interruption(), []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        async def wait_for_it() -> int:
            task = asyncio.current_task()
            assert task is not None
            with pytest.raises(WorkInterrupted):
                await interruption.run(work())
            await asyncio.sleep(0)
            return task.cancelling()

        waiting = asyncio.ensure_future(wait_for_it())
        await wait_until_idle()
        interruption.request()
        interruption.request()  # once is enough
        assert await waiting == 0
        assert ended

    asyncio.run(perform())


def test_work_that_is_done_cannot_be_interrupted() -> None:
    async def perform() -> None:
        interruption = Interruption()
        await interruption.run(asyncio.sleep(0))
        interruption.request()
        await asyncio.sleep(0)

    asyncio.run(perform())


def test_interrupted_work_within_a_time_that_is_over_has_run_out_of_time() -> None:
    async def perform() -> None:
        clock, interruption = ManualClock(), Interruption()
        work = interruption.run(asyncio.Event().wait())
        waiting = asyncio.ensure_future(finish_within(work, clock, 2))
        await wait_until_idle()
        clock.call_later(2, interruption.request)
        clock.jump(2)
        with pytest.raises(TimeoutError):
            await waiting
        assert waiting.cancelling() == 0

    asyncio.run(perform())
