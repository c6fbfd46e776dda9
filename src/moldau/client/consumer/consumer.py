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
from datetime import datetime
from itertools import islice
from queue import SimpleQueue
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from moldau.client.blocking_face import BlockingFace, LoopThread, watch
from moldau.client.consumer.arguments import (
    CLOSE_SECONDS,
    ConsumerArguments,
    GivenOffsets,
    call_inline,
    make_delegate,
    partitions_or_all,
    partitions_to_seek,
    read_offsets,
    read_time_ms,
)
from moldau.client.consumer.delegate import (
    INSIDE_A_CALL,
    ConsumerDelegate,
    ListenerInvocation,
    RebalanceListener,
    RunInvocation,
)
from moldau.client.consumer.rules.assignors import Assignor
from moldau.client.consumer.rules.fetch_buffer import (
    ConsumerRecord,
    GivenDeserializer,
    Position,
    RawBatch,
)
from moldau.client.consumer.rules.subscription_state import ConsumerStream as Reader
from moldau.client.consumer.rules.subscription_state import Pattern, subscribe_to
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


POLL_BYTES = 16 * 1024 * 1024
"""Of batches as they are stored: how many come at once, unless told otherwise."""

FOREVER_SECONDS = 3600.0
"""How long an iteration waits before it looks around; it then waits again."""

Some = Collection[TopicPartition] | TopicPartition | None
"""Partitions, one or more; None stands for all that are assigned."""


