"""Where work goes that would hold up the event loop: fsync, recovery, recompression.

A port like the clock: threads in production, inline in simulations, where a run has to be
repeatable to the step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """Runs blocking work off the loop."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work elsewhere and wait for its result; its exception is raised here."""
        ...

    def close(self) -> None:
        """Refuse new work and wait for what is running."""
        ...


class ThreadWorkers:
    """A bounded pool of threads, started as they are needed."""

    def __init__(self, threads: int, name: str = "moldau-worker") -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class InlineWorkers:
    """Runs the work at once, on the loop: for simulations and plain tests."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError("these workers are closed")
        return work()

    def close(self) -> None:
        self._closed = True  # nothing is running between two calls
