"""The producer for asyncio: records are sent by the loop of whoever uses it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Final, Self

from moldau.client.batch_promises import AsyncPromise, BatchPromise, Place, Placed
from moldau.client.closed_at_exit import ClosedAtExit
from moldau.client.intake import CustomPartitioner, NotPlacedError
from moldau.client.offset_values import ConsumerGroupMetadata
from moldau.client.producer_core import ProducerCore
from moldau.client.producer_values import Interceptor, RecordMetadata, RecordRange
from moldau.client.record_futures import ranges_of, when_all_are_kept
from moldau.client.record_preparer import (
    GivenHeaders,
    GivenSerializer,
    NotSerializedError,
    RecordPreparer,
)
from moldau.client.rules.producer_instructions import GroupOffsets
from moldau.client.rules.producer_transaction import PreparedTransaction, TransactionCall
from moldau.client.rules.topic_target import TopicTarget
from moldau.clock import Clock, SystemClock, finish_within
from moldau.config.client_options import ProducerOptions
from moldau.errors import (
    ClientError,
    ClosedClientError,
    KafkaError,
    MoldauError,
    ProducerFencedError,
    TransactionAbortedError,
)
from moldau.model import TopicPartition
from moldau.net.port import Network
from moldau.workers import ThreadWorkers, Workers

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.client.consumer_setup import GivenOffsets

_ABORT_SECONDS: Final = 10.0


class AsyncProducer(ClosedAtExit):
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
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
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
        except (NotPlacedError, NotSerializedError) as left:
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
        except (NotPlacedError, NotSerializedError) as left:
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

    async def send_arrow(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[tuple[RecordRange, ...]]:
        """Have the rows of an Arrow table sent: as `send_many`, with no row in Python.

        The columns are those of `moldau.read_table`: `value`, of bytes or text, and where they are
        there `key`, `headers`, `timestamp` and `partition`; others are not looked at. A row without
        a partition goes where its key belongs, one without a timestamp has `timestamp_ms`, or now.
        `partition` goes before the column. Whatever hands its columns over as Arrow does is taken
        as well, like a frame of Polars. Needs `moldau[arrow]`.
        """
        from moldau.client.arrow_sending import put_arrow

        self._begin()
        placed = await put_arrow(
            self._core.intake, self._waiting, topic, table, partition, timestamp_ms
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

    # Transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """What is sent within counts as a whole, or not at all.

            async with producer.transaction():
                await producer.send("clicks", b"value")

        It is committed at the end of the block, and aborted when the block raises. Readers with
        `isolation_level="read_committed"` see its records when it is committed, others at once.
        Raises ProducerFencedError when another producer has the transactional id, and
        TransactionAbortedError when something was not delivered: then nothing of it counts, and
        its work can be done again.
        """
        await self.begin_transaction()
        try:
            yield self
            if self._core.is_in_transaction:
                await self.commit_transaction()
        except BaseException as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort what failed. The first reason counts, unless it only says that there is another."""
        if not self._core.is_in_transaction:
            return
        try:
            await self.abort_transaction()
        except ProducerFencedError as fenced:
            if isinstance(error, TransactionAbortedError):
                raise fenced from error
        except (KafkaError, ClientError):
            return

    async def begin_transaction(self) -> None:
        """Open a transaction; see `transaction`, which also ends it.

        The first one asks for the producer id: from then on whoever had the transactional id
        before can do nothing any more, and what it left open is aborted.
        """
        self._begin()
        await self._core.begin_transaction()

    async def commit_transaction(self) -> None:
        """Send everything, and have all of the transaction count, or raise why it does not."""
        self._begin()
        await self._core.call_about_transaction(TransactionCall.COMMIT)

    async def abort_transaction(self) -> None:
        """Have nothing of the transaction count; what was not sent yet is not sent."""
        self._begin()
        await self._core.call_about_transaction(TransactionCall.ABORT)

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Send everything, and leave the decision to somebody else (KIP-939).

        Needs `transaction_two_phase_commit_enable=True`. What it gives is to be stored with the
        decision; any process commits or aborts the transaction with it
        (`Admin.complete_transactions`), also when this producer is closed or dead. None when
        nothing was sent: then there is nothing to complete. This producer can commit or abort what
        it has prepared, and do nothing else any more until it has.
        """
        self._begin()
        return await self._core.prepare_transaction()

    async def send_offsets(self, offsets: GivenOffsets, group: str | ConsumerGroupMetadata) -> None:
        """Have a group's offsets committed with the transaction: behind these records, or these.

        `group` is the `group_metadata` of the consumer that has read the records, so that one
        that has lost its place in the group cannot commit any more.
        """
        from moldau.client.consumer_setup import read_offsets

        read = read_offsets(offsets)
        if not read:
            return
        by_whom = ConsumerGroupMetadata(group_id=group) if isinstance(group, str) else group
        self._begin()
        await self._core.send_offsets(GroupOffsets(by_whom, read))

    # Waiting

    async def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; it is made if that is allowed and it is missing."""
        self._begin()
        intake = self._core.intake
        return len((await intake.require_target(topic, None, self._waiting, to_send=False)).queues)

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
        if self._core.is_in_transaction:
            with contextlib.suppress(KafkaError, ClientError, TimeoutError):
                seconds = _ABORT_SECONDS if timeout_seconds is None else timeout_seconds
                await finish_within(self.abort_transaction(), self._core.clock, seconds)
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

    async def look_up(self, work: Callable[[], object]) -> None:
        await asyncio.to_thread(work)
