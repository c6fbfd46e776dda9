"""The queue: `AsyncQueue`, and `Queue` for threads. Jobs one by one, by iteration, in batches.

The work is the share consumer's. With `Queue` it runs on a loop in a thread of its own. Taking a
record that is there, and acknowledging one, happen in the caller's own thread; the loop fetches,
acknowledges and keeps the membership alive meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from moldau.client.blocking_face import ClosedAtExit, LoopThread, run_now, watch
from moldau.client.consumer.rules.fetch_buffer import (
    ConsumerRecord,
    GivenDeserializer,
    deserialize_record,
    require_deserializers,
)
from moldau.client.consumer.rules.subscription_state import subscribe_to
from moldau.client.queue.jobs import AsyncBlock, AsyncJob, AsyncJobBatch, Job, JobBatch
from moldau.client.queue.rules.in_flight import InFlightRecord
from moldau.client.queue.rules.share_consumer import ShareConsumerSettings
from moldau.client.queue.share_consumer import ShareConsumer
from moldau.client.rules.arguments import require_function, require_kind
from moldau.clock import Clock
from moldau.config.client_options import QueueOptions
from moldau.errors import (
    ClosedClientError,
    ConfigurationError,
    LookUpNeededError,
    QueueEmptyError,
    RecordDeserializationError,
)
from moldau.model import AcknowledgeType, TopicPartition
from moldau.net.port import Network

_log = logging.getLogger("moldau.queue")

B = TypeVar("B", bound=AsyncBlock)

QUEUE_CLOSE_SECONDS: Final = 30.0

AcknowledgementListener: TypeAlias = Callable[[ConsumerRecord, Exception], object]
"""Hears of records that were accepted or rejected without the broker's knowing."""

