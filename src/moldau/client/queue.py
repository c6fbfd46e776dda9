"""The queue for asyncio. `blocking_queue.Queue` is the same for threads.

Answers for the face: jobs one by one, by iteration and in batches. The work is `QueueCore`'s.
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
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from moldau.client.closed_at_exit import ClosedAtExit
from moldau.client.queue_core import QueueCore
from moldau.client.queue_jobs import AsyncBlock, AsyncJob, AsyncJobBatch
from moldau.client.rules.acquired_records import AcquiredRecord
from moldau.client.rules.arguments import require_function, require_kind
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.deserializing import (
    GivenDeserializer,
    deserialize_record,
    require_deserializers,
)
from moldau.client.rules.queue_machine import QueueSettings
from moldau.client.rules.subscription import subscribe_to
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

    def make_core(
        self,
        bootstrap: str,
        keywords: Mapping[str, object],
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> QueueCore:
        require_kind(self.group, str, "group", "its name, like 'billing'")
        require_deserializers(self.key_deserializer, self.value_deserializer)
        listener = self.on_unacknowledged
        require_function(listener, "on_unacknowledged", example="lambda record, error: …")
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

    async def deserialize(self, core: QueueCore, acquired: AcquiredRecord, look_up: LookUp) -> None:
        """In the taker's own thread or task. A record that cannot be read is released."""
        if self.key_deserializer is None and self.value_deserializer is None:
            return
        while True:
            try:
                self._deserialize(core, acquired)
            except LookUpNeededError as needed:
                try:
                    await look_up(needed.look_up)
                except BaseException:
                    core.finish(acquired, AcknowledgeType.RELEASE, None)
                    raise
            else:
                return

    def _deserialize(self, core: QueueCore, acquired: AcquiredRecord) -> None:
        record = acquired.record
        try:
            read = deserialize_record(record, self.key_deserializer, self.value_deserializer)
        except LookUpNeededError:
            raise
        except Exception as error:
            core.finish(acquired, AcknowledgeType.RELEASE, None)
            raise RecordDeserializationError(
                f"{acquired.describe()} cannot be deserialized: {error}; it was released, and is "
                "delivered again as long as the group's delivery limit allows",
                TopicPartition(record.topic, record.partition),
                record.offset,
            ) from error
        acquired.record = read

    async def deserialize_all(
        self, core: QueueCore, taken: Sequence[AcquiredRecord], look_up: LookUp
    ) -> list[AcquiredRecord]:
        """Those that can be read; raises what is wrong with the others if that are all."""
        if self.key_deserializer is None and self.value_deserializer is None:
            return list(taken)
        read: list[AcquiredRecord] = []
        failures: list[RecordDeserializationError] = []
        for index, one in enumerate(taken):
            try:
                await self.deserialize(core, one, look_up)
            except RecordDeserializationError as error:
                failures.append(error)
            except BaseException:
                for other in (*read, *taken[index + 1 :]):
                    core.finish(other, AcknowledgeType.RELEASE, None)
                raise
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
        self._core = self._arguments.make_core(
            bootstrap, options, network=network, clock=clock, random=random
        )

    async def close(self, timeout_seconds: float = QUEUE_CLOSE_SECONDS) -> None:
        """Tell the brokers all that was said of records, release those that were not finished,
        leave the group. A second call does nothing."""
        await self._core.close(timeout_seconds)

    def next(self, timeout: float | None = None) -> Coming[AsyncJob]:
        """The next job: `async with queue.next() as job:`, or `job = await queue.next()`.

        Waits for it, for so many seconds at most if told; raises QueueEmptyError then.
        """
        return Coming(lambda: self.take(timeout))

    async def take(self, timeout: float | None = None) -> AsyncJob:  # noqa: ASYNC109 as `next`
        """The next job; who takes it says what became of it."""
        taken = await self._core.take(1, timeout)
        if not taken:
            raise self._arguments.nothing_came(timeout)
        return await self._make_job(taken[0])

    def next_batch(
        self, max_records: int = 500, timeout: float | None = None
    ) -> Coming[AsyncJobBatch]:
        """The next jobs, as many as there are, at least one: `async with queue.next_batch(100) as
        jobs:`.

        Waits for the first one, for so many seconds at most if told; the batch is empty then.
        """
        require_batch_size(max_records)
        return Coming(lambda: self.take_batch(max_records, timeout))

    async def take_batch(
        self,
        max_records: int = 500,
        timeout: float | None = None,  # noqa: ASYNC109 as `next_batch`
    ) -> AsyncJobBatch:
        """The next jobs; who takes them says what became of each."""
        require_batch_size(max_records)
        taken = await self._core.take(max_records, timeout)
        read = await self._arguments.deserialize_all(self._core, taken, _look_up_elsewhere)
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

    async def _make_job(self, acquired: AcquiredRecord) -> AsyncJob:
        await self._arguments.deserialize(self._core, acquired, _look_up_elsewhere)
        return AsyncJob(self._core, acquired, confirms=self._arguments.confirm)


async def _look_up_elsewhere(work: Callable[[], object]) -> None:
    await asyncio.to_thread(work)


class Coming(Generic[B]):
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
