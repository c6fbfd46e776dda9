"""Records for threads: the engine behind a blocking consumer, and the streams that it feeds.

The core runs on a loop in a thread of its own: it fetches ahead, and keeps the membership alive
while the program works. Records are decoded in the program's thread, and as long as there are
fetched ones, taking them does not bother the loop. The program's functions for rebalances are
called in the thread that waits for records.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.client.blocking_face import BlockingFace
from moldau.client.consumer import (
    FOREVER_SECONDS,
    POLL_BYTES,
    AsyncConsumer,
    StreamEnd,
    take_back,
)
from moldau.client.consumer_setup import CLOSE_SECONDS, GivenOffsets, read_offsets
from moldau.client.loop_thread import LoopThread, watch
from moldau.client.offset_values import GroupOffset
from moldau.client.rules.arguments import require_seconds
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.delivery import RawBatch
from moldau.client.rules.readers import Reader
from moldau.client.user_calls import INSIDE_A_CALL, RunCall, UserCall
from moldau.errors import (
    ClosedClientError,
    CommitFailedError,
    ConfigurationError,
    LookUpNeededError,
)
from moldau.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.arrow.schema import TimestampUnit

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

    def drive(self, make_work: Callable[[RunCall], Work[T]]) -> T:
        """Do work that may have the program's functions called; they are called in this thread."""
        if getattr(self._calling, "is_calling", False):
            raise ConfigurationError(INSIDE_A_CALL)
        inbox: SimpleQueue[UserCall | Future[T]] = SimpleQueue()

        async def post(call: UserCall) -> None:
            inbox.put(call)

        future = self.submit(make_work(post))
        future.add_done_callback(inbox.put)
        try:
            while isinstance(item := inbox.get(), UserCall):
                self._make_call(item)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _make_call(self, call: UserCall) -> None:
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
