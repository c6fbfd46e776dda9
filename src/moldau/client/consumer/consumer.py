"""The consumer: `AsyncConsumer` and its streams, and what `Consumer` does otherwise for threads.

Answers for the face: records by `poll`, by iteration and by streams, and the operations around
them. The work is the delegate's. With the blocking consumer it runs on a loop in a thread of its
own: it fetches ahead, and keeps the membership alive while the program works. Records are decoded
in the program's thread, and as long as there are fetched ones, taking them does not bother the
loop. The program's functions for rebalances are called in the thread that waits for records.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import islice
from queue import SimpleQueue
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from moldau.client.blocking_face import BlockingFace, LoopThread, run_now, watch
from moldau.client.consumer.delegate import (
    CLOSE_SECONDS,
    INSIDE_A_CALL,
    ConsumerDelegate,
    GivenOffsets,
    ListenerInvocation,
    RebalanceListener,
    RunInvocation,
    call_inline,
    make_delegate,
    partitions_or_all,
    partitions_to_seek,
    read_offsets,
    read_time_ms,
)
from moldau.client.consumer.rules.assignors import Assignor
from moldau.client.consumer.rules.fetch_buffer import (
    ConsumerRecord,
    GivenDeserializer,
    Position,
    RawBatch,
)
from moldau.client.consumer.rules.rebalance_listener import RebalanceEvent
from moldau.client.consumer.rules.subscription_state import ConsumerStream, Pattern, subscribe_to
from moldau.client.rules.arguments import (
    require_partition,
    require_partitions,
    require_seconds,
    require_topic,
    require_whole,
)
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.offsets import ConsumerGroupMetadata, GroupOffset
from moldau.clock import Clock
from moldau.errors import (
    ClosedClientError,
    CommitFailedError,
    ConfigurationError,
    LookUpNeededError,
)
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from moldau.net.port import Network

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.arrow.columns import TimestampUnit


T = TypeVar("T")
Work = Coroutine[Any, Any, T]

POLL_BYTES = 16 * 1024 * 1024
"""Of batches as they are stored: how many come at once, unless told otherwise."""

FOREVER_SECONDS = 3600.0
"""How long an iteration waits before it looks around; it then waits again."""

Some = Collection[TopicPartition] | TopicPartition | None
"""Partitions, one or more; None stands for all that are assigned."""


class _RecordSource(ABC):
    """What gives records: a consumer, or one of its streams. How it waits is that of a task, or of
    a thread; what it does is the same.
    """

    _delegate: ConsumerDelegate
    _stream: ConsumerStream
    _state: AbstractContextManager[object]  # held while records are taken out of the buffer
    _has_streams = False  # then the records come through those

    @abstractmethod
    async def _wait_for_records(self, timeout_seconds: float) -> None: ...

    @abstractmethod
    async def _do_elsewhere(self, work: Callable[[], T]) -> T:
        """Do what may take a while, where that holds up nothing."""

    @abstractmethod
    async def _run_on_loop(self, work: Work[T]) -> T: ...

    def _require_records_here(self) -> None:
        if self._has_streams:
            raise ConfigurationError("this consumer's records come through its streams")

    async def _take(self, timeout_seconds: float, take: Callable[[], list[T]]) -> list[T]:
        clock = self._delegate.clock
        deadline = clock.monotonic() + require_seconds(timeout_seconds)
        while True:
            await self._wait_for_records(deadline - clock.monotonic())
            try:
                with self._state:
                    taken = take()
                    if taken and self._commits_before and not await self._commit_taken():
                        continue
            except LookUpNeededError as needed:
                await self._do_elsewhere(needed.look_up)
                continue
            if taken or clock.monotonic() >= deadline:
                return taken

    async def _take_records(
        self, timeout_seconds: float, max_records: int | None
    ) -> list[ConsumerRecord]:
        limit = self._delegate.options.max_poll_records if max_records is None else max_records
        return await self._take(timeout_seconds, lambda: self._stream.buffer.take_records(limit))

    async def _take_batches(self, timeout_seconds: float, max_bytes: int) -> list[RawBatch]:
        return await self._take(
            timeout_seconds, lambda: self._stream.buffer.take_batches(max_bytes)
        )

    async def _take_arrow(
        self,
        timeout_seconds: float,
        max_bytes: int,
        columns: Sequence[str] | None,
        timestamp_unit: TimestampUnit,
    ) -> pa.Table:
        from moldau.arrow.raw_batches import batches_to_table

        batches = await self._take_batches(timeout_seconds, max_bytes)
        return await self._do_elsewhere(
            lambda: batches_to_table(batches, columns=columns, timestamp_unit=timestamp_unit)
        )

    async def _next_run(self) -> Iterator[ConsumerRecord] | None:
        """Some records, committed already if that comes first; None when the consumer is closed."""
        while True:
            try:
                await self._wait_for_records(FOREVER_SECONDS)
            except ClosedClientError:
                return None
            try:
                with self._state:
                    run = self._stream.buffer.next_run()
                    if run is not None and self._commits_before:
                        run = await self._commit_run(run)
            except LookUpNeededError as needed:
                await self._do_elsewhere(needed.look_up)
                continue
            if run is not None:
                return run

    # At most once: offsets are committed before their records are given

    @property
    def _commits_before(self) -> bool:
        return self._delegate.machine.commits_before

    async def _commit_run(self, run: Iterator[ConsumerRecord]) -> Iterator[ConsumerRecord] | None:
        limit = self._delegate.options.max_poll_records
        positions = self._stream.buffer.positions_after(limit)
        try:
            await self._run_on_loop(self._delegate.commit_positions(positions))
        except CommitFailedError:
            return None  # somebody else will get them
        return islice(run, limit)

    async def _commit_taken(self) -> bool:
        """Commit what was taken; if that fails, take it back."""
        began = self._stream.buffer.find_failed()
        given = self._delegate.machine.streams.given_positions
        try:
            await self._run_on_loop(self._delegate.commit_positions(given()))
        except CommitFailedError:
            await self._run_on_loop(_take_back(self._delegate, began))
            return False
        except BaseException:
            await self._run_on_loop(_take_back(self._delegate, began))
            raise
        return True


async def _take_back(delegate: ConsumerDelegate, began: Mapping[TopicPartition, Position]) -> None:
    """What was taken from these positions on was not given. On the loop, without waiting."""
    with delegate.turns as machine:
        for partition, position in began.items():
            if partition in machine.subscriptions:
                machine.seek(partition, position)


class AsyncRecords(_RecordSource):
    """What gives records to a task: a consumer, or one of its streams."""

    def __init__(self, delegate: ConsumerDelegate, stream: ConsumerStream) -> None:
        self._delegate = delegate
        self._stream = stream
        self._state = contextlib.nullcontext()
        self._polling = asyncio.Lock()

    async def poll(
        self, timeout_seconds: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records; an empty list when none come in time.

        The records that were given before count as dealt with.
        """
        self._require_records_here()
        async with self._polling:
            return await self._take_records(timeout_seconds, max_records)

    async def poll_batches(
        self, timeout_seconds: float = 1.0, max_bytes: int = POLL_BYTES
    ) -> list[RawBatch]:
        """The next batches as they are stored, for whoever decodes them in bulk."""
        self._require_records_here()
        async with self._polling:
            return await self._take_batches(timeout_seconds, max_bytes)

    async def poll_arrow(
        self,
        timeout_seconds: float = 1.0,
        max_bytes: int = POLL_BYTES,
        *,
        columns: Sequence[str] | None = None,
        timestamp_unit: TimestampUnit = "ms",
    ) -> pa.Table:
        """The next records as an Arrow table, with the columns of `moldau.read_table`.

        `max_bytes` are of batches as they are stored. The table is empty when nothing comes in
        time. No record is touched by Python: the fastest way to read.
        """
        self._require_records_here()
        async with self._polling:
            return await self._take_arrow(timeout_seconds, max_bytes, columns, timestamp_unit)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record after record; waits for more, until the consumer is closed."""
        while True:
            self._require_records_here()
            async with self._polling:
                run = await self._next_run()
            if run is None:
                return
            for record in run:
                yield record
                if self._delegate.attention:
                    break

    def _require_records_here(self) -> None:
        super()._require_records_here()
        self._delegate.listener_invoker.require_outside()

    async def _wait_for_records(self, timeout_seconds: float) -> None:
        delegate, buffer = self._delegate, self._stream.buffer
        if delegate.attention or self._commits_before or not buffer.has_more:
            await delegate.wait_for_records(self._stream, call_inline, timeout_seconds)
        else:
            await asyncio.sleep(0)  # heartbeats, and other tasks, want their turn
        # Large compressed batches are decoded in a thread: the loop has other things to do.
        heavy = buffer.find_heavy_batch()
        if heavy is not None:
            buffer.keep_decoded(heavy, await asyncio.to_thread(heavy.decode))

    async def _do_elsewhere(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def _run_on_loop(self, work: Work[T]) -> T:
        return await work


class StreamEnd(ABC):
    """How a stream ends, for tasks and for threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._retire(has_failed=error is not None)

    def close(self) -> None:
        """Give nothing any more; what was given counts as dealt with."""
        self._retire(has_failed=False)

    @abstractmethod
    def _retire(self, *, has_failed: bool) -> None: ...


