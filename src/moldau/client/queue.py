"""The queue for asyncio. `blocking_queue.Queue` is the same for threads.

Answers for the face: jobs one by one, by iteration and in batches. The work is `QueueCore`'s.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from moldau.client.queue_core import QueueCore
from moldau.client.queue_jobs import AsyncJob, AsyncJobBatch
from moldau.client.rules.acquired_records import AcquiredRecord
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.delivery import Deserializer
from moldau.client.rules.queue_machine import QueueSettings
from moldau.client.rules.subscription import subscribe_to
from moldau.clock import Clock
from moldau.config.client_queue_options import QueueOptions
from moldau.errors import (
    ClosedClientError,
    ConfigurationError,
    QueueEmptyError,
    RecordDeserializationError,
)
from moldau.model import TopicPartition
from moldau.model.acknowledge_types import AcknowledgeType
from moldau.net.port import Network

_log = logging.getLogger("moldau.queue")

QUEUE_CLOSE_SECONDS: Final = 30.0

AcknowledgementListener: TypeAlias = Callable[[ConsumerRecord, Exception], object]
"""Hears of records that were accepted or rejected without the broker's knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueArguments:
    """What a queue was given beside the address."""

    group: str
    topic: str | Collection[str]
    confirm: bool = False
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    on_unacknowledged: AcknowledgementListener | None = None

    def make_core(
        self,
        bootstrap: str,
        keywords: Mapping[str, object],
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> QueueCore:
        if not self.group:
            raise ConfigurationError("a queue needs the name of its share group: group=...")
        selection = subscribe_to(self.topic, None, None, with_internal=False)
        if selection.is_empty:
            raise ConfigurationError("a queue needs at least one topic: topic=...")
        settings = QueueSettings(
            group_id=self.group, topics=selection.names, options=QueueOptions.read(keywords)
        )
        return QueueCore(
            bootstrap,
            settings,
            on_unacknowledged=self._report,
            network=network,
            clock=clock,
            random=random,
        )

    def _report(self, acquired: AcquiredRecord, error: Exception) -> None:
        if self.on_unacknowledged is None:
            _log.warning("%s", error)
            return
        try:
            self.on_unacknowledged(acquired.record, error)
        except Exception:  # noqa: BLE001 it is the program's, which nobody waits for
            _log.exception("the function for records without acknowledgement has failed")

    def deserialize(self, core: QueueCore, acquired: AcquiredRecord) -> None:
        """In the taker's own thread or task. A record that cannot be read is released."""
        if self.key_deserializer is None and self.value_deserializer is None:
            return
        record = acquired.record
        key: object = record.key
        value: object = record.value
        try:
            if self.key_deserializer is not None and record.key is not None:
                key = self.key_deserializer(record.key)
            if self.value_deserializer is not None and record.value is not None:
                value = self.value_deserializer(record.value)
        except Exception as error:
            core.finish(acquired, AcknowledgeType.RELEASE, None)
            raise RecordDeserializationError(
                f"{acquired.describe()} cannot be deserialized: {error}; it was released, and is "
                "delivered again as long as the group's delivery limit allows",
                TopicPartition(record.topic, record.partition),
                record.offset,
            ) from error
        acquired.record = record._replace(key=key, value=value)  # type: ignore[arg-type]

    def deserialize_all(
        self, core: QueueCore, taken: Sequence[AcquiredRecord]
    ) -> list[AcquiredRecord]:
        """Those that can be read; raises what is wrong with the others if that are all."""
        read: list[AcquiredRecord] = []
        failures: list[RecordDeserializationError] = []
        for one in taken:
            try:
                self.deserialize(core, one)
            except RecordDeserializationError as error:
                failures.append(error)
            else:
                read.append(one)
        if failures and not read:
            raise failures[0]
        for failure in failures:
            _log.warning("%s", failure)
        return read

    def nothing_came(self, timeout: float | None) -> QueueEmptyError:
        topics = self.topic if isinstance(self.topic, str) else ", ".join(sorted(self.topic))
        return QueueEmptyError(
            f"no record of {topics} came within {timeout or 0:g} seconds for group {self.group!r}"
        )


def require_batch_size(max_records: int) -> None:
    if max_records < 1:
        raise ConfigurationError(f"a batch of {max_records} records is none")


class AsyncQueue:
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
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
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
        self._core = self._arguments.make_core(
            bootstrap, options, network=network, clock=clock, random=random
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, timeout_seconds: float = QUEUE_CLOSE_SECONDS) -> None:
        """Tell the brokers all that was said of records, release those that were not finished,
        leave the group. A second call does nothing."""
        await self._core.close(timeout_seconds)

    def next(self, timeout: float | None = None) -> ComingJob:
        """The next job: `async with queue.next() as job:`, or `job = await queue.next()`.

        Waits for it, for so many seconds at most if told; raises QueueEmptyError then.
        """
        return ComingJob(self, timeout)

    async def take(self, timeout: float | None = None) -> AsyncJob:  # noqa: ASYNC109 as `next`
        """The next job; who takes it says what became of it."""
        taken = await self._core.take(1, timeout)
        if not taken:
            raise self._arguments.nothing_came(timeout)
        return self._make_job(taken[0])

    def next_batch(self, max_records: int = 500, timeout: float | None = None) -> ComingJobBatch:
        """The next jobs, as many as there are, at least one: `async with queue.next_batch(100) as
        jobs:`.

        Waits for the first one, for so many seconds at most if told; the batch is empty then.
        """
        require_batch_size(max_records)
        return ComingJobBatch(self, max_records, timeout)

    async def take_batch(
        self,
        max_records: int = 500,
        timeout: float | None = None,  # noqa: ASYNC109 as `next_batch`
    ) -> AsyncJobBatch:
        """The next jobs; who takes them says what became of each."""
        require_batch_size(max_records)
        taken = await self._core.take(max_records, timeout)
        read = self._arguments.deserialize_all(self._core, taken)
        confirms = self._arguments.confirm
        return AsyncJobBatch([AsyncJob(self._core, one, confirms=confirms) for one in read])

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

    def _make_job(self, acquired: AcquiredRecord) -> AsyncJob:
        self._arguments.deserialize(self._core, acquired)
        return AsyncJob(self._core, acquired, confirms=self._arguments.confirm)


class ComingJob:
    """A job that is not there yet: to be awaited, or to be used with `async with`."""

    def __init__(self, queue: AsyncQueue, timeout: float | None) -> None:
        self._queue = queue
        self._timeout = timeout
        self._job: AsyncJob | None = None

    def __await__(self) -> Generator[Any, Any, AsyncJob]:
        return self._queue.take(self._timeout).__await__()

    async def __aenter__(self) -> AsyncJob:
        self._job = await self
        return await self._job.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._job is not None:
            await self._job.__aexit__(kind, error, traceback)


class ComingJobBatch:
    """A batch that is not there yet: to be awaited, or to be used with `async with`."""

    def __init__(self, queue: AsyncQueue, max_records: int, timeout: float | None) -> None:
        self._queue = queue
        self._max_records = max_records
        self._timeout = timeout
        self._batch: AsyncJobBatch | None = None

    def __await__(self) -> Generator[Any, Any, AsyncJobBatch]:
        return self._queue.take_batch(self._max_records, self._timeout).__await__()

    async def __aenter__(self) -> AsyncJobBatch:
        self._batch = await self
        return await self._batch.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._batch is not None:
            await self._batch.__aexit__(kind, error, traceback)
