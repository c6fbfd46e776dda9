"""Reads ranges of partitions to their ends, as batches that nobody has unpacked yet.

Answers for fetching several partitions at once, and ahead of the caller, but not by more than so
many bytes. Unlike a consumer it knows where it ends, and has no positions that anybody could
commit.

A shell. `take` is for one task; the workers are its children, one for each partition under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from moldau.client.cluster_client import ClusterClient
from moldau.client.range_fetch import Arrived, RangeSettings, fetch_range
from moldau.client.rules.delivery import RawBatch
from moldau.client.rules.read_bounds import OffsetRange
from moldau.model import TopicPartition

BUFFERED_BYTES = 16 * 1024 * 1024
"""How far the workers run ahead: when so much waits to be taken, they wait, too."""
_WORKERS = 4


class RangeReader:
    """Use `take` until it gives nothing, then `close`."""

    def __init__(
        self,
        client: ClusterClient,
        ranges: Mapping[TopicPartition, OffsetRange],
        settings: RangeSettings | None = None,
        *,
        buffered_bytes: int = BUFFERED_BYTES,
    ) -> None:
        self._client = client
        self._settings = settings or RangeSettings()
        self._buffered_limit = buffered_bytes
        self._waiting = deque(
            (one, wanted) for one, wanted in ranges.items() if not wanted.is_empty
        )
        self._workers: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None  # of the first worker that failed
        self._arrived: deque[Arrived] = deque()
        self._arrived_bytes = 0
        self._news = asyncio.Event()  # something arrived, or a worker ended
        self._room = asyncio.Event()  # something was taken

    async def take(self) -> Sequence[RawBatch]:
        """The next batches of some partition, each partition's in order; none when all is read.

        Raises what a worker failed with, after what arrived before that.
        """
        while True:
            self._start_workers()
            if self._arrived:
                return self._take_first()
            if self._failure is not None:
                raise self._failure
            if not self._workers:
                return ()
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        self._waiting.clear()
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _take_first(self) -> Sequence[RawBatch]:
        first = self._arrived.popleft()
        self._arrived_bytes -= first.size_bytes
        self._room.set()
        return first.batches

    def _start_workers(self) -> None:
        while self._waiting and len(self._workers) < _WORKERS:
            partition, wanted = self._waiting.popleft()
            work = self._read(partition, wanted)
            worker = asyncio.get_running_loop().create_task(work, name=f"read {partition}")
            worker.add_done_callback(self._on_end)
            self._workers.add(worker)

    def _on_end(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._news.set()
        if not worker.cancelled() and worker.exception() is not None:
            self._failure = self._failure or worker.exception()
            self._waiting.clear()

    async def _read(self, partition: TopicPartition, wanted: OffsetRange) -> None:
        async with aclosing(
            fetch_range(self._client, partition, wanted, self._settings)
        ) as answers:
            async for arrived in answers:
                self._arrived.append(arrived)
                self._arrived_bytes += arrived.size_bytes
                self._news.set()
                while self._arrived_bytes >= self._buffered_limit:
                    self._room.clear()
                    await self._room.wait()
