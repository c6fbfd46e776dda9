"""A long poll ends with the first record, whenever that comes."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

from moldau.broker.fetch_sessions import FetchSessions
from moldau.broker.handlers import fetch
from moldau.broker.purgatory import Purgatory
from moldau.broker.request_context import RequestContext
from moldau.metrics.topic_traffic import TopicTraffic
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
    is_leader = True
    traffic = TopicTraffic("clicks")

    def check_epoch(self, current_leader_epoch: int) -> None:
        pass

    def read(self, offset: int, max_bytes: int, **options: object) -> PartitionRead:
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
        clock = ManualClock()
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
        frame = long_poll()
        header, position = read_request_header(frame)
        context = RequestContext(header, SimpleNamespace(), services)
        self._answer = fetch.handle_frame(frame, position, context)

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