class AsyncRecords:
    """What gives records to a task: a consumer, or one of its streams."""

    def __init__(self, core: ConsumerDelegate, reader: Reader) -> None:
        self._core = core
        self._reader = reader
        self._polling = asyncio.Lock()
        self._has_streams = False  # then the records come through those

    async def poll(
        self, timeout_seconds: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records; an empty list when none come in time.

        The records that were given before count as dealt with.
        """
        limit = self._core.options.max_poll_records if max_records is None else max_records
        self._require_records_here()
        self._core.require_outside()
        async with self._polling:
            deadline = self._core.clock.monotonic() + require_seconds(timeout_seconds)
            while True:
                await self._come_in(deadline - self._core.clock.monotonic())
                await self._unpack_elsewhere()
                try:
                    taken = self._reader.delivery.take(limit)
                except LookUpNeededError as needed:
                    await asyncio.to_thread(needed.look_up)
                    continue
                if taken and self._core.commits_before and not await self._commit_taken():
                    continue
                if taken or self._core.clock.monotonic() >= deadline:
                    return taken

    async def poll_batches(
        self, timeout_seconds: float = 1.0, max_bytes: int = POLL_BYTES
    ) -> list[RawBatch]:
        """The next batches as they are stored, for whoever decodes them in bulk."""
        self._require_records_here()
        self._core.require_outside()
        async with self._polling:
            await self._come_in(timeout_seconds)
            taken = self._reader.delivery.take_batches(max_bytes)
            if taken and self._core.commits_before and not await self._commit_taken():
                return []
            return taken

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
        from moldau.arrow.raw_batches import batches_to_table

        batches = await self.poll_batches(timeout_seconds, max_bytes)
        # In a thread: a loop has other things to do than to unpack megabytes.
        return await asyncio.to_thread(
            batches_to_table, batches, columns=columns, timestamp_unit=timestamp_unit
        )

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record after record; waits for more, until the consumer is closed."""
        self._require_records_here()
        core = self._core
        while True:
            core.require_outside()
            try:
                async with self._polling:
                    run = await self._next_run()
            except ClosedClientError:
                return
            if run is None:
                continue
            for record in run:
                yield record
                if core.attention:
                    break

    async def _next_run(self) -> Iterator[ConsumerRecord] | None:
        """Some records, committed already if that comes first; None to look again."""
        core, delivery = self._core, self._reader.delivery
        await self._come_in(FOREVER_SECONDS)
        await self._unpack_elsewhere()
        try:
            run = delivery.next_run()
        except LookUpNeededError as needed:
            await asyncio.to_thread(needed.look_up)
            return None
        if run is None or not core.commits_before:
            return run
        limit = core.options.max_poll_records
        try:
            await core.commit_before_giving(delivery.positions_after(limit))
        except CommitFailedError:
            return None  # somebody else will get them
        return islice(run, limit)

    def _require_records_here(self) -> None:
        if self._has_streams:
            raise ConfigurationError("this consumer's records come through its streams")

    async def _come_in(self, timeout_seconds: float) -> None:
        core = self._core
        if core.attention or core.commits_before or not self._reader.delivery.has_more:
            await core.come_in(self._reader, call_inline, timeout_seconds)
        else:
            await asyncio.sleep(0)  # heartbeats, and other tasks, want their turn

    async def _unpack_elsewhere(self) -> None:
        """Large compressed batches are decoded in a thread: the loop has other things to do."""
        heavy = self._reader.delivery.find_heavy_batch()
        if heavy is not None:
            records = await asyncio.to_thread(heavy.decode)
            self._reader.delivery.keep_decoded(heavy, records)

    async def _commit_taken(self) -> bool:
        """At most once: commit what was taken before it is given; if that fails, take it back."""
        began = self._reader.delivery.find_failed()
        try:
            await self._core.commit_given()
        except CommitFailedError:
            await take_back(self._core, began)
            return False
        except BaseException:
            await take_back(self._core, began)
            raise
        return True


async def take_back(core: ConsumerDelegate, began: Mapping[TopicPartition, Position]) -> None:
    """What was taken from these positions on was not given. On the core's loop, without waiting."""
    for partition, position in began.items():
        if partition in core.table:
            core.seek(partition, position)


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
        self._core.retire(self._reader, has_failed=has_failed)


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
        arguments = ConsumerArguments(
            group=group,
            commit=commit,
            assignors=assignors,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )
        core = make_delegate(
            bootstrap, arguments, options, network=network, clock=clock, random=random
        )
        super().__init__(core, core.readers.first)
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
        await self._core.close(timeout_seconds, has_failed=has_failed, run_call=call_inline)

    # What to read

    def subscribe(
        self,
        topics: str | Collection[str] | None = None,
        *,
        pattern: Pattern | None = None,
        deny: Pattern | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern` and not `deny`."""
        internal = not self._core.options.exclude_internal_topics
        self._core.subscribe(subscribe_to(topics, pattern, deny, with_internal=internal))

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group; the consumer can subscribe again."""
        await self._core.unsubscribe(call_inline)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, whatever others of the group read."""
        self._core.assign(require_partitions(partitions))

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern those that match now."""
        return self._core.topics

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._core.table.partitions

    async def partitions_for(self, topic: str) -> TopicMetadata:
        """The topic and its partitions; raises UnknownTopicError."""
        return await self._core.client.wait_until_topic_is_ready(require_topic(topic))

    # Records

    def streams(self, count: int) -> tuple[AsyncStream, ...]:
        """So many streams for as many tasks; each partition is in one of them at a time.

        From now on records come through the streams only.
        """
        if count < 1:
            raise ConfigurationError(f"{count} streams are none")
        self._has_streams = True
        readers = self._core.split_readers(count)
        return tuple(AsyncStream(self._core, reader) for reader in readers)

    # Where to read

    def pause(self, partitions: Some = None) -> None:
        """Give nothing of these partitions until `resume`; they stay assigned."""
        self._core.pause(partitions_or_all(partitions, self._core), is_paused=True)

    def resume(self, partitions: Some = None) -> None:
        """Give records of these partitions again."""
        self._core.pause(partitions_or_all(partitions, self._core), is_paused=False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of which nothing is given now."""
        return self._core.table.paused

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""
        found = require_whole(offset, "offset", "a number")
        if found < 0:
            raise ConfigurationError(f"{found} is no offset; see seek_to_beginning, seek_to_end")
        self._core.seek(require_partition(partition), Position(found))

    def seek_to_beginning(self, partitions: Some = None) -> None:
        """Read on at the first record that is still there."""
        for partition in partitions_to_seek(partitions, self._core):
            self._core.reset(partition, EARLIEST_TIMESTAMP)

    def seek_to_end(self, partitions: Some = None) -> None:
        """Read on at the end: what comes from now on."""
        for partition in partitions_to_seek(partitions, self._core):
            self._core.reset(partition, LATEST_TIMESTAMP)

    def seek_to_time(self, time: int | datetime, partitions: Some = None) -> None:
        """Read on at the first record that is not older (milliseconds since 1970, or a datetime);
        at the end where there is none."""
        timestamp_ms = read_time_ms(time)
        for partition in partitions_to_seek(partitions, self._core):
            self._core.reset(partition, timestamp_ms)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the record that is given next, looked up if it has to be."""
        timeout = self._core.options.default_api_timeout_ms / 1000
        found = await self._core.wait_for_position(require_partition(partition), timeout)
        return found.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end, as the last fetch knew it."""
        return self._core.lag(require_partition(partition))

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offsets of the first records that are still there."""
        return await self._core.find_offsets(partitions, EARLIEST_TIMESTAMP)

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offsets behind the last records (that are committed, with read_committed)."""
        return await self._core.find_offsets(partitions, LATEST_TIMESTAMP)

    # What was read

    async def commit(
        self, offsets: GivenOffsets = None, *, timeout_seconds: float | None = None
    ) -> None:
        """Have the group begin here next time: behind all records that were given, behind these
        records, or at these offsets."""
        await self._core.commit(read_offsets(offsets), timeout_seconds)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom this consumer commits now: for `send_offsets` of a producer's transaction.

        Raises CommitFailedError when the group has gone on without it: in a transaction's block
        that aborts it, and the records are others' now.
        """
        return self._core.group_metadata()

    async def committed(
        self, partitions: Some = None
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        """What the group has committed; None where it has nothing."""
        some = (partitions,) if isinstance(partitions, TopicPartition) else partitions
        wanted = self._core.table.partitions if some is None else some
        timeout = self._core.options.default_api_timeout_ms / 1000
        return await self._core.committed(require_partitions(wanted), timeout)


# For threads


T = TypeVar("T")
Work = Coroutine[Any, Any, T]


class Engine:
    """The core, the thread it runs in, and the lock around what the program's threads share.

    `state` is held while records are taken out of a delivery, and while anything else touches one.
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
        self.core = self.consumer._core  # both are the same consumer, for tasks and for threads
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
        core = self.core
        try:
            self.drive(
                lambda run_call: core.close(timeout, has_failed=has_failed, run_call=run_call)
            )
        finally:
            self._is_closed = True
            self._loop.close()

    def on_fork(self) -> None:
        """Called in a child process: the thread and the membership are the parent's alone."""
        self.state = threading.RLock()
        self._is_closing = self._is_closed = True
        self.core.attention = True  # gives nothing of what was fetched

    def _require_open(self, work: Work[T]) -> None:
        if self._is_closed:
            work.close()
            raise ClosedClientError("the consumer is closed, or its process was forked")


class Records:
    """What gives records to a thread: a consumer, or one of its streams."""

    def __init__(self, engine: Engine, reader: Reader) -> None:
        self._engine = engine
        self._reader = reader
        self._polling = threading.RLock()
        self._has_streams = False  # then the records come through those

    def poll(
        self, timeout_seconds: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records; an empty list when none come in time.

        The records that were given before count as dealt with.
        """
        core = self._engine.core
        limit = core.options.max_poll_records if max_records is None else max_records
        return self._take(timeout_seconds, lambda: self._reader.delivery.take(limit))

    def poll_batches(
        self, timeout_seconds: float = 1.0, max_bytes: int = POLL_BYTES
    ) -> list[RawBatch]:
        """The next batches as they are stored, for whoever decodes them in bulk."""
        return self._take(timeout_seconds, lambda: self._reader.delivery.take_batches(max_bytes))

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
        from moldau.arrow.raw_batches import batches_to_table

        batches = self.poll_batches(timeout_seconds, max_bytes)
        return batches_to_table(batches, columns=columns, timestamp_unit=timestamp_unit)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record; waits for more, until the consumer is closed."""
        self._require_records_here()
        core = self._engine.core
        while (run := self._next_run()) is not None:
            for record in run:
                yield record
                if core.attention:
                    break

    def _take(self, timeout_seconds: float, take: Callable[[], list[T]]) -> list[T]:
        self._require_records_here()
        engine, core = self._engine, self._engine.core
        with self._polling:
            if not core.attention and not core.commits_before:
                taken = self._try_at_once(take)
                if taken:
                    return taken
            deadline = core.clock.monotonic() + require_seconds(timeout_seconds)
            while True:
                self._come_in(deadline - core.clock.monotonic())
                try:
                    with engine.state:
                        taken = take()
                        if taken and core.commits_before and not self._commit_taken():
                            continue
                except LookUpNeededError as needed:
                    needed.look_up()
                    continue
                if taken or core.clock.monotonic() >= deadline:
                    return taken

    def _next_run(self) -> Iterator[ConsumerRecord] | None:
        engine, core = self._engine, self._engine.core
        with self._polling:
            if not core.attention and not core.commits_before:
                run = self._try_at_once(self._reader.delivery.next_run)
                if run is not None:
                    return run
            while True:
                try:
                    self._come_in(FOREVER_SECONDS)
                except ClosedClientError:
                    return None
                try:
                    with engine.state:
                        run = self._reader.delivery.next_run()
                        if run is not None and core.commits_before:
                            run = self._commit_run(run)
                except LookUpNeededError as needed:
                    needed.look_up()
                    continue
                if run is not None:
                    return run

    def _try_at_once(self, take: Callable[[], T]) -> T | None:
        """None for records whose deserializers have to look something up: not at once, then."""
        try:
            with self._engine.state:
                return take()
        except LookUpNeededError:
            return None

    def _come_in(self, timeout_seconds: float) -> None:
        core, reader = self._engine.core, self._reader
        self._engine.drive(lambda run_call: core.come_in(reader, run_call, timeout_seconds))

    def _commit_run(self, run: Iterator[ConsumerRecord]) -> Iterator[ConsumerRecord] | None:
        """At most once: commit some records before they are given."""
        core = self._engine.core
        limit = core.options.max_poll_records
        positions = self._reader.delivery.positions_after(limit)
        try:
            self._engine.run(core.commit_before_giving(positions))
        except CommitFailedError:
            return None  # somebody else will get them
        return islice(run, limit)

    def _commit_taken(self) -> bool:
        """At most once: commit what was taken before it is given; if that fails, take it back."""
        core = self._engine.core
        began = self._reader.delivery.find_failed()
        try:
            self._engine.run(core.commit_given())
        except CommitFailedError:
            self._engine.run(take_back(core, began))
            return False
        except BaseException:
            self._engine.run(take_back(core, began))
            raise
        return True

    def _require_records_here(self) -> None:
        if self._has_streams:
            raise ConfigurationError("this consumer's records come through its streams")


class Stream(Records, StreamEnd):
    """Records of some of a consumer's partitions, for one thread.

    Each partition is in one stream at a time. The iteration ends when the consumer is closed, or
    the stream. A stream that nobody reads any more has to be closed: the others get its
    partitions, and rebalances do not wait for it.
    """

    def _retire(self, *, has_failed: bool) -> None:
        core, reader = self._engine.core, self._reader

        async def retire() -> None:
            core.retire(reader, has_failed=has_failed)

        with contextlib.suppress(ClosedClientError):
            self._engine.run(retire())


class ConsumerFace(Records, BlockingFace):
    """What `Consumer` does otherwise than `AsyncConsumer`; the rest is derived."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        engine = Engine(lambda: AsyncConsumer(*arguments, **options))
        super().__init__(engine, engine.core.readers.first)
        self._core = engine.core
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
        self._engine.drive(self._core.unsubscribe)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern those that match now."""
        return self._core.topics

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._core.table.partitions

    def streams(self, count: int) -> tuple[Stream, ...]:
        """So many streams for as many threads; each partition is in one of them at a time.

        From now on records come through the streams only.
        """
        if count < 1:
            raise ConfigurationError(f"{count} streams are none")
        self._has_streams = True
        readers = self._call(lambda: self._core.split_readers(count))
        return tuple(Stream(self._engine, reader) for reader in readers)

    def commit(self, offsets: GivenOffsets = None, *, timeout_seconds: float | None = None) -> None:
        """Have the group begin here next time: behind all records that were given, behind these
        records, or at these offsets."""
        wanted = self._offsets_to_commit(offsets)
        self._engine.wait_for(self._core.commit(wanted, timeout_seconds))

    def commit_nowait(self, offsets: GivenOffsets = None) -> Future[None]:
        """As `commit`, in the background; the future tells how it went."""
        return self._engine.submit(self._core.commit(self._offsets_to_commit(offsets), None))

    def _offsets_to_commit(self, offsets: GivenOffsets) -> Mapping[TopicPartition, GroupOffset]:
        wanted = read_offsets(offsets)
        return self._call(self._core.given_offsets) if wanted is None else wanted

    # How derived operations run

    def _run(self, work: Work[T]) -> T:
        """Others may use the consumer while it takes its time."""
        return self._engine.wait_for(work)

    def _call(self, work: Callable[[], T]) -> T:
        """Something short, while nobody takes records."""

        async def call() -> T:
            return work()

        return self._engine.run(call())
