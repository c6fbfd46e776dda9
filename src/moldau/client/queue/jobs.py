"""Jobs: records of a queue in the hands of the program, and how it says what became of them.

The same for tasks and for threads, but for how one waits: `AsyncJob` and `Job`, `AsyncJobBatch` and
`JobBatch`. A job that is used as a context manager is accepted when its block ends, released when
an exception leaves the block, and its lock is renewed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Generic, Self, TypeVar, overload

from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.queue.rules.in_flight import InFlightRecord, InFlightState
from moldau.client.queue.share_consumer import OnAcknowledged, ShareConsumer
from moldau.errors import AcknowledgementError, ClientError, OperationTimeoutError
from moldau.model import AcknowledgeType

_log = logging.getLogger("moldau.queue")


class _Kept(ABC):
    """What a block is made around: a job, or several."""

    __slots__ = ()

    @abstractmethod
    def keep(self) -> None: ...

    @abstractmethod
    def _give_back(self, error: BaseException) -> None: ...


class AsyncBlock(_Kept):
    """`async with`: what has no word of its own is accepted when the block ends, and released when
    an exception leaves it."""

    __slots__ = ()

    @abstractmethod
    async def _accept_rest(self) -> None: ...

    async def __aenter__(self) -> Self:
        self.keep()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._give_back(error)
        else:
            await self._accept_rest()


class _Block(_Kept):
    """`with`: as `AsyncBlock`."""

    __slots__ = ()

    @abstractmethod
    def _accept_rest(self) -> None: ...

    def __enter__(self) -> Self:
        self.keep()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._give_back(error)
        else:
            self._accept_rest()


class JobState:
    """What jobs of both kinds know. Made by a queue."""

    __slots__ = ("_acquired", "_confirms", "_share_consumer")

    def __init__(
        self, share_consumer: ShareConsumer, acquired: InFlightRecord, *, confirms: bool
    ) -> None:
        self._share_consumer = share_consumer
        self._acquired = acquired
        self._confirms = confirms  # unless told otherwise, what became of it is waited for

    @property
    def record(self) -> ConsumerRecord:
        """The record; with deserializers, key and value are what these made of the bytes."""
        return self._acquired.record

    @property
    def delivery_count(self) -> int:
        """How often the record has been delivered, to anybody, this time included: 1 if it is
        new."""
        return self._acquired.delivery_count

    @property
    def is_finished(self) -> bool:
        """Whether it was accepted, released or rejected, or its lock is known to be gone."""
        return self._acquired.state is not InFlightState.RUNNING

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._acquired.describe()}, "
            f"delivery {self.delivery_count}, {self._acquired.state.name.lower()}>"
        )

    def keep(self) -> None:
        """Have the lock renewed until the job is finished, as in a block."""
        self._acquired.is_kept = True

    def _finish(self, kind: AcknowledgeType, done: OnAcknowledged | None = None) -> None:
        self._share_consumer.acknowledge_record(self._acquired, kind, done)

    def _give_back(self, error: BaseException) -> None:
        """An exception has left the block: somebody will get the record again."""
        if self._acquired.kind is not None:
            return
        try:
            self._finish(AcknowledgeType.RELEASE)
        except ClientError as failure:
            _log.warning("could not release a record: %s", failure)
        else:
            _log.warning(
                "%s was released after %r: it is delivered again, as long as the group's "
                "delivery limit allows (this was delivery %d)",
                self._acquired.describe(),
                error,
                self.delivery_count,
            )

    @property
    def _must_accept(self) -> bool:
        """At the end of a block; raises what is known to have gone wrong by `_finish`."""
        return self._acquired.kind is None

    def _too_late(self) -> OperationTimeoutError:
        seconds = self._share_consumer.options.default_api_timeout_ms / 1000
        return OperationTimeoutError(
            f"{self._acquired.describe()}: the broker did not confirm within {seconds:g} seconds "
            "what became of it; it may be delivered again"
        )


class AsyncJob(JobState, AsyncBlock):
    """A record of a queue, locked for this program until it says what became of it."""

    async def _accept_rest(self) -> None:
        if self._must_accept:
            await self.accept()

    async def accept(self, *, wait: bool | None = None) -> None:
        """Dealt with: never delivered again.

        With `wait` this is over when the broker knows (the default is the queue's `confirm`), and
        raises AcknowledgementError if it does not take it. Raises that in any case if the lock is
        known to be gone.
        """
        await self._acknowledge(AcknowledgeType.ACCEPT, wait)

    async def release(self, *, wait: bool | None = None) -> None:
        """Not dealt with: delivered again, to anybody, unless that was done too often already."""
        await self._acknowledge(AcknowledgeType.RELEASE, wait)

    async def reject(self, *, wait: bool | None = None) -> None:
        """Cannot be dealt with by anybody: never delivered again."""
        await self._acknowledge(AcknowledgeType.REJECT, wait)

    async def renew(self) -> None:
        """Have the lock begin anew; in a block that is done without asking.

        Raises AcknowledgementError if it is gone, and UnsupportedByBrokerError where the broker is
        too old.
        """
        answer = _Answer()
        self._share_consumer.renew_lock(self._acquired, answer.done)
        await answer.wait(self)

    async def _acknowledge(self, kind: AcknowledgeType, wait: bool | None) -> None:
        if not (self._confirms if wait is None else wait):
            self._finish(kind)
            return
        answer = _Answer()
        self._finish(kind, answer.done)
        await answer.wait(self)


class Job(JobState, _Block):
    """A record of a queue, locked for this program until it says what became of it."""

    def _accept_rest(self) -> None:
        if self._must_accept:
            self.accept()

    def accept(self, *, wait: bool | None = None) -> None:
        """Dealt with: never delivered again.

        With `wait` this is over when the broker knows (the default is the queue's `confirm`), and
        raises AcknowledgementError if it does not take it. Raises that in any case if the lock is
        known to be gone.
        """
        self._acknowledge(AcknowledgeType.ACCEPT, wait)

    def release(self, *, wait: bool | None = None) -> None:
        """Not dealt with: delivered again, to anybody, unless that was done too often already."""
        self._acknowledge(AcknowledgeType.RELEASE, wait)

    def reject(self, *, wait: bool | None = None) -> None:
        """Cannot be dealt with by anybody: never delivered again."""
        self._acknowledge(AcknowledgeType.REJECT, wait)

    def renew(self) -> None:
        """Have the lock begin anew; in a block that is done without asking.

        Raises AcknowledgementError if it is gone, and UnsupportedByBrokerError where the broker is
        too old.
        """
        answer: Future[None] = Future()
        self._share_consumer.renew_lock(self._acquired, _completion_of(answer))
        self._wait_for(answer, self._deadline())

    def _acknowledge(self, kind: AcknowledgeType, wait: bool | None) -> None:
        if not (self._confirms if wait is None else wait):
            self._finish(kind)
            return
        answer: Future[None] = Future()
        self._finish(kind, _completion_of(answer))
        self._wait_for(answer, self._deadline())

    def _deadline(self) -> float:
        return (
            self._share_consumer.clock.monotonic()
            + self._share_consumer.options.default_api_timeout_ms / 1000
        )

    def _wait_for(self, answer: Future[None], deadline: float) -> None:
        try:
            answer.result(max(0.0, deadline - self._share_consumer.clock.monotonic()))
        except TimeoutError:
            if answer.done():
                raise
            raise self._too_late() from None


J = TypeVar("J", bound=JobState)


class JobSequence(Sequence[J], Generic[J]):
    """Jobs that were taken at once, in the order of their coming."""

    def __init__(self, jobs: Sequence[J]) -> None:
        self._jobs = jobs

    @property
    def records(self) -> list[ConsumerRecord]:
        """The records of all."""
        return [job.record for job in self._jobs]

    @overload
    def __getitem__(self, index: int) -> J: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[J]: ...

    def __getitem__(self, index: int | slice) -> J | Sequence[J]:
        return self._jobs[index]

    def __iter__(self) -> Iterator[J]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"

    def keep(self) -> None:
        """Have the locks renewed until the jobs are finished, as in a block."""
        for job in self._jobs:
            job.keep()

    def _give_back(self, error: BaseException) -> None:
        for job in self._jobs:
            job._give_back(error)


class AsyncJobBatch(JobSequence[AsyncJob], AsyncBlock):
    """Jobs that were taken at once. `async with` accepts those that have no word of their own when
    the block ends, and releases them when an exception leaves it."""

    async def _accept_rest(self) -> None:
        left = [job.accept() for job in self if job._must_accept]
        results = await asyncio.gather(*left, return_exceptions=True)
        _raise_failures([one for one in results if isinstance(one, BaseException)])


class JobBatch(JobSequence[Job], _Block):
    """Jobs that were taken at once. `with` accepts those that have no word of their own when the
    block ends, and releases them when an exception leaves it."""

    def _accept_rest(self) -> None:
        failures: list[BaseException] = []
        answers: list[tuple[Job, Future[None]]] = []
        for job in self:
            if not job._must_accept:
                continue
            answer: Future[None] = Future()
            try:
                job._finish(
                    AcknowledgeType.ACCEPT, _completion_of(answer) if job._confirms else None
                )
            except ClientError as failure:
                failures.append(failure)
            else:
                answers += [(job, answer)] if job._confirms else []
        deadline = self[0]._deadline() if answers else 0.0  # one for all
        for job, answer in answers:
            try:
                job._wait_for(answer, deadline)
            except ClientError as failure:
                failures.append(failure)
        _raise_failures(failures)


def _raise_failures(failures: Sequence[BaseException]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise AcknowledgementError(
            f"{len(failures)} records may be delivered again; the first: {failures[0]}"
        ) from failures[0]


class _Answer:
    """Of the core, for a task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def done(self, failure: Exception | None) -> None:
        if self._future.done():
            return
        if failure is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(failure)

    async def wait(self, job: JobState) -> None:
        share_consumer = job._share_consumer
        seconds = share_consumer.options.default_api_timeout_ms / 1000
        timer = share_consumer.clock.call_later(seconds, lambda: self.done(job._too_late()))
        try:
            await self._future
        finally:
            timer.cancel()


def _completion_of(answer: Future[None]) -> OnAcknowledged:
    """Of the core, for a thread."""

    def done(failure: Exception | None) -> None:
        if failure is None:
            answer.set_result(None)
        else:
            answer.set_exception(failure)

    return done