LookUp: TypeAlias = Callable[[Callable[[], object]], Awaitable[None]]
"""Does what a deserializer needs and may take a while, where that holds up nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueArguments:
    """What a queue was given beside the address."""

    group: str
    topic: str | Collection[str]
    confirm: bool = False
    key_deserializer: GivenDeserializer | None = None
    value_deserializer: GivenDeserializer | None = None
    on_unacknowledged: AcknowledgementListener | None = None

    def make_share_consumer(
        self,
        bootstrap: str,
        keywords: Mapping[str, object],
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> ShareConsumer:
        require_kind(self.group, str, "group", "its name, like 'billing'")
        require_deserializers(self.key_deserializer, self.value_deserializer)
        listener = self.on_unacknowledged
        require_function(listener, "on_unacknowledged", example="lambda record, error: …")
        if not self.group:
            raise ConfigurationError("a queue needs the name of its share group: group=...")
        selection = subscribe_to(self.topic, None, None, with_internal=False)
        if selection.is_empty:
            raise ConfigurationError("a queue needs at least one topic: topic=...")
        settings = ShareConsumerSettings(
            group_id=self.group, topics=selection.names, options=QueueOptions.read(keywords)
        )
        return ShareConsumer(
            bootstrap,
            settings,
            on_unacknowledged=self._report,
            network=network,
            clock=clock,
            random=random,
        )

    def _report(self, acquired: InFlightRecord, error: Exception) -> None:
        if self.on_unacknowledged is None:
            _log.warning("%s", error)
            return
        try:
            self.on_unacknowledged(acquired.record, error)
        except Exception:  # noqa: BLE001 it is the program's, which nobody waits for
            _log.exception("the function for records without acknowledgement has failed")

    async def deserialize(
        self, share_consumer: ShareConsumer, acquired: InFlightRecord, look_up: LookUp
    ) -> None:
        """In the thread or task that takes it. A record that cannot be read is released."""
        if self.key_deserializer is None and self.value_deserializer is None:
            return
        while True:
            try:
                self._deserialize(share_consumer, acquired)
            except LookUpNeededError as needed:
                try:
                    await look_up(needed.look_up)
                except BaseException:
                    share_consumer.acknowledge_record(acquired, AcknowledgeType.RELEASE, None)
                    raise
            else:
                return

    def _deserialize(self, share_consumer: ShareConsumer, acquired: InFlightRecord) -> None:
        record = acquired.record
        try:
            read = deserialize_record(record, self.key_deserializer, self.value_deserializer)
        except LookUpNeededError:
            raise
        except Exception as error:
            share_consumer.acknowledge_record(acquired, AcknowledgeType.RELEASE, None)
            raise RecordDeserializationError(
                f"{acquired.describe()} cannot be deserialized: {error}; it was released, and is "
                "delivered again as long as the group's delivery limit allows",
                TopicPartition(record.topic, record.partition),
                record.offset,
            ) from error
        acquired.record = read

    async def deserialize_all(
        self, share_consumer: ShareConsumer, taken: Sequence[InFlightRecord], look_up: LookUp
    ) -> list[InFlightRecord]:
        """Those that can be read; raises what is wrong with the others if that are all."""
        if self.key_deserializer is None and self.value_deserializer is None:
            return list(taken)
        read: list[InFlightRecord] = []
        failures: list[RecordDeserializationError] = []
        for index, one in enumerate(taken):
            try:
                await self.deserialize(share_consumer, one, look_up)
            except RecordDeserializationError as error:
                failures.append(error)
            except BaseException:
                for other in (*read, *taken[index + 1 :]):
                    share_consumer.acknowledge_record(other, AcknowledgeType.RELEASE, None)
                raise
            else:
                read.append(one)
        if failures and not read:
            raise failures[0]
        for failure in failures:
            _log.warning("%s", failure)
        return read

    def explain_empty(self, timeout: float | None) -> QueueEmptyError:
        topics = self.topic if isinstance(self.topic, str) else ", ".join(sorted(self.topic))
        return QueueEmptyError(
            f"no record of {topics} came within {timeout or 0:g} seconds for group {self.group!r}"
        )


def require_batch_size(max_records: int) -> None:
    if max_records < 1:
        raise ConfigurationError(f"a batch of {max_records} records is none")


class AsyncQueue(ClosedAtExit):
    """Takes records of a topic as jobs, with others of its share group; used by the tasks of one
    loop, as many as one likes.

        async with AsyncQueue("127.0.0.1:9092", group="workers", topic="orders") as queue:
            async for job in queue: ...

    Arguments and options are those of `Queue`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str,
        topic: str | Collection[str],
        confirm: bool = False,
        key_deserializer: GivenDeserializer | None = None,
        value_deserializer: GivenDeserializer | None = None,
        on_unacknowledged: AcknowledgementListener | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: object,
    ) -> None:
        self._arguments = QueueArguments(
            group=group,
            topic=topic,
            confirm=confirm,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_unacknowledged=on_unacknowledged,
        )
        self._share_consumer = self._arguments.make_share_consumer(
            bootstrap, options, network=network, clock=clock, random=random
        )

    async def close(self, timeout_seconds: float = QUEUE_CLOSE_SECONDS) -> None:
        """Tell the brokers all that was said of records, release those that were not finished,
        leave the group. A second call does nothing."""
        await self._share_consumer.close(timeout_seconds)

    def next(self, timeout: float | None = None) -> PendingJobs[AsyncJob]:
        """The next job: `async with queue.next() as job:`, or `job = await queue.next()`.

        Waits for it, for so many seconds at most if told; raises QueueEmptyError then.
        """
        return PendingJobs(lambda: self.take(timeout))

    async def take(self, timeout: float | None = None) -> AsyncJob:  # noqa: ASYNC109 as `next`
        """The next job; who takes it says what became of it."""
        taken = await self._share_consumer.take_records(1, timeout)
        if not taken:
            raise self._arguments.explain_empty(timeout)
        return await self._make_job(taken[0])

    def next_batch(
        self, max_records: int = 500, timeout: float | None = None
    ) -> PendingJobs[AsyncJobBatch]:
        """The next jobs, as many as there are, at least one: `async with queue.next_batch(100) as
        jobs:`.

        Waits for the first one, for so many seconds at most if told; the batch is empty then.
        """
        require_batch_size(max_records)
        return PendingJobs(lambda: self.take_batch(max_records, timeout))

    async def take_batch(
        self,
        max_records: int = 500,
        timeout: float | None = None,  # noqa: ASYNC109 as `next_batch`
    ) -> AsyncJobBatch:
        """The next jobs; who takes them says what became of each."""
        require_batch_size(max_records)
        taken = await self._share_consumer.take_records(max_records, timeout)
        read = await self._arguments.deserialize_all(
            self._share_consumer, taken, _look_up_elsewhere
        )
        confirms = self._arguments.confirm
        return AsyncJobBatch(
            [AsyncJob(self._share_consumer, one, confirms=confirms) for one in read]
        )

    async def __aiter__(self) -> AsyncIterator[AsyncJob]:
        """Job after job, until the queue is closed. A job is accepted when the loop comes for the
        next one, and released when the loop is left, unless it was finished before."""
        while True:
            try:
                job = await self.take()
            except ClosedClientError:
                return
            job.keep()
            try:
                yield job
            except GeneratorExit as error:
                job._give_back(error)
                raise
            if job._must_accept:
                await job.accept()

    async def _make_job(self, acquired: InFlightRecord) -> AsyncJob:
        await self._arguments.deserialize(self._share_consumer, acquired, _look_up_elsewhere)
        return AsyncJob(self._share_consumer, acquired, confirms=self._arguments.confirm)


async def _look_up_elsewhere(work: Callable[[], object]) -> None:
    await asyncio.to_thread(work)


class PendingJobs(Generic[B]):
    """Jobs that are not there yet: to be awaited, or to be used with `async with`."""

    def __init__(self, take: Callable[[], Coroutine[Any, Any, B]]) -> None:
        self._take = take
        self._taken: B | None = None

    def __await__(self) -> Generator[Any, Any, B]:
        return self._take().__await__()

    async def __aenter__(self) -> B:
        self._taken = await self
        return await self._taken.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._taken is not None:
            await self._taken.__aexit__(kind, error, traceback)


