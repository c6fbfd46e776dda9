"""A long poll ends with the first record, whenever that comes."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

from moldau.broker.api import RequestContext
from moldau.broker.fetch import FetchSessions
from moldau.broker.handlers import fetch
from moldau.broker.purgatory import DelayedFetch, Purgatory
from moldau.metrics.figures import TopicTraffic
from moldau.model import TopicPartition
from moldau.replication.partition import PartitionRead
from moldau.testing import ManualClock
from moldau.wire.apis import FETCH
from moldau.wire.headers import read_request_header
from moldau.wire.messages import encode_request
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

PARTITION = TopicPartition("clicks", 0)
VERSION = 11


class Records:
    """Bytes that a partition has."""

    length = 100


class GrowingPartition:
    """Empty until `records` is set."""

    records: Records | None = None
    failure: Exception | None = None
    is_leader = True
    traffic = TopicTraffic("clicks")

    def check_epoch(self, current_leader_epoch: int) -> None:
        pass

    def read(self, offset: int, max_bytes: int, **options: object) -> PartitionRead:
        if self.failure is not None:
            raise self.failure
        return PartitionRead(self.records, 0, 0, 0, None, None)


def long_poll() -> memoryview:
    values = {
        "replica_id": -1,
        "max_wait": 60_000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": PARTITION.topic,
                "partitions": [
                    {
                        "partition": PARTITION.partition,
                        "current_leader_epoch": -1,
                        "fetch_offset": 0,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    entity = fit(request_class(FETCH.key, VERSION), values)
    return memoryview(bytearray(encode_request(entity, 1, "test")))[4:]


class Waiting:
    """A long poll that has looked once, and whose task has not begun."""

    def __init__(self) -> None:
        clock = self.clock = ManualClock()
        self.partition = GrowingPartition()
        self.room = Purgatory(clock)
        self.sessions = FetchSessions(lambda: 0, lambda: 1)
        services = SimpleNamespace(
            authorizer=None,
            clock=clock,
            fetch_sessions=self.sessions,
            image=SimpleNamespace(topics_by_id=dict[UUID, object]()),
            options=SimpleNamespace(fetch_max_bytes=1 << 20, replica_selector_class=None),
            partitions=SimpleNamespace(require_replica=lambda topic, index: self.partition),
            purgatory=self.room,
        )
        self._services = services
        self._answer = self.ask()

    def ask(self) -> DelayedFetch:
        frame = long_poll()
        header, position = read_request_header(frame)
        context = RequestContext(header, SimpleNamespace(), self._services)
        answer = fetch.handle_frame(frame, position, context)
        assert isinstance(answer, DelayedFetch)
        return answer

    def append(self) -> None:
        self.partition.records = Records()
        self.sessions.on_append(PARTITION, Records.length)

    def begin(self) -> asyncio.Task[object]:
        return asyncio.ensure_future(self._answer)


async def let_everyone_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_record_that_comes_while_it_waits_ends_the_wait():
    async def story() -> None:
        waiting = Waiting()
        task = waiting.begin()
        await let_everyone_run()
        assert not task.done()
        waiting.append()
        await let_everyone_run()
        assert any(isinstance(chunk, Records) for chunk in task.result())

    asyncio.run(story())


def test_a_record_that_comes_between_the_look_and_the_wait_is_not_missed():
    async def story() -> None:
        waiting = Waiting()
        waiting.append()
        task = waiting.begin()
        await let_everyone_run()
        assert any(isinstance(chunk, Records) for chunk in task.result())

    asyncio.run(story())


def test_an_answer_without_records_comes_when_the_time_is_over():
    async def story() -> None:
        waiting = Waiting()
        task = waiting.begin()
        await waiting.clock.advance(59.9)
        assert not task.done()
        await waiting.clock.advance(0.2)
        await let_everyone_run()
        assert not any(isinstance(chunk, Records) for chunk in task.result())
        assert len(waiting.room) == 0

    asyncio.run(story())


def test_many_who_wait_for_one_record_are_answered_in_several_turns_of_the_loop():
    async def story() -> None:
        waiting = Waiting()
        answered: list[object] = []
        for _ in range(120):
            waiting.ask().begin(answered.append)
        waiting.append()
        assert not answered  # whoever appends does not answer them
        counts = []
        while len(answered) < 120:
            await asyncio.sleep(0)
            counts.append(len(answered))
        assert counts[0] <= 50
        assert all(any(isinstance(chunk, Records) for chunk in one) for one in answered)

    asyncio.run(story())


def test_a_look_that_fails_costs_one_answer_and_not_those_behind_it():
    async def story() -> None:
        waiting = Waiting()
        found: list[object] = []

        def fail(answer: object) -> None:
            found.append(answer)
            waiting.partition.failure = None
            raise ZeroDivisionError

        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: reported.append(context["exception"])
        )
        waiting.ask().begin(fail)
        waiting.ask().begin(found.append)
        waiting.partition.failure = RuntimeError("a bug")
        waiting.append()
        await let_everyone_run()
        first, second = found
        assert isinstance(first, RuntimeError)
        assert any(isinstance(chunk, Records) for chunk in second)
        assert [type(one) for one in reported] == [ZeroDivisionError]

    asyncio.run(story())


def test_who_is_cancelled_leaves_nothing_behind():
    async def story() -> None:
        waiting = Waiting()
        one = waiting.ask()
        one.begin(lambda answer: None)
        task = waiting.begin()
        await let_everyone_run()
        assert len(waiting.room) == 2
        waiting.append()
        one.cancel()  # woken already
        task.cancel()
        await let_everyone_run()
        assert len(waiting.room) == 0
        assert waiting.sessions.watched == 0
        assert not waiting.clock.pending_timers

    asyncio.run(story())
