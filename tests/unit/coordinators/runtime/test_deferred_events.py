"""Answers wait for what they rest on, in the order of the log, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moldau.coordinators.runtime.shard import Complete, DeferredEventQueue
from moldau.errors import ErrorCode
from moldau.simulation.manual_clock import ManualClock

TIMEOUT_MS = 5_000


class Log:
    end_offset = 0
    committed_offset = 0


class Bench:
    def __init__(self) -> None:
        self.log = Log()
        self.clock = ManualClock()
        self.queue = DeferredEventQueue(self.log, self.clock, lambda: TIMEOUT_MS)
        self.gone: list[tuple[str, ErrorCode | None]] = []

    def hold(self, name: str) -> None:
        self.queue.add(self._complete(name))

    def _complete(self, name: str) -> Complete:
        return lambda error: self.gone.append((name, error))

    def write(self) -> None:
        self.log.end_offset += 1

    def commit(self, offset: int) -> None:
        self.log.committed_offset = offset
        self.queue.complete_committed()


def run(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def play() -> None:
        await story(Bench())

    asyncio.run(play())


def test_an_answer_goes_when_all_that_was_written_before_it_is_committed() -> None:
    async def story(bench: Bench) -> None:
        bench.write()
        bench.hold("a")
        bench.write()
        bench.hold("b")
        bench.hold("c")  # rests on the same record
        assert not bench.queue.is_committed
        bench.commit(1)
        assert bench.gone == [("a", None)]
        bench.commit(2)
        assert bench.gone == [("a", None), ("b", None), ("c", None)]
        assert bench.queue.is_committed

    run(story)


def test_each_waits_for_as_long_as_the_others() -> None:
    async def story(bench: Bench) -> None:
        bench.write()
        bench.hold("a")
        await bench.clock.advance(3)
        bench.hold("b")
        await bench.clock.advance(2)
        assert bench.gone == [("a", ErrorCode.coordinator_not_available)]
        await bench.clock.advance(3)
        assert bench.gone[1:] == [("b", ErrorCode.coordinator_not_available)]
        assert bench.clock.pending_timers == 0

    run(story)


def test_who_is_let_go_in_time_is_not_told_again() -> None:
    async def story(bench: Bench) -> None:
        bench.write()
        bench.hold("a")
        bench.commit(1)
        await bench.clock.advance(60)
        assert bench.gone == [("a", None)]

    run(story)


def test_the_end_sends_everybody_away() -> None:
    async def story(bench: Bench) -> None:
        bench.write()
        bench.hold("a")
        bench.hold("b")
        bench.queue.close(ErrorCode.not_coordinator)
        assert bench.gone == [
            ("a", ErrorCode.not_coordinator),
            ("b", ErrorCode.not_coordinator),
        ]
        assert bench.clock.pending_timers == 0

    run(story)