# For threads


class Queue:
    """Takes records of a topic as jobs, with others of its share group. Safe from any thread, and
    as many threads may take from one queue as one likes; `with` closes it.

        with Queue("127.0.0.1:9092", group="workers", topic="orders") as queue:
            while True:
                with queue.next() as job:
                    work_on(job.record)

    Every record goes to one taker at a time, whatever partition it is in, and is locked for it. A
    block that ends accepts its job; an exception that leaves it releases the job, which is then
    delivered again, to anybody. So is the job of a taker that has died, when the lock is over. The
    lock is renewed as long as the block runs. Work may therefore be done twice, but is never lost.

    `group` is the name of the share group, `topic` a name or several. Where a new group begins, for
    how long records are locked and how often they are delivered is set for the group at the broker:
    `share.auto.offset.reset`, `share.record.lock.duration.ms`, `share.delivery.count.limit`.

    `confirm=True` waits, at the end of each block, until the broker knows that the job was
    accepted, and raises AcknowledgementError if the broker does not take it. Without it the word
    goes out in the background, together with others. `on_unacknowledged`, a function of a record
    and an exception, hears of records whose word did not arrive; it is called in the queue's own
    thread. Without it that is a warning in the log.

    `key_deserializer` and `value_deserializer` are functions of bytes. Other keyword arguments are
    Kafka's options with underscores for dots: `max_poll_records=100`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str,
        topic: str | Collection[str],
        confirm: bool = False,
        key_deserializer: GivenDeserializer | None = None,
        value_deserializer: GivenDeserializer | None = None,
        on_unacknowledged: AcknowledgementListener | None = None,
        **options: object,
    ) -> None:
        self._arguments = QueueArguments(
            group=group,
            topic=topic,
            confirm=confirm,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_unacknowledged=on_unacknowledged,
        )
        self._share_consumer = self._arguments.make_share_consumer(bootstrap, options)
        self._loop = LoopThread("moldau-queue")
        self._is_closing = self._is_forked = False
        watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout_seconds: float | None = None) -> None:
        """Tell the brokers all that was said of records, release those that were not finished,
        leave the group. A second call does nothing."""
        if self._is_closing:
            return
        self._require_other_thread()
        self._is_closing = True
        seconds = QUEUE_CLOSE_SECONDS if timeout_seconds is None else timeout_seconds
        try:
            self._loop.run(self._share_consumer.close(seconds))
        finally:
            self._loop.close()

    def next(self, timeout: float | None = None) -> Job:
        """The next job: `with queue.next() as job:`.

        Waits for it, for so many seconds at most if told; raises QueueEmptyError then.
        """
        taken = self._take(1, timeout)
        if not taken:
            raise self._arguments.explain_empty(timeout)
        return self._make_job(taken[0])

    def next_batch(self, max_records: int = 500, timeout: float | None = None) -> JobBatch:
        """The next jobs, as many as there are, at least one: `with queue.next_batch(100) as jobs:`.

        Waits for the first one, for so many seconds at most if told; the batch is empty then.
        """
        require_batch_size(max_records)
        taken = self._take(max_records, timeout)
        read = run_now(self._arguments.deserialize_all(self._share_consumer, taken, _look_up_here))
        confirms = self._arguments.confirm
        return JobBatch([Job(self._share_consumer, one, confirms=confirms) for one in read])

    def __iter__(self) -> Iterator[Job]:
        """Job after job, until the queue is closed. A job is accepted when the loop comes for the
        next one, and released when the loop is left, unless it was finished before."""
        while True:
            try:
                job = self.next()
            except ClosedClientError:
                return
            job.keep()
            try:
                yield job
            except GeneratorExit as error:
                job._give_back(error)
                raise
            if job._must_accept:
                job.accept()

    def on_fork(self) -> None:
        """Called in a child process: the thread and the membership are the parent's alone."""
        self._is_closing = self._is_forked = True
        self._share_consumer.on_fork()

    def _take(self, limit: int, timeout: float | None) -> list[InFlightRecord]:
        if not self._is_closing:
            taken = self._share_consumer.take_ready_records(limit)
            if taken:
                return taken
        if self._is_forked or not self._loop.is_open:
            raise ClosedClientError("the queue is closed, or its process was forked")
        self._require_other_thread()
        return self._loop.run(self._share_consumer.take_records(limit, timeout))

    def _require_other_thread(self) -> None:
        if self._loop.is_current:
            raise RuntimeError("on_unacknowledged cannot wait for the queue that calls it")

    def _make_job(self, acquired: InFlightRecord) -> Job:
        run_now(self._arguments.deserialize(self._share_consumer, acquired, _look_up_here))
        return Job(self._share_consumer, acquired, confirms=self._arguments.confirm)


async def _look_up_here(work: Callable[[], object]) -> None:
    work()
