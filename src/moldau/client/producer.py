"""The producer for asyncio: records are sent by the loop of whoever uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Self

from moldau.client.batch_promises import AsyncPromise, BatchPromise
from moldau.client.intake import CustomPartitioner, NotPlacedError, Place, Placed
from moldau.client.producer_core import ProducerCore
from moldau.client.producer_values import Interceptor, RecordMetadata, RecordRange
from moldau.client.record_futures import ranges_of, when_all_are_kept
from moldau.client.record_preparer import GivenHeaders, RecordPreparer, Serializer
from moldau.client.rules.topic_target import TopicTarget
from moldau.clock import Clock, SystemClock
from moldau.config.client_options import ProducerOptions
from moldau.errors import ClosedClientError, MoldauError
from moldau.model import TopicPartition
from moldau.net.port import Network
from moldau.workers import ThreadWorkers, Workers


class AsyncProducer:
    """Sends records to a cluster; used by the tasks of one loop.

        async with moldau.AsyncProducer("127.0.0.1:9092") as producer:
            sent = await producer.send("clicks", b"value", key=b"key")
            print(await sent)

    `await send(...)` is over when the record is in a batch; the future it gives is done when the
    record is in the log. Options and arguments are those of `Producer`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: str | CustomPartitioner = "sticky",
        interceptors: Sequence[Interceptor] = (),
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        workers: Workers | None = None,
        **options: object,
    ) -> None:
        read = ProducerOptions.read(options)
        clock = clock or SystemClock()
        if workers is None and read.compression_type != "none":
            workers = ThreadWorkers(1, "moldau-compression")  # it would hold up the loop
        self._workers = workers
        self._core = ProducerCore(
            bootstrap,
            read,
            RecordPreparer(clock, key_serializer, value_serializer, interceptors),
            make_promise=self._make_promise,
            schedule=self._schedule,
            partitioner=partitioner,
            network=network,
            clock=clock,
            random=random,
            workers=workers,
        )
        self._waiting = _TaskWaiting(self._core)
        self._put = self._core.intake.put
        self._loop: asyncio.AbstractEventLoop | None = None  # known from the first use on
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Records

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Have a record sent; the future tells when it is in the log, and where.

        Waits only when the topic is new, or while memory is used up (`max.block.ms`). Raises what
        is wrong with the record itself; what happens later is the future's.
        """
        try:
            place = self._put(topic, value, key, partition, timestamp_ms, headers)
        except NotPlacedError as left:
            self._begin()
            place = await self._core.intake.put_later(left, self._waiting)
        future = self._make_future(place)
        if self._core.is_awake:
            await asyncio.sleep(0)  # a batch was begun: let those before it be sent
        return future

    def send_nowait(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> asyncio.Future[RecordMetadata]:
        """As `send`, without waiting: raises TopicNotReadyError for a topic that nothing was sent
        to before, and BufferFullError when memory is used up."""
        try:
            return self._make_future(self._put(topic, value, key, partition, timestamp_ms, headers))
        except NotPlacedError as left:
            raise self._core.intake.explain(left) from None

    async def send_many(
        self,
        topic: str,
        values: Iterable[object],
        keys: Iterable[object] | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> asyncio.Future[tuple[RecordRange, ...]]:
        """Have many records sent, at a fraction of the cost of as many calls of `send`.

        `values` are bytes or None, with `keys` beside them if there are any; or whole rows, such
        as `moldau.NewRecord`, each with timestamp, key, value and headers of its own. The future
        is done when all of them are in the log, and tells in which ranges of offsets. When one of
        them cannot be sent, its error is raised here, and those before it are on their way.
        """
        self._begin()
        placed = await self._core.intake.put_many(
            self._waiting, topic, values, keys, partition, timestamp_ms, headers
        )
        return self._make_ranges_future(placed)

    def _make_future(self, place: Place) -> asyncio.Future[RecordMetadata]:
        promise, index, timestamp_ms = place
        future: asyncio.Future[RecordMetadata] = self._begin().create_future()
        # All promises of this face are made as AsyncPromise.
        promise.futures.append((future, index, timestamp_ms))  # type: ignore[attr-defined]
        return future

    def _make_ranges_future(
        self, placed: Sequence[Placed]
    ) -> asyncio.Future[tuple[RecordRange, ...]]:
        future: asyncio.Future[tuple[RecordRange, ...]] = self._begin().create_future()

        def finish() -> None:
            found = ranges_of(placed)
            if future.done():
                return
            if isinstance(found, MoldauError):
                future.set_exception(found)
                future.exception()  # seen: the core has logged it
            else:
                future.set_result(found)

        when_all_are_kept(placed, finish)
        return future

    # Waiting

    async def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; it is made if that is allowed and it is missing."""
        self._begin()
        return len((await self._core.intake.require_target(topic, None, self._waiting)).queues)

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until everything sent so far is in the log or has failed.

        Raises TimeoutError; without a time it waits no longer than `delivery.timeout.ms`.
        """
        self._begin()
        if not await self._core.flush(timeout_seconds):
            raise TimeoutError(f"not everything was sent within {timeout_seconds:g} seconds")

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Send everything, then end; what is not confirmed in time fails. A second call does
        nothing. Without a time it waits no longer than `delivery.timeout.ms`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._begin()
        await self._core.close(timeout_seconds)
        if self._workers is not None:
            self._workers.close()

    # The loop

    def _begin(self) -> asyncio.AbstractEventLoop:
        """The loop that this producer belongs to: the one that used it first."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _schedule(self, work: Callable[[], None]) -> None:
        if self._loop is None:
            raise ClosedClientError("the producer has not begun")
        self._loop.call_soon(work)

    def _make_promise(self, partition: TopicPartition) -> BatchPromise:
        return AsyncPromise(partition)


class _TaskWaiting:
    """How a task waits for what a record needs (`intake.Waiting`)."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    async def wait_for_topic(self, topic: str) -> TopicTarget[BatchPromise]:
        return await self._core.learn(topic)

    async def wait_for_room(self, size_bytes: int, deadline: float) -> None:
        await self._core.wait_for_room(size_bytes, deadline)

    async def let_others_go_on(self) -> None:
        if self._core.is_awake:
            await asyncio.sleep(0)
