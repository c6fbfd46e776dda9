"""Where compressed batches are unpacked: a pool of its own, within a budget of memory (NET-5).

A few kilobytes can unfold to a hundred megabytes, and a client may send as many such batches as it
has connections. So unpacking is not done where a broker flushes its logs, and only so much of it at
the same time: `SMALL_AT_ONCE` batches of up to `SMALL_BYTES` each and, beside them, one that is
larger. What an honest producer sends is small, and does not wait behind what is not. A larger one
is walked as a stream where its codec allows (`records.compression`), and then counts as a small
one. The rest waits its turn; who has waited for `TIMEOUT_SECONDS` is told to try again.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from moldau.clock import Clock
from moldau.errors import DecompressionLimitError, RequestTimedOutError
from moldau.records.compression import LARGEST_PIECE_BYTES
from moldau.tasks import finish_first
from moldau.workers import Workers

T = TypeVar("T")

SMALL_BYTES: Final = LARGEST_PIECE_BYTES
SMALL_AT_ONCE: Final = 8
TIMEOUT_SECONDS: Final = 30.0
GROWTH: Final = 4


class Unpacker:
    """Runs work that unpacks batches."""

    def __init__(self, workers: Workers, clock: Clock) -> None:
        self._workers = workers
        self._clock = clock
        self._small = asyncio.Semaphore(SMALL_AT_ONCE)
        self._large = asyncio.Semaphore(1)

    async def unpack(
        self,
        work: Callable[[int], T],
        *,
        expected_bytes: int,
        limit_bytes: int,
        stream: Callable[[], T] | None = None,
    ) -> T:
        """Call `work` in a worker with the bytes that it may unpack: at most `limit_bytes`.

        Begins with what is expected. Work that raises `DecompressionLimitError` below the limit is
        done again with more; nothing is held meanwhile. What is more than `SMALL_BYTES` is left to
        `stream` where there is one: it does the same and never holds that much.
        """
        size = min(expected_bytes, limit_bytes)
        while True:
            if stream is not None and size > SMALL_BYTES:
                return await self.run(stream, SMALL_BYTES)
            try:
                return await self.run(lambda allowed=size: work(allowed), size)  # type: ignore[misc]
            except DecompressionLimitError:
                if size >= limit_bytes:
                    raise
            size = min(max(size, SMALL_BYTES) * GROWTH, limit_bytes)

    async def run(self, work: Callable[[], T], unpacked_bytes: int) -> T:
        """Do work that holds so many unpacked bytes at most."""
        turns = self._small if unpacked_bytes <= SMALL_BYTES else self._large
        await self._wait_for_turn(turns)
        try:
            # The memory is in use until the worker has finished, whoever has lost interest.
            return await finish_first(self._workers.run(work))
        finally:
            turns.release()

    async def _wait_for_turn(self, turns: asyncio.Semaphore) -> None:
        if not turns.locked():
            await turns.acquire()
            return
        waiting = asyncio.ensure_future(turns.acquire())
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = waiting.cancel()

        timer = self._clock.call_later(TIMEOUT_SECONDS, give_up)
        try:
            await waiting
        except asyncio.CancelledError:
            if is_late and waiting.cancelled():
                raise RequestTimedOutError("too many large compressed batches at once") from None
            raise
        finally:
            timer.cancel()
