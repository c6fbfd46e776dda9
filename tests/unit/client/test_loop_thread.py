"""A loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from moldau.client.blocking_face import LoopThread


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_work_runs_on_the_thread_of_the_loop() -> None:
    with LoopThread("somewhere-else") as loop:
        assert loop.run(name_of_thread()) == "somewhere-else"


def test_the_failure_of_the_work_is_raised_where_it_is_waited_for() -> None:
    async def fail() -> None:
        raise ValueError("as agreed")

    with LoopThread() as loop, pytest.raises(ValueError, match="as agreed"):
        loop.run(fail())


def test_closing_cancels_what_is_running_and_ends_the_thread() -> None:
    began = threading.Event()

    async def wait_forever() -> None:
        began.set()
        await asyncio.Event().wait()

    loop = LoopThread("to-be-closed")
    future = loop.submit(wait_forever())
    assert began.wait(60)
    loop.close()
    assert future.cancelled()
    assert not loop.is_open
    assert "to-be-closed" not in [thread.name for thread in threading.enumerate()]
    loop.close()
