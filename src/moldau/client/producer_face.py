"""What the blocking producer does otherwise than `AsyncProducer`; the rest is derived.

Users' threads put records into batches themselves; a loop in a thread of its own sends them. A
thread waits only where it has to: for a topic that is new, for memory, or for a result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from moldau.client.batch_promises import BatchPromise, SharedPromise
from moldau.client.blocking_face import BlockingFace
from moldau.client.intake import NotPlacedError
from moldau.client.loop_thread import LoopThread, run_now, watch
from moldau.client.producer import AsyncProducer
from moldau.client.producer_core import ProducerCore
from moldau.client.record_futures import ManyFuture, RecordFuture
from moldau.client.record_preparer import GivenHeaders, NotSerializedError
from moldau.client.rules.topic_target import TopicTarget
from moldau.errors import ClosedClientError
from moldau.model import TopicPartition
from moldau.workers import InlineWorkers

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Put = Callable[..., tuple[SharedPromise, int, int]]


class ProducerFace(BlockingFace):
    """A producer for threads: an `AsyncProducer`, and the thread that it runs in."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._is_forked = False
        self._closing = threading.Lock()  # of two threads that close, the second one waits
        self._inner = _ThreadsProducer(self._hurry, self._call_soon, *arguments, **options)
        self._loop = LoopThread("moldau-producer")
        self._core: ProducerCore = self._inner._core
        self._intake = self._core.intake
        # The promises are the shared ones that are made below.
        self._put = cast("Put", self._intake.put)
        self._waiting = _ThreadWaiting(self._core, self._run)
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
            place = self._put(topic, value, key, partition, timestamp_ms, headers)
        except (NotPlacedError, NotSerializedError) as left:
            place = run_now(self._intake.put_later(left, self._waiting))
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
            return RecordFuture(self._put(topic, value, key, partition, timestamp_ms, headers))
        except (NotPlacedError, NotSerializedError) as left:
            raise self._intake.explain(left) from None

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
                self._intake.put_many(
                    self._waiting, topic, values, keys, partition, timestamp_ms, headers
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
        from moldau.client.arrow_sending import put_arrow

        return ManyFuture(
            run_now(put_arrow(self._intake, self._waiting, topic, table, partition, timestamp_ms))
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
            if self._core.is_in_transaction:
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

    def _hurry(self, promise: SharedPromise) -> None:
        if self._is_forked:
            raise _forked()
        self._require_other_thread()
        self._core.hurry(promise)

    def _call_soon(self, work: Callable[[], None]) -> None:
        self._loop.call_soon(work)

    def on_fork(self) -> None:
        """Called in a child process: the thread that sends is the parent's alone."""
        self._is_forked = True
        self._intake.on_fork(_forked())

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
        hurry: Callable[[SharedPromise], None],
        call_soon: Callable[[Callable[[], None]], None],
        *arguments: Any,
        **options: Any,
    ) -> None:
        self._hurry = hurry
        self._call_soon = call_soon
        super().__init__(*arguments, **options, workers=InlineWorkers())

    def _make_promise(self, partition: TopicPartition) -> BatchPromise:
        return SharedPromise(partition, self._hurry)

    def _schedule(self, work: Callable[[], None]) -> None:
        self._call_soon(work)


class _ThreadWaiting:
    """How a thread waits for what a record needs (`intake.Waiting`)."""

    def __init__(self, core: ProducerCore, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._core = core
        self._run = run

    async def wait_for_topic(self, topic: str) -> TopicTarget[BatchPromise]:
        found: TopicTarget[BatchPromise] = self._run(self._core.learn(topic))
        return found

    async def wait_for_room(self, size_bytes: int, deadline: float) -> None:
        self._run(self._core.wait_for_room(size_bytes, deadline))

    async def let_others_go_on(self) -> None:
        """The loop has a thread of its own."""

    async def look_up(self, work: Callable[[], object]) -> None:
        work()


def _forked() -> ClosedClientError:
    return ClosedClientError(
        "this producer was made before the process was forked; make a new one in the child"
    )
