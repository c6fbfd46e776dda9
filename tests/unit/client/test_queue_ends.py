"""A queue whose brokers do not answer: nobody waits without an end, and everybody hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from client.rules.queue_story import QueueStory
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.queue import jobs
from moldau.client.queue.jobs import Job, JobBatch
from moldau.client.queue.queue import Queue, QueueArguments
from moldau.client.queue.rules.in_flight import InFlightRecord
from moldau.errors import AcknowledgementError, ConnectionLostError
from moldau.model import AcknowledgeType
from moldau.simulation.manual_clock import wait_until_idle


class SilentRequests:
    """In the place of `ShareRequests`: no answer ever comes."""

    def perform(self, asked: object) -> None: ...

    async def close(self) -> None: ...


def test_what_was_accepted_and_could_not_be_told_before_the_end_is_reported() -> None:
    heard: list[tuple[int, type[Exception]]] = []

    async def run() -> None:
        arguments = QueueArguments(
            group="g",
            topic="t",
            on_unacknowledged=lambda record, error: heard.append((record.offset, type(error))),
        )
        core = arguments.make_share_consumer("127.0.0.1:1", {})
        silent: Any = SilentRequests()
        core._requests = silent
        story = QueueStory(max_poll_records=3)
        core._machine = story.machine
        story.begin()
        story.receive(10, 3)
        accepted, _ = story.machine.take_ready_records(2, story.now)
        core.acknowledge_record(accepted, AcknowledgeType.ACCEPT, None)
        await core.close(timeout_seconds=0.0)

    asyncio.run(run())
    assert heard == [(10, AcknowledgementError)]


class OneConnection:
    """In the place of a pool and of its only connection."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    def learn_brokers(self, brokers: object) -> None: ...

    async def to_broker(self, broker_id: int) -> OneConnection:
        return self

    async def wait_until_over(self) -> Exception:
        await self.is_over.wait()
        return ConnectionLostError("gone")

    async def close(self) -> None: ...


def test_a_connection_that_ends_while_nothing_is_asked_takes_what_waits_with_it() -> None:
    async def run() -> None:
        core = QueueArguments(group="g", topic="t").make_share_consumer("127.0.0.1:1", {})
        story = QueueStory(max_poll_records=3)
        core._machine = story.machine
        story.begin()
        story.receive(10, 3)
        pool: Any = OneConnection()
        core._requests._pool = pool
        await core._requests._connect(1)
        await core._requests._connect(1)
        assert story.machine.has_ready
        pool.is_over.set()
        await wait_until_idle()
        assert not story.machine.has_ready
        core._requests = cast("Any", SilentRequests())
        await core.close(timeout_seconds=0.0)

    asyncio.run(run())


def test_a_function_that_the_queue_calls_cannot_wait_for_it_for_ever() -> None:
    with Queue("127.0.0.1:1", group="g", topic="t") as queue:

        async def from_inside(call: Callable[[], object]) -> None:
            call()

        for call in (queue.close, queue.next):
            with pytest.raises(RuntimeError, match="cannot wait for the queue"):
                queue._loop.submit(from_inside(call)).result(30)


def test_the_jobs_of_a_batch_wait_for_their_confirmations_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now

    class Unanswered(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            assert timeout is not None
            clock.now += timeout
            raise TimeoutError

    monkeypatch.setattr(jobs, "Future", Unanswered)
    core: Any = SimpleNamespace(
        clock=clock,
        options=SimpleNamespace(default_api_timeout_ms=60_000),
        acknowledge_record=lambda record, kind, done: None,
    )
    batch = JobBatch(
        [
            Job(
                core,
                InFlightRecord(
                    ConsumerRecord("t", 0, offset, 0, b"", b""), (UUID(int=7), 0), 1, 1, 130.0
                ),
                confirms=True,
            )
            for offset in range(5)
        ]
    )
    with pytest.raises(AcknowledgementError, match="5 records may be delivered again"), batch:
        pass
    assert clock.now == 160.0
