"""The producer for asyncio: records are sent by the loop of whoever uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from moldau.client.batch_promises import AsyncPromise, BatchPromise
from moldau.client.producer_core import CustomPartitioner, ProducerCore
from moldau.client.producer_values import (
    Interceptor,
    OutgoingRecord,
    RecordMetadata,
    RecordRange,
)
from moldau.client.record_futures import Placed, ranges_of, when_all_are_kept
from moldau.client.record_preparer import GivenHeaders, Serializer, make_headers
from moldau.client.rules.topic_target import TopicTarget
from moldau.clock import Clock
from moldau.config.client_options import ProducerOptions
from moldau.errors import ClosedClientError, MoldauError
from moldau.net.port import Network
from moldau.records.record import RecordRow
from moldau.workers import ThreadWorkers

T = TypeVar("T")
Target = TopicTarget[BatchPromise]


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
        **options: object,
    ) -> None:
        self._options = ProducerOptions.read(options)
        compresses = self._options.compression_type != "none"
        self._workers = ThreadWorkers(1, "moldau-compression") if compresses else None
        self._core = ProducerCore(
            bootstrap,
            self._options,
            make_promise=AsyncPromise,
            schedule=self._schedule,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            network=network,
            clock=clock,
            workers=self._workers,
            random=random,
        )
        self._intake = self._core.intake
        self._intake.announce_room = self._announce_room
        self._targets = self._core.topics.targets
        self._make_row = self._core.preparer.make_row
        self._is_intercepted = bool(self._core.preparer.interceptors)
        self._loop: asyncio.AbstractEventLoop | None = None  # known from the first use on
        self._waiting_for_room: set[asyncio.Future[None]] = set()
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

    # One record

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
        if self._is_intercepted:
            record = self._intercept(topic, value, key, partition, timestamp_ms, headers)
            topic, value, key, partition, timestamp_ms, headers = record
        row = self._make_row(value, key, timestamp_ms, headers)
        target = self._targets.get(topic)
        if target is None or partition is not None:
            target = await self._require_target(topic, partition)
        if partition is None and self._core.custom_partitioner is not None:
            partition = self._core.choose_partition(target, row)
        added = self._intake.add(target, partition, row)
        if added is None:
            added = await self._add_later(target, partition, row)
        future = self._promise(added, row[0])
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
        if self._is_intercepted:
            record = self._intercept(topic, value, key, partition, timestamp_ms, headers)
            topic, value, key, partition, timestamp_ms, headers = record
        row = self._make_row(value, key, timestamp_ms, headers)
        target = self._targets.get(topic)
        if target is None:
            raise self._core.not_ready(topic)
        if partition is not None:
            target.require_queue(partition)
        elif self._core.custom_partitioner is not None:
            partition = self._core.choose_partition(target, row)
        added = self._intake.add(target, partition, row)
        if added is None:
            raise self._core.no_room()
        return self._promise(added, row[0])

    def _intercept(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> OutgoingRecord:
        given = make_headers(headers) if headers else ()
        return self._core.preparer.intercept(
            OutgoingRecord(topic, value, key, partition, timestamp_ms, given)
        )

    def _promise(
        self, added: tuple[BatchPromise, int], timestamp_ms: int
    ) -> asyncio.Future[RecordMetadata]:
        promise, index = added
        future = self._begin().create_future()
        # All promises of this face are made as AsyncPromise.
        promise.futures.append((future, index, timestamp_ms))  # type: ignore[attr-defined]
        if self._is_intercepted:
            self._acknowledge_later(promise, index, timestamp_ms)
        return future

    def _acknowledge_later(self, promise: BatchPromise, index: int, timestamp_ms: int) -> None:
        promise.listen(lambda: self._acknowledge(promise, index, timestamp_ms))

    def _acknowledge(self, promise: BatchPromise, index: int, timestamp_ms: int) -> None:
        found = promise.look_up(index, timestamp_ms)
        if isinstance(found, MoldauError):
            self._core.preparer.acknowledge(None, found)
        else:
            self._core.preparer.acknowledge(found, None)

    async def _add_later(
        self, target: Target, partition: int | None, row: RecordRow
    ) -> tuple[BatchPromise, int]:
        return await self._wait_for_room(lambda: self._intake.add(target, partition, row))

    # Many records

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
        preparer = self._core.preparer
        if preparer.interceptors or self._core.custom_partitioner is not None:
            records = preparer.pair(values, keys, timestamp_ms, headers)
            return self._promise_ranges(
                [await self._place_one(topic, partition, record) for record in records]
            )
        target = await self._require_target(topic, partition)
        placed: list[Placed] = []
        for chunk in preparer.make_rows(values, keys, timestamp_ms, headers):
            for place, part in target.split(partition, chunk):
                await self._place(target, place, part, placed)
        return self._promise_ranges(placed)

    async def _place(
        self, target: Target, partition: int | None, rows: list[RecordRow], placed: list[Placed]
    ) -> None:
        """Put rows into batches, waiting for memory as often as it takes."""
        start = 0
        while start < len(rows):
            added = self._intake.add_some(target, partition, rows, start)
            if added is None:
                added = await self._wait_for_room(
                    lambda: self._intake.add_some(target, partition, rows, start)  # noqa: B023 it is called before the loop goes on
                )
            placed.append(Placed(*added))
            start += added.record_count
            if self._core.is_awake:
                await asyncio.sleep(0)  # a batch was begun: let those before it be sent

    async def _place_one(self, topic: str, partition: int | None, record: OutgoingRecord) -> Placed:
        given = record._replace(topic=topic, partition=partition)
        topic, value, key, partition, timestamp_ms, headers = self._core.preparer.intercept(given)
        row = self._make_row(value, key, timestamp_ms, headers)
        target = await self._require_target(topic, partition)
        if partition is None:
            partition = self._core.choose_partition(target, row)
        added = self._intake.add(target, partition, row)
        promise, index = added or await self._add_later(target, partition, row)
        if self._is_intercepted:
            self._acknowledge_later(promise, index, row[0])
        return Placed(promise, index, 1)

    def _promise_ranges(self, placed: Sequence[Placed]) -> asyncio.Future[tuple[RecordRange, ...]]:
        future: asyncio.Future[tuple[RecordRange, ...]] = self._begin().create_future()

        def finish() -> None:
            found = ranges_of(placed)
            if future.done():
                return
            if isinstance(found, MoldauError):
                future.set_exception(found)
                future.exception()  # seen: the sender has logged it
            else:
                future.set_result(found)

        when_all_are_kept(placed, finish)
        return future

    # Waiting

    async def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; it is made if that is allowed and it is missing."""
        return len((await self._require_target(topic, None)).queues)

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until everything sent so far is in the log or has failed.

        Raises TimeoutError; without a time it waits no longer than `delivery.timeout.ms`.
        """
        self._begin()
        await self._core.flush(timeout_seconds)

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

    async def _require_target(self, topic: str, partition: int | None) -> Target:
        """The topic, asked for if it is new, or if it may have got that partition since."""
        target = self._targets.get(topic)
        if target is None or (partition is not None and partition >= len(target.queues)):
            if self._intake.refusal is not None:
                raise self._intake.refusal.with_traceback(None)
            self._begin()
            target = await self._core.topics.learn(topic)
        if partition is not None:
            target.require_queue(partition)
        return target

    async def _wait_for_room(self, add: Callable[[], T | None]) -> T:
        """Add once there is memory; raises BufferFullError after max.block.ms, or at once."""
        if not self._options.block_on_buffer_full:
            raise self._core.no_room()
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = True
            self._announce_room()

        timer = self._core.clock.call_later(self._options.max_block_ms / 1000, give_up)
        self._intake.begin_waiting()
        try:
            while (added := add()) is None:
                if is_late:
                    raise self._core.no_room()
                await self._wait_until_announced()
            return added
        finally:
            self._intake.end_waiting()
            timer.cancel()

    async def _wait_until_announced(self) -> None:
        announced: asyncio.Future[None] = self._begin().create_future()
        self._waiting_for_room.add(announced)
        try:
            await announced
        finally:
            self._waiting_for_room.discard(announced)

    def _announce_room(self) -> None:
        for announced in self._waiting_for_room:
            if not announced.done():
                announced.set_result(None)

    # The loop

    def _begin(self) -> asyncio.AbstractEventLoop:
        """The loop that this producer belongs to: the one that used it first."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._core.begin()
        return self._loop

    def _schedule(self, work: Callable[[], None]) -> None:
        if self._loop is None:
            raise ClosedClientError("the producer has not begun")
        self._loop.call_soon(work)