class AsyncStream(AsyncRecords, StreamEnd):
    """Records of some of a consumer's partitions, for one task.

    Each partition is in one stream at a time. The iteration ends when the consumer is closed, or
    the stream. A stream that nobody reads any more has to be closed: the others get its
    partitions, and rebalances do not wait for it.
    """

    def _retire(self, *, has_failed: bool) -> None:
        with self._delegate.turns as machine:
            machine.retire(self._stream, has_failed=has_failed)


class AsyncConsumer(AsyncRecords):
    """Reads topics, alone or in a group; used by the tasks of one loop.

        async with AsyncConsumer("127.0.0.1:9092", group="g", topics=["clicks"]) as consumer:
            async for record in consumer: ...

    Arguments and options are those of `Consumer`. Functions for rebalances may be coroutines.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        topics: str | Collection[str] | None = None,
        pattern: Pattern | None = None,
        deny: Pattern | None = None,
        commit: str | None = None,
        assignors: Sequence[str | Assignor] | None = None,
        key_deserializer: GivenDeserializer | None = None,
        value_deserializer: GivenDeserializer | None = None,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: object,
    ) -> None:
        delegate = make_delegate(
            bootstrap,
            options,
            group=group,
            commit=commit,
            assignors=assignors,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            listeners={
                RebalanceEvent.ASSIGNED: on_assigned,
                RebalanceEvent.REVOKED: on_revoked,
                RebalanceEvent.LOST: on_lost,
            },
            network=network,
            clock=clock,
            random=random,
        )
        super().__init__(delegate, delegate.machine.streams.first)
        if topics is not None or pattern is not None:
            self.subscribe(topics, pattern=pattern, deny=deny)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(CLOSE_SECONDS, has_failed=error is not None)

    async def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Commit as the mode says, leave the group, end everything. A second call does nothing."""
        await self._close(timeout_seconds, has_failed=False)

    async def _close(self, timeout_seconds: float, *, has_failed: bool) -> None:
        await self._delegate.close(timeout_seconds, has_failed=has_failed, run_call=call_inline)

    # What to read

    def subscribe(
        self,
        topics: str | Collection[str] | None = None,
        *,
        pattern: Pattern | None = None,
        deny: Pattern | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern` and not `deny`."""
        internal = not self._delegate.options.exclude_internal_topics
        selection = subscribe_to(topics, pattern, deny, with_internal=internal)
        with self._delegate.turns as machine:
            machine.subscribe(selection)

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group; the consumer can subscribe again."""
        await self._delegate.unsubscribe(call_inline)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, whatever others of the group read."""
        with self._delegate.turns as machine:
            machine.assign(require_partitions(partitions))

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern those that match now."""
        return self._delegate.machine.topics.names

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._delegate.machine.subscriptions.partitions

    async def partitions_for(self, topic: str) -> TopicMetadata:
        """The topic and its partitions; raises UnknownTopicError."""
        return await self._delegate.client.wait_until_topic_is_ready(require_topic(topic))

    # Records

    def streams(self, count: int) -> tuple[AsyncStream, ...]:
        """So many streams for as many tasks; each partition is in one of them at a time.

        From now on records come through the streams only.
        """
        if count < 1:
            raise ConfigurationError(f"{count} streams are none")
        self._has_streams = True
        with self._delegate.turns as machine:
            streams = machine.split_streams(count)
        return tuple(AsyncStream(self._delegate, stream) for stream in streams)

    # Where to read

    def pause(self, partitions: Some = None) -> None:
        """Give nothing of these partitions until `resume`; they stay assigned."""
        with self._delegate.turns as machine:
            machine.pause(partitions_or_all(partitions, machine), is_paused=True)

    def resume(self, partitions: Some = None) -> None:
        """Give records of these partitions again."""
        with self._delegate.turns as machine:
            machine.pause(partitions_or_all(partitions, machine), is_paused=False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of which nothing is given now."""
        return self._delegate.machine.subscriptions.paused

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""
        found = require_whole(offset, "offset", "a number")
        if found < 0:
            raise ConfigurationError(f"{found} is no offset; see seek_to_beginning, seek_to_end")
        with self._delegate.turns as machine:
            machine.seek(require_partition(partition), Position(found))

    def seek_to_beginning(self, partitions: Some = None) -> None:
        """Read on at the first record that is still there."""
        self._reset(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, partitions: Some = None) -> None:
        """Read on at the end: what comes from now on."""
        self._reset(partitions, LATEST_TIMESTAMP)

    def seek_to_time(self, time: int | datetime, partitions: Some = None) -> None:
        """Read on at the first record that is not older (milliseconds since 1970, or a datetime);
        at the end where there is none."""
        self._reset(partitions, read_time_ms(time))

    def _reset(self, partitions: Some, timestamp: int) -> None:
        with self._delegate.turns as machine:
            for partition in partitions_to_seek(partitions, machine):
                machine.reset(partition, timestamp)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the record that is given next, looked up if it has to be."""
        timeout = self._delegate.options.default_api_timeout_ms / 1000
        found = await self._delegate.wait_for_position(require_partition(partition), timeout)
        return found.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end, as the last fetch knew it."""
        return self._delegate.machine.lag(require_partition(partition))

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offsets of the first records that are still there."""
        return await self._delegate.find_offsets(partitions, EARLIEST_TIMESTAMP)

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offsets behind the last records (that are committed, with read_committed)."""
        return await self._delegate.find_offsets(partitions, LATEST_TIMESTAMP)

    # What was read

    async def commit(
        self, offsets: GivenOffsets = None, *, timeout_seconds: float | None = None
    ) -> None:
        """Have the group begin here next time: behind all records that were given, behind these
        records, or at these offsets."""
        await self._delegate.commit(read_offsets(offsets), timeout_seconds)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom this consumer commits now: for `send_offsets` of a producer's transaction.

        Raises CommitFailedError when the group has gone on without it: in a transaction's block
        that aborts it, and the records are others' now.
        """
        machine = self._delegate.machine
        generation_id, member_id, instance_id = machine.require_identity()
        return ConsumerGroupMetadata(
            group_id=machine.require_membership().group_id,
            generation_id=generation_id,
            member_id=member_id,
            instance_id=instance_id,
        )

    async def committed(
        self, partitions: Some = None
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        """What the group has committed; None where it has nothing."""
        some = (partitions,) if isinstance(partitions, TopicPartition) else partitions
        wanted = self._delegate.machine.subscriptions.partitions if some is None else some
        timeout = self._delegate.options.default_api_timeout_ms / 1000
        coordinator = self._delegate.require_coordinator()
        return await coordinator.fetch_committed(require_partitions(wanted), timeout)


# For threads


class Engine:
    """The core, the thread it runs in, and the lock around what the program's threads share.

    `state` is held while records are taken out of a buffer, and while anything else touches one.
    """

    def __init__(self, make: Callable[[], AsyncConsumer]) -> None:
        async def make_here() -> AsyncConsumer:
            return make()

        self.state = threading.RLock()
        self._is_closing = self._is_closed = False
        self._loop = LoopThread("moldau-consumer")
        try:
            self.consumer = self._loop.run(make_here())
        except BaseException:
            self._loop.close()
            raise
        self.delegate = (
            self.consumer._delegate
        )  # both are the same consumer, for tasks and for threads
        self._calling = threading.local()
        watch(self)

    def run(self, work: Work[T]) -> T:
        """Do the core's work on its loop, holding the state."""
        with self.state:
            self._require_open(work)
            return self._loop.run(work)

    def wait_for(self, work: Work[T]) -> T:
        """Do work that takes its time; others may use the consumer meanwhile."""
        self._require_open(work)
        return self._loop.run(work)

    def submit(self, work: Work[T]) -> Future[T]:
        self._require_open(work)
        return self._loop.submit(work)

    def drive(self, make_work: Callable[[RunInvocation], Work[T]]) -> T:
        """Do work that may have the program's functions called; they are called in this thread."""
        if getattr(self._calling, "is_calling", False):
            raise ConfigurationError(INSIDE_A_CALL)
        inbox: SimpleQueue[ListenerInvocation | Future[T]] = SimpleQueue()

        async def post(call: ListenerInvocation) -> None:
            inbox.put(call)

        future = self.submit(make_work(post))
        future.add_done_callback(inbox.put)
        try:
            while isinstance(item := inbox.get(), ListenerInvocation):
                self._make_call(item)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _make_call(self, call: ListenerInvocation) -> None:
        error: Exception | None = None
        self._calling.is_calling = True
        try:
            call.listener(call.partitions)
        except Exception as raised:  # noqa: BLE001 it is the program's, which gets it back
            error = raised
        except BaseException:
            error = RuntimeError("the call was interrupted")
            raise
        finally:
            self._calling.is_calling = False
            self._loop.call_soon(lambda: call.finish(error))

    def close(self, timeout_seconds: float | None = None, *, has_failed: bool = True) -> None:
        """A program that ends without closing has failed, as far as is known."""
        timeout = CLOSE_SECONDS if timeout_seconds is None else timeout_seconds
        with self.state:
            if self._is_closing:
                return
            self._is_closing = True
        delegate = self.delegate
        try:
            self.drive(
                lambda run_call: delegate.close(timeout, has_failed=has_failed, run_call=run_call)
            )
        finally:
            self._is_closed = True
            self._loop.close()

    def on_fork(self) -> None:
        """Called in a child process: the thread and the membership are the parent's alone."""
        self.state = threading.RLock()
        self._is_closing = self._is_closed = True
        self.delegate.attention = True  # gives nothing of what was fetched

    def _require_open(self, work: Work[T]) -> None:
        if self._is_closed:
            work.close()
            raise ClosedClientError("the consumer is closed, or its process was forked")


class Records(_RecordSource):
    """What gives records to a thread: a consumer, or one of its streams."""

    def __init__(self, engine: Engine, stream: ConsumerStream) -> None:
        self._engine = engine
        self._delegate = engine.delegate
        self._stream = stream
        self._polling = threading.RLock()

    @property
    def _state(self) -> AbstractContextManager[object]:  # type: ignore[override]
        return self._engine.state

    def poll(
        self, timeout_seconds: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records; an empty list when none come in time.

        The records that were given before count as dealt with.
        """
        self._require_records_here()
        with self._polling:
            return run_now(self._take_records(timeout_seconds, max_records))

    def poll_batches(
        self, timeout_seconds: float = 1.0, max_bytes: int = POLL_BYTES
    ) -> list[RawBatch]:
        """The next batches as they are stored, for whoever decodes them in bulk."""
        self._require_records_here()
        with self._polling:
            return run_now(self._take_batches(timeout_seconds, max_bytes))

    def poll_arrow(
        self,
        timeout_seconds: float = 1.0,
        max_bytes: int = POLL_BYTES,
        *,
        columns: Sequence[str] | None = None,
        timestamp_unit: TimestampUnit = "ms",
    ) -> pa.Table:
        """The next records as an Arrow table, with the columns of `moldau.read_table`.

        `max_bytes` are of batches as they are stored. The table is empty when nothing comes in
        time. No record is touched by Python: the fastest way to read.
        """
        self._require_records_here()
        with self._polling:
            return run_now(self._take_arrow(timeout_seconds, max_bytes, columns, timestamp_unit))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record; waits for more, until the consumer is closed."""
        self._require_records_here()
        while True:
            with self._polling:
                run = run_now(self._next_run())
            if run is None:
                return
            for record in run:
                yield record
                if self._delegate.attention:
                    break

    async def _wait_for_records(self, timeout_seconds: float) -> None:
        """While there are fetched records, the loop is not bothered."""
        delegate, stream = self._delegate, self._stream
        if delegate.attention or self._commits_before or not stream.buffer.has_more:
            self._engine.drive(
                lambda run_call: delegate.wait_for_records(stream, run_call, timeout_seconds)
            )

    async def _do_elsewhere(self, work: Callable[[], T]) -> T:
        return work()

    async def _run_on_loop(self, work: Work[T]) -> T:
        return self._engine.run(work)


class Stream(Records, StreamEnd):
    """Records of some of a consumer's partitions, for one thread.

    Each partition is in one stream at a time. The iteration ends when the consumer is closed, or
    the stream. A stream that nobody reads any more has to be closed: the others get its
    partitions, and rebalances do not wait for it.
    """

    def _retire(self, *, has_failed: bool) -> None:
        async def retire() -> None:
            with self._delegate.turns as machine:
                machine.retire(self._stream, has_failed=has_failed)

        with contextlib.suppress(ClosedClientError):
            self._engine.run(retire())


class ConsumerFace(Records, BlockingFace):
    """What `Consumer` does otherwise than `AsyncConsumer`; the rest is derived."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        engine = Engine(lambda: AsyncConsumer(*arguments, **options))
        super().__init__(engine, engine.delegate.machine.streams.first)
        self._inner = engine.consumer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._engine.close(CLOSE_SECONDS, has_failed=error is not None)

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Commit as the mode says, leave the group, end everything. A second call does nothing.

        Raises what a function for rebalances raised meanwhile, when all is done.
        """
        self._engine.close(timeout_seconds, has_failed=False)

    def unsubscribe(self) -> None:
        """Give up all partitions and leave the group; the consumer can subscribe again."""
        self._engine.drive(self._delegate.unsubscribe)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern those that match now."""
        return self._delegate.machine.topics.names

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._delegate.machine.subscriptions.partitions

    def streams(self, count: int) -> tuple[Stream, ...]:
        """So many streams for as many threads; each partition is in one of them at a time.

        From now on records come through the streams only.
        """
        streams = self._call(lambda: self._inner.streams(count))
        self._has_streams = True
        return tuple(Stream(self._engine, one._stream) for one in streams)

    def commit(self, offsets: GivenOffsets = None, *, timeout_seconds: float | None = None) -> None:
        """Have the group begin here next time: behind all records that were given, behind these
        records, or at these offsets."""
        wanted = self._offsets_to_commit(offsets)
        self._engine.wait_for(self._delegate.commit(wanted, timeout_seconds))

    def commit_nowait(self, offsets: GivenOffsets = None) -> Future[None]:
        """As `commit`, in the background; the future tells how it went."""
        return self._engine.submit(self._delegate.commit(self._offsets_to_commit(offsets), None))

    def _offsets_to_commit(self, offsets: GivenOffsets) -> Mapping[TopicPartition, GroupOffset]:
        wanted = read_offsets(offsets)
        return self._call(self._delegate.given_offsets) if wanted is None else wanted

    # How derived operations run

    def _run(self, work: Work[T]) -> T:
        """Others may use the consumer while it takes its time."""
        return self._engine.wait_for(work)

    def _call(self, work: Callable[[], T]) -> T:
        """Something short, while nobody takes records."""

        async def call() -> T:
            return work()

        return self._engine.run(call())
