"""What every `Workers` does: threads, and the inline ones of simulations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from moldau.workers import InlineWorkers, ThreadWorkers, Workers

MAKERS: dict[str, Callable[[], Workers]] = {
    "threads": lambda: ThreadWorkers(2),
    "one thread": lambda: ThreadWorkers(1),
    "inline": InlineWorkers,
}


@pytest.fixture(params=MAKERS)
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    made = MAKERS[request.param]()
    yield made
    made.close()


def test_the_result_of_the_work_comes_back(workers: Workers) -> None:
    assert asyncio.run(workers.run(lambda: 6 * 7)) == 42


def test_the_exception_of_the_work_is_raised_to_the_one_who_waits(workers: Workers) -> None:
    def fail() -> None:
        raise OSError(5, "the disk is broken")

    with pytest.raises(OSError, match="the disk is broken"):
        asyncio.run(workers.run(fail))


def test_failed_work_does_not_disturb_the_next(workers: Workers) -> None:
    async def story() -> int:
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
        return await workers.run(lambda: 1)

    assert asyncio.run(story()) == 1


def test_much_work_at_once_is_all_done(workers: Workers) -> None:
    async def story() -> list[int]:
        return await asyncio.gather(
            *(workers.run(lambda number=number: number * number) for number in range(50))
        )

    assert asyncio.run(story()) == [number * number for number in range(50)]


def test_work_is_done_before_the_wait_for_it_ends(workers: Workers) -> None:
    async def story() -> list[str]:
        steps: list[str] = []
        await workers.run(lambda: steps.append("work"))
        return [*steps, "after"]

    assert asyncio.run(story()) == ["work", "after"]


def test_closed_workers_refuse_new_work(workers: Workers) -> None:
    workers.close()
    done: list[None] = []
    with pytest.raises(RuntimeError):
        asyncio.run(workers.run(lambda: done.append(None)))
    assert not done


def test_closing_twice_is_no_error(workers: Workers) -> None:
    workers.close()
    workers.close()


def test_threads_do_not_hold_up_the_loop() -> None:
    """The work waits for something that only the loop can do: inline it would never end."""
    workers = ThreadWorkers(1)
    loop_went_on = threading.Event()

    async def story() -> bool:
        asyncio.get_running_loop().call_soon(loop_went_on.set)
        return await workers.run(lambda: loop_went_on.wait(timeout=60))

    try:
        assert asyncio.run(story())
    finally:
        workers.close()


def test_closing_threads_waits_for_what_is_running() -> None:
    workers = ThreadWorkers(1)
    closing, closed = threading.Event(), threading.Event()

    def work() -> bool:
        closing.wait(timeout=60)
        return closed.wait(timeout=0.02)  # the work is still running: this must not happen

    def close() -> None:
        closing.set()
        workers.close()
        closed.set()

    async def story() -> bool:
        task = asyncio.ensure_future(workers.run(work))
        await asyncio.sleep(0)
        await asyncio.to_thread(close)
        return await task

    closed_early = asyncio.run(story())
    assert not closed_early
