"""Unpacking batches: how much of it goes on at once, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from moldau.errors import DecompressionLimitError, RequestTimedOutError
from moldau.replication.incoming_batches import (
    SMALL_AT_ONCE,
    SMALL_BYTES,
    TIMEOUT_SECONDS,
    Unpacker,
)
from moldau.simulation.manual_clock import wait_until_idle
from moldau.testing import ManualClock
from moldau.workers import InlineWorkers

T = TypeVar("T")
LARGE_BYTES = 10 * SMALL_BYTES
LIMIT_BYTES = 100 << 20


class SlowWorkers(InlineWorkers):
    """Each piece of work ends when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work: list[asyncio.Event] = []

    async def run(self, work: Callable[[], T]) -> T:
        end = asyncio.Event()
        self.at_work.append(end)
        await end.wait()
        self.at_work.remove(end)
        return await super().run(work)


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.workers = SlowWorkers()
        self.unpacker = Unpacker(self.workers, self.clock)

    def begin(self, size_bytes: int) -> asyncio.Task[str]:
        return asyncio.ensure_future(self.unpacker.run(lambda: "done", size_bytes))


def play(story: Callable[[Stage], object]) -> None:
    async def run() -> None:
        await story(Stage())  # type: ignore[misc]

    asyncio.run(run())


def test_of_large_batches_one_is_unpacked_at_a_time() -> None:
    async def story(stage: Stage) -> None:
        tasks = [stage.begin(LARGE_BYTES) for _ in range(3)]
        for _ in tasks:
            await wait_until_idle()
            assert len(stage.workers.at_work) == 1
            stage.workers.at_work[0].set()
        assert await asyncio.gather(*tasks) == ["done"] * 3

    play(story)


def test_small_batches_do_not_wait_for_large_ones() -> None:
    async def story(stage: Stage) -> None:
        large = [stage.begin(LARGE_BYTES) for _ in range(5)]
        await wait_until_idle()
        small = [stage.begin(SMALL_BYTES) for _ in range(SMALL_AT_ONCE + 1)]
        await wait_until_idle()
        assert len(stage.workers.at_work) == 1 + SMALL_AT_ONCE
        while stage.workers.at_work:
            stage.workers.at_work[0].set()
            await wait_until_idle()
        assert await asyncio.gather(*large, *small) == ["done"] * (5 + SMALL_AT_ONCE + 1)

    play(story)


def test_who_has_waited_long_enough_is_told_to_try_again() -> None:
    async def story(stage: Stage) -> None:
        first, second = stage.begin(LARGE_BYTES), stage.begin(LARGE_BYTES)
        await wait_until_idle()
        await stage.clock.advance(TIMEOUT_SECONDS + 1)
        await wait_until_idle()
        with pytest.raises(RequestTimedOutError):
            await second
        stage.workers.at_work[0].set()
        assert await first == "done"
        third = stage.begin(LARGE_BYTES)
        await wait_until_idle()
        stage.workers.at_work[0].set()
        assert await third == "done"

    play(story)


def test_the_turn_of_one_who_has_lost_interest_ends_with_his_work() -> None:
    async def story(stage: Stage) -> None:
        first, second = stage.begin(LARGE_BYTES), stage.begin(LARGE_BYTES)
        await wait_until_idle()
        first.cancel()
        await wait_until_idle()
        assert len(stage.workers.at_work) == 1  # the memory is still in use
        stage.workers.at_work[0].set()
        await wait_until_idle()
        assert first.cancelled()
        stage.workers.at_work[0].set()
        assert await second == "done"

    play(story)


def test_one_who_goes_while_he_waits_takes_nobodys_turn() -> None:
    async def story(stage: Stage) -> None:
        first, second, third = (stage.begin(LARGE_BYTES) for _ in range(3))
        await wait_until_idle()
        second.cancel()
        await wait_until_idle()
        stage.workers.at_work[0].set()
        await wait_until_idle()
        stage.workers.at_work[0].set()
        assert (await first, await third) == ("done", "done")
        assert second.cancelled()

    play(story)


def test_work_that_needs_more_than_expected_is_done_again_with_more() -> None:
    async def story(stage: Stage) -> None:
        allowed: list[int] = []

        def work(size_bytes: int) -> str:
            allowed.append(size_bytes)
            if size_bytes < 50 << 20:
                raise DecompressionLimitError("more than that")
            return "done"

        unpacker = Unpacker(InlineWorkers(), stage.clock)
        found = await unpacker.unpack(work, expected_bytes=1000, limit_bytes=LIMIT_BYTES)
        assert found == "done"
        assert allowed == sorted(allowed)
        assert allowed[0] == 1000
        assert allowed[-1] <= LIMIT_BYTES

    play(story)


def test_work_that_needs_more_than_the_limit_is_refused() -> None:
    async def story(stage: Stage) -> None:
        allowed: list[int] = []

        def work(size_bytes: int) -> str:
            allowed.append(size_bytes)
            raise DecompressionLimitError("more than that")

        unpacker = Unpacker(InlineWorkers(), stage.clock)
        with pytest.raises(DecompressionLimitError):
            await unpacker.unpack(work, expected_bytes=1 << 40, limit_bytes=LIMIT_BYTES)
        assert allowed == [LIMIT_BYTES]

    play(story)


@pytest.mark.parametrize("expected_bytes", [1, LARGE_BYTES])
def test_what_can_be_walked_as_a_stream_is_never_unpacked_as_a_whole(expected_bytes: int) -> None:
    async def story() -> None:
        sizes: list[int] = []

        def work(size_bytes: int) -> str:
            sizes.append(size_bytes)
            raise DecompressionLimitError("more")

        unpacker = Unpacker(InlineWorkers(), ManualClock())
        done = await unpacker.unpack(
            work,
            expected_bytes=expected_bytes,
            limit_bytes=LIMIT_BYTES,
            stream=lambda: "walked",
        )
        assert done == "walked"
        assert all(size <= SMALL_BYTES for size in sizes)

    asyncio.run(story())
