"""The producer: `AsyncProducer`, and what `Producer` does otherwise for threads.

An asynchronous producer sends on the loop of its user. With the blocking one, users' threads put
records into batches themselves, and a loop in a thread of its own sends them. A thread waits only
where it has to: for a topic that is new, for memory, or for a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from moldau.client.blocking_face import BlockingFace, ClosedAtExit, LoopThread, run_now, watch
from moldau.client.consumer.delegate import GivenOffsets, read_offsets
from moldau.client.producer.produce_result import (
    AppendedRecord,
    AppendedRecords,
    AsyncProduceResult,
    Interceptor,
    ManyFuture,
    ProduceResult,
    RecordFuture,
    RecordMetadata,
    RecordRange,
    SharedProduceResult,
    find_ranges,
    when_all_complete,
)
from moldau.client.producer.record_accumulator import (
    CustomPartitioner,
    NotAppendedError,
    append_arrow,
)
from moldau.client.producer.rules.built_in_partitioner import PartitionedTopic
from moldau.client.producer.rules.record_accumulator import GroupOffsets
from moldau.client.producer.rules.transaction_manager import PreparedTransaction, TransactionCall
from moldau.client.producer.sender import Sender
from moldau.client.producer.serializers import (
    GivenHeaders,
    GivenSerializer,
    NotSerializedError,
    RecordSerializer,
)
from moldau.client.rules.offsets import ConsumerGroupMetadata
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
from moldau.workers import InlineWorkers, ThreadWorkers, Workers

if TYPE_CHECKING:
    import pyarrow as pa


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
        self._sender = Sender(
            bootstrap,
            read,
            RecordSerializer(clock, key_serializer, value_serializer, interceptors),
            make_result=self._make_result,
            schedule=self._schedule,
            partitioner=partitioner,
            network=network,
            clock=clock,
            random=random,
            workers=workers,
        )
        self._waiter = _TaskWaiter(self._sender)
        self._append = self._sender.accumulator.append
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
            place = self._append(topic, value, key, partition, timestamp_ms, headers)
        except (NotAppendedError, NotSerializedError) as left:
            self._begin()
            place = await self._sender.accumulator.append_later(left, self._waiter)
        future = self._make_future(place)
        if self._sender.is_awake:
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
            return self._make_future(
                self._append(topic, value, key, partition, timestamp_ms, headers)
            )
        except (NotAppendedError, NotSerializedError) as left:
            raise self._sender.accumulator.explain_not_appended(left) from None

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
        appended = await self._sender.accumulator.append_many(
            self._waiter, topic, values, keys, partition, timestamp_ms, headers
        )
        return self._make_ranges_future(appended)

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
        self._begin()
        appended = await append_arrow(
            self._sender.accumulator, self._waiter, topic, table, partition, timestamp_ms
        )
        return self._make_ranges_future(appended)

    def _make_future(self, place: AppendedRecord) -> asyncio.Future[RecordMetadata]:
        result, index, timestamp_ms = place
        future: asyncio.Future[RecordMetadata] = self._begin().create_future()
        # All results of this face are made as AsyncProduceResult.
        result.futures.append((future, index, timestamp_ms))  # type: ignore[attr-defined]
        return future

    def _make_ranges_future(
        self, appended: Sequence[AppendedRecords]
    ) -> asyncio.Future[tuple[RecordRange, ...]]:
        future: asyncio.Future[tuple[RecordRange, ...]] = self._begin().create_future()

        def finish() -> None:
            found = find_ranges(appended)
            if future.done():
                return
            if isinstance(found, MoldauError):
                future.set_exception(found)
                future.exception()  # seen: the core has logged it
            else:
                future.set_result(found)

        when_all_complete(appended, finish)
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
            if self._sender.is_in_transaction:
                await self.commit_transaction()
        except BaseException as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort what failed. The first reason counts, unless it only says that there is another."""
        if not self._sender.is_in_transaction:
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
        await self._sender.begin_transaction()

    async def commit_transaction(self) -> None:
        """Send everything, and have all of the transaction count, or raise why it does not."""
        self._begin()
        await self._sender.call_about_transaction(TransactionCall.COMMIT)

    async def abort_transaction(self) -> None:
        """Have nothing of the transaction count; what was not sent yet is not sent."""
        self._begin()
        await self._sender.call_about_transaction(TransactionCall.ABORT)

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Send everything, and leave the decision to somebody else (KIP-939).

        Needs `transaction_two_phase_commit_enable=True`. What it gives is to be stored with the
        decision; any process commits or aborts the transaction with it
        (`Admin.complete_transactions`), also when this producer is closed or dead. None when
        nothing was sent: then there is nothing to complete. This producer can commit or abort what
        it has prepared, and do nothing else any more until it has.
        """
        self._begin()
        return await self._sender.prepare_transaction()

    async def send_offsets(self, offsets: GivenOffsets, group: str | ConsumerGroupMetadata) -> None:
        """Have a group's offsets committed with the transaction: behind these records, or these.

        `group` is the `group_metadata` of the consumer that has read the records, so that one
        that has lost its place in the group cannot commit any more.
        """
        read = read_offsets(offsets)
        if not read:
            return
        by_whom = ConsumerGroupMetadata(group_id=group) if isinstance(group, str) else group
        self._begin()
        await self._sender.send_offsets(GroupOffsets(by_whom, read))

    # Waiting

    async def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; it is made if that is allowed and it is missing."""
        self._begin()
        accumulator = self._sender.accumulator
        return len(
            (
                await accumulator.require_partitioned_topic(
                    topic, None, self._waiter, to_send=False
                )
            ).queues
        )

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until everything sent so far is in the log or has failed.

        Raises TimeoutError; without a time it waits no longer than `delivery.timeout.ms`.
        """
        self._begin()
        if not await self._sender.flush(timeout_seconds):
            raise TimeoutError(f"not everything was sent within {timeout_seconds:g} seconds")

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Send everything, then end; what is not confirmed in time fails. A second call does
        nothing. Without a time it waits no longer than `delivery.timeout.ms`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._begin()
        if self._sender.is_in_transaction:
            with contextlib.suppress(KafkaError, ClientError, TimeoutError):
                seconds = _ABORT_SECONDS if timeout_seconds is None else timeout_seconds
                await finish_within(self.abort_transaction(), self._sender.clock, seconds)
        await self._sender.close(timeout_seconds)
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

    def _make_result(self, partition: TopicPartition) -> ProduceResult:
        return AsyncProduceResult(partition)


class _TaskWaiter:
    """How a task waits for what a record needs (`AppendWaiter`)."""

    def __init__(self, core: Sender) -> None:
        self._sender = core

    async def wait_for_topic(self, topic: str) -> PartitionedTopic[ProduceResult]:
        return await self._sender.learn_topic(topic)

    async def wait_for_memory(self, size_bytes: int, deadline: float) -> None:
        await self._sender.wait_for_memory(size_bytes, deadline)

    async def yield_to_sender(self) -> None:
        if self._sender.is_awake:
            await asyncio.sleep(0)

    async def run_work(self, work: Callable[[], object]) -> None:
        await asyncio.to_thread(work)


# For threads


T = TypeVar("T")
Append = Callable[..., tuple[SharedProduceResult, int, int]]


class ProducerFace(BlockingFace):
    """A producer for threads: an `AsyncProducer`, and the thread that it runs in."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._is_forked = False
        self._closing = threading.Lock()  # of two threads that close, the second one waits
        self._inner = _ThreadsProducer(self._stop_lingering, self._call_soon, *arguments, **options)
        self._loop = LoopThread("moldau-producer")
        self._sender: Sender = self._inner._sender
        self._accumulator = self._sender.accumulator
        # The results are the shared ones that are made below.
        self._append = cast("Append", self._accumulator.append)
        self._waiter = _ThreadWaiter(self._sender, self._run)
        watch(self)

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> RecordFuture:
        """Have a record sent; its future tells when it is in the log, and where.

        Waits only when the topic is new, or while memory is used up (`max.block.ms`). Raises what
        is wrong with the record itself; what happens later is the future's.
        """
        try:
            place = self._append(topic, value, key, partition, timestamp_ms, headers)
        except (NotAppendedError, NotSerializedError) as left:
            place = run_now(self._accumulator.append_later(left, self._waiter))
        return RecordFuture(place)

    def send_nowait(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> RecordFuture:
        """As `send`, without waiting: raises TopicNotReadyError for a topic that nothing was sent
        to before, and BufferFullError when memory is used up."""
        try:
            return RecordFuture(self._append(topic, value, key, partition, timestamp_ms, headers))
        except (NotAppendedError, NotSerializedError) as left:
            raise self._accumulator.explain_not_appended(left) from None

    def send_many(
        self,
        topic: str,
        values: Iterable[object],
        keys: Iterable[object] | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> ManyFuture:
        """Have many records sent, at a fraction of the cost of as many calls of `send`.

        `values` are bytes or None, with `keys` beside them if there are any; or whole rows, such
        as `moldau.NewRecord`, each with timestamp, key, value and headers of its own. The future
        is done when all of them are in the log, and tells in which ranges of offsets. When one of
        them cannot be sent, its error is raised here, and those before it are on their way.
        """
        return ManyFuture(
            run_now(
                self._accumulator.append_many(
                    self._waiter, topic, values, keys, partition, timestamp_ms, headers
                )
            )
        )

    def send_arrow(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ManyFuture:
        """Have the rows of an Arrow table sent: as `send_many`, with no row in Python.

        The columns are those of `moldau.read_table`: `value`, of bytes or text, and where they are
        there `key`, `headers`, `timestamp` and `partition`; others are not looked at. A row without
        a partition goes where its key belongs, one without a timestamp has `timestamp_ms`, or now.
        `partition` goes before the column. Whatever hands its columns over as Arrow does is taken
        as well, like a frame of Polars. Needs `moldau[arrow]`.
        """
        return ManyFuture(
            run_now(
                append_arrow(self._accumulator, self._waiter, topic, table, partition, timestamp_ms)
            )
        )

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """What is sent within counts as a whole, or not at all.

            with producer.transaction():
                producer.send("clicks", b"value")

        It is committed at the end of the block, and aborted when the block raises. Readers with
        `isolation_level="read_committed"` see its records when it is committed, others at once.
        Raises ProducerFencedError when another producer has the transactional id, and
        TransactionAbortedError when something was not delivered: then nothing of it counts, and
        its work can be done again.
        """
        inner = self._inner
        self._run(inner.begin_transaction())
        try:
            yield self
            if self._sender.is_in_transaction:
                self._run(inner.commit_transaction())
        except BaseException as error:
            self._run(inner._abort_after(error))
            raise

    def close(self, timeout_seconds: float | None = None) -> None:
        """Send everything, then end; what is not confirmed in time fails. A second call does
        nothing. Without a time it waits no longer than `delivery.timeout.ms`."""
        if self._is_forked:
            return
        self._require_other_thread()
        with self._closing:
            if self._loop.is_open:
                self._loop.run(self._inner.close(timeout_seconds))
                self._loop.close()

    # Between threads

    def _stop_lingering(self, result: SharedProduceResult) -> None:
        if self._is_forked:
            raise _forked()
        self._require_other_thread()
        self._sender.stop_lingering(result)

    def _call_soon(self, work: Callable[[], None]) -> None:
        self._loop.call_soon(work)

    def on_fork(self) -> None:
        """Called in a child process: the thread that sends is the parent's alone."""
        self._is_forked = True
        self._accumulator.on_fork(_forked())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            if self._is_forked:
                raise _forked()
            if not self._loop.is_open:
                raise ClosedClientError("the producer is closed")
            self._require_other_thread()
        except BaseException:
            work.close()
            raise
        return self._loop.run(work)

    def _require_other_thread(self) -> None:
        if self._loop.is_current:
            raise RuntimeError("a callback of a producer cannot wait for the producer itself")


class _ThreadsProducer(AsyncProducer):
    """Its records are put in and waited for by any thread, and compressed in its own."""

    def __init__(
        self,
        stop_lingering: Callable[[SharedProduceResult], None],
        call_soon: Callable[[Callable[[], None]], None],
        *arguments: Any,
        **options: Any,
    ) -> None:
        self._stop_lingering = stop_lingering
        self._call_soon = call_soon
        super().__init__(*arguments, **options, workers=InlineWorkers())

    def _make_result(self, partition: TopicPartition) -> ProduceResult:
        return SharedProduceResult(partition, self._stop_lingering)

    def _schedule(self, work: Callable[[], None]) -> None:
        self._call_soon(work)


class _ThreadWaiter:
    """How a thread waits for what a record needs (`AppendWaiter`)."""

    def __init__(self, core: Sender, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._sender = core
        self._run = run

    async def wait_for_topic(self, topic: str) -> PartitionedTopic[ProduceResult]:
        found: PartitionedTopic[ProduceResult] = self._run(self._sender.learn_topic(topic))
        return found

    async def wait_for_memory(self, size_bytes: int, deadline: float) -> None:
        self._run(self._sender.wait_for_memory(size_bytes, deadline))

    async def yield_to_sender(self) -> None:
        """The loop has a thread of its own."""

    async def run_work(self, work: Callable[[], object]) -> None:
        work()


def _forked() -> ClosedClientError:
    return ClosedClientError(
        "this producer was made before the process was forked; make a new one in the child"
    )
