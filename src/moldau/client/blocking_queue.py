"""The queue for threads. The core runs on a loop in a thread of its own.

Taking a record that is there, and saying what became of one, happen in the taker's own thread; the
loop fetches, tells and keeps the membership alive meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Self

from moldau.client.loop_thread import LoopThread, run_now, watch
from moldau.client.queue import (
    QUEUE_CLOSE_SECONDS,
    AcknowledgementListener,
    QueueArguments,
    require_batch_size,
)
from moldau.client.queue_jobs import Job, JobBatch
from moldau.client.rules.acquired_records import AcquiredRecord
from moldau.client.rules.deserializing import GivenDeserializer
from moldau.errors import ClosedClientError


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
        self._core = self._arguments.make_core(bootstrap, options)
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
            self._loop.run(self._core.close(seconds))
        finally:
            self._loop.close()

    def next(self, timeout: float | None = None) -> Job:
        """The next job: `with queue.next() as job:`.

        Waits for it, for so many seconds at most if told; raises QueueEmptyError then.
        """
        taken = self._take(1, timeout)
        if not taken:
            raise self._arguments.nothing_came(timeout)
        return self._make_job(taken[0])

    def next_batch(self, max_records: int = 500, timeout: float | None = None) -> JobBatch:
        """The next jobs, as many as there are, at least one: `with queue.next_batch(100) as jobs:`.

        Waits for the first one, for so many seconds at most if told; the batch is empty then.
        """
        require_batch_size(max_records)
        taken = self._take(max_records, timeout)
        read = run_now(self._arguments.deserialize_all(self._core, taken, _look_up_here))
        confirms = self._arguments.confirm
        return JobBatch([Job(self._core, one, confirms=confirms) for one in read])

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
        self._core.on_fork()

    def _take(self, limit: int, timeout: float | None) -> list[AcquiredRecord]:
        if not self._is_closing:
            taken = self._core.take_nowait(limit)
            if taken:
                return taken
        if self._is_forked or not self._loop.is_open:
            raise ClosedClientError("the queue is closed, or its process was forked")
        self._require_other_thread()
        return self._loop.run(self._core.take(limit, timeout))

    def _require_other_thread(self) -> None:
        if self._loop.is_current:
            raise RuntimeError("on_unacknowledged cannot wait for the queue that calls it")

    def _make_job(self, acquired: AcquiredRecord) -> Job:
        run_now(self._arguments.deserialize(self._core, acquired, _look_up_here))
        return Job(self._core, acquired, confirms=self._arguments.confirm)


async def _look_up_here(work: Callable[[], object]) -> None:
    work()
