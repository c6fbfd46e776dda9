"""The clients of a simulated cluster: they produce, read and commit, and tell what they were told.

Each is one task of one simulated process. They never give up: a request without an answer, or with
an error, is made again, until `stop` is set and nothing is under way. What they learn goes to a
`ClusterHistory`, which knows what must not be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, cast

from moldau.config.client_options import ACKS_LEADER
from moldau.errors import (
    OffsetOutOfRangeError,
    TopicExistsError,
)
from moldau.model import TopicPartition
from moldau.records.batch_builder import build_batch
from moldau.records.batch_header import walk_headers
from moldau.records.batch_reader import records_of
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.simulated_wire import SimulatedWire, UnansweredError
from moldau.wire.fetch_exchange import encode_fetch_request, parse_fetch_answer
from moldau.wire.fetch_frame import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.produce_client import encode_produce_request, parse_produce_response

if TYPE_CHECKING:
    from kio.schema.create_topics.v5.response import CreateTopicsResponse
    from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
    from kio.schema.offset_commit.v8.response import OffsetCommitResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse

_PRODUCE: Final = (0, 9)
_FETCH: Final = (1, 12)
OFFSET_COMMIT: Final = (8, 8)
OFFSET_FETCH: Final = (9, 7)
FIND_COORDINATOR: Final = (10, 3)
_CREATE_TOPICS: Final = (19, 5)

_NO_CONFIG: Final[Mapping[str, str]] = {}


class SessionBook(Protocol):
    """Knows when a broker had a session, and how many were in sync."""

    def had_session(self, broker_id: int, since: float, until: float) -> bool: ...

    def had_enough_in_sync(self, partition: TopicPartition, since: float) -> bool:
        """Whether `min.insync.replicas` were in the in-sync set at some time since then."""
        ...


class PositionBook(Protocol):
    """Knows whether a position is there to stay (`committed_positions`)."""

    def require(self, group: str, partition: TopicPartition, position: int, told: str) -> None: ...


class Client:
    """What all clients share: a name, progress, and an end."""

    def __init__(self, name: str, history: ClusterHistory, random: Random) -> None:
        self.name = name
        self.is_stopping = False
        self.is_resting = False  # a producer that rests sends nothing new
        self.progress = 0
        self._history = history
        self._random = random

    async def run(self) -> None:
        """Work until told to stop; who is only called by others has nothing to do."""


class WireClient(Client):
    """One that sends single requests, and sees exactly who answers what."""

    def __init__(
        self, name: str, wire: SimulatedWire, history: ClusterHistory, random: Random
    ) -> None:
        super().__init__(name, history, random)
        self._wire = wire

    async def _leader_of(self, partition: TopicPartition) -> int:
        """Wait until somebody leads it."""
        while True:
            known = self._wire.leaders.get(partition)
            if known is not None and known.broker_id >= 0:
                return known.broker_id
            await self._refresh(partition.topic)

    async def _refresh(self, topic: str) -> None:
        await self._pause()
        await self._wire.refresh((topic,))

    async def _pause(self) -> None:
        await self._wire.clock.sleep(self._random.uniform(0.02, 0.1))

    async def _ask_any(self, api: tuple[int, int], values: dict[str, object]) -> object:
        """Ask the brokers in turn until one answers."""
        ids = sorted(self._wire.broker_ids)
        turn = self._random.randrange(len(ids))
        while True:
            try:
                return await self._wire.call(ids[turn % len(ids)], *api, values)
            except UnansweredError:
                turn += 1
                await self._pause()


class TopicMaker(WireClient):
    """Makes a topic, however often it has to ask."""

    async def make(
        self,
        topic: str,
        partitions: int,
        replicas: int,
        min_in_sync: int,
        config: Mapping[str, str] = _NO_CONFIG,
    ) -> None:
        options = {"min.insync.replicas": str(min_in_sync), **config}
        values: dict[str, object] = {
            "topics": [
                {
                    "name": topic,
                    "num_partitions": partitions,
                    "replication_factor": replicas,
                    "assignments": [],
                    "configs": [{"name": name, "value": value} for name, value in options.items()],
                }
            ],
            "timeout": 5000,
            "validate_only": False,
        }
        while not await self._try(values):
            await self._refresh(topic)

    async def _try(self, values: dict[str, object]) -> bool:
        if self._wire.controller_id < 0:
            return False
        try:
            answer = await self._wire.call(self._wire.controller_id, *_CREATE_TOPICS, values)
        except UnansweredError:
            return False
        code = cast("CreateTopicsResponse", answer).topics[0].error_code
        return code.value in (0, TopicExistsError.code.value)


class HastyProducer(WireClient):
    """Writes `name:number` records to one partition with acks=1, one batch at a time.

    Its answers promise nothing, except that whoever gives them had a session (REP-4): so it has to
    know who gave each.
    """

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        history: ClusterHistory,
        random: Random,
        *,
        partition: TopicPartition,
        sessions: SessionBook,
        now: Callable[[], float],
    ) -> None:
        super().__init__(name, wire, history, random)
        self._partition = partition
        self._sessions = sessions
        self._now = now
        self._next = 0

    async def run(self) -> None:
        while not self.is_stopping:
            if not self.is_resting:
                await self._deliver(self._random.randint(1, 3))
            await self._wire.clock.sleep(self._random.expovariate(6))

    async def _deliver(self, count: int) -> None:
        values = [f"{self.name}:{self._next + number}".encode() for number in range(count)]
        now_ms = self._wire.clock.now_ms()
        batch = build_batch([(now_ms, None, value, ()) for value in values])
        while not await self._send(batch, values):
            await self._refresh(self._partition.topic)
        self._next += count
        self.progress += 1

    async def _send(self, batch: bytearray, values: Sequence[bytes]) -> bool:
        leader = await self._leader_of(self._partition)
        topics = [(self._partition.topic, [(self._partition.partition, batch)])]
        body = encode_produce_request(_PRODUCE[1], ACKS_LEADER, 1500, topics)
        sent_at = self._now()
        try:
            exchange = await self._wire.exchange(leader, *_PRODUCE, body)
        except UnansweredError:
            return False
        answer = parse_produce_response(_PRODUCE[1], *exchange).answers[0]
        if answer.error_code:
            return False
        if not self._sessions.had_session(leader, sent_at, self._now()):
            self._history.report(
                "REP-4",
                f"broker {leader} accepted {values[0]!r} for {self._partition}, and had no "
                f"session since {sent_at:.3f}",
            )
        return True


class Consumer(WireClient):
    """Reads one partition from its beginning, up to the high watermark, again and again."""

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        history: ClusterHistory,
        random: Random,
        *,
        partition: TopicPartition,
        max_wait_ms: int = 300,
        max_bytes: int = 1 << 20,
        rack: str = "",
    ) -> None:
        super().__init__(name, wire, history, random)
        self._max_bytes = max_bytes
        self._rack = rack
        self._nearest = -1  # a follower to read from, as the leader said; -1 for the leader
        self.position = 0
        self.values: dict[int, bytes] = {}
        self._partition = partition
        self._max_wait_ms = max_wait_ms

    async def run(self) -> None:
        while not self.is_stopping:
            if not await self._fetch():
                await self._refresh(self._partition.topic)

    async def read_until(self, end_offset: int) -> None:
        while self.position < end_offset:
            if not await self._fetch():
                await self._refresh(self._partition.topic)

    async def _fetch(self) -> bool:
        leader = await self._leader_of(self._partition)
        nearest, self._nearest = self._nearest, -1
        source = leader if nearest < 0 else nearest
        epoch = self._wire.leaders[self._partition].epoch
        wanted = FetchPartition(
            self._partition.partition, epoch, self.position, -1, -1, self._max_bytes
        )
        request = FetchRequest(
            replica_id=-1,
            replica_epoch=-1,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(self._partition.topic, None, [wanted])],
            forgotten_topics=[],
            rack_id=self._rack,
            cluster_id=None,
        )
        try:
            exchange = await self._wire.exchange(
                source, *_FETCH, (encode_fetch_request(_FETCH[1], request),)
            )
        except UnansweredError:
            return False
        answer = parse_fetch_answer(_FETCH[1], *exchange)
        if answer.error_code or not answer.topics:
            return False
        found = answer.topics[0].partitions[0]
        if nearest >= 0 and found.error_code:
            return True  # it may be behind, or gone: the leader is asked again
        if found.error_code == OffsetOutOfRangeError.code.value:
            self._miss(leader, epoch)
        if found.error_code:
            return False
        self._nearest = (
            nearest if found.preferred_read_replica < 0 else found.preferred_read_replica
        )
        self._take(found.records)
        return True

    def _miss(self, leader: int, epoch: int) -> None:
        """What this consumer has come to is not there."""
        self._history.report(
            "HW-3",
            f"broker {leader}, leader of {self._partition} in epoch {epoch}, has nothing at "
            f"{self.position}, where {self.name} has come to",
        )

    def _take(self, records: memoryview) -> None:
        for start, header in walk_headers(records):
            batch = records[start : start + header.size_bytes]
            if len(batch) < header.size_bytes:
                return
            for record in () if header.is_control else records_of(batch, header):
                if record.offset >= self.position:
                    value = bytes(record.value or b"")
                    self._history.see(self._partition, record.offset, value)
                    self.values[record.offset] = value
                    self.progress += 1
            self.position = max(self.position, header.next_offset)


class Committer(WireClient):
    """Commits positions of a group that only grow, and looks at them now and then."""

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        history: ClusterHistory,
        random: Random,
        *,
        partition: TopicPartition,
        positions: PositionBook,
    ) -> None:
        super().__init__(name, wire, history, random)
        self._partition = partition
        self._positions = positions
        self._coordinator = -1
        self._next = 1

    async def run(self) -> None:
        while not self.is_stopping:
            done = await (self._commit() if self._random.random() < 0.7 else self.look())
            if not done:
                await self._find_coordinator()
            await self._wire.clock.sleep(self._random.expovariate(4))

    async def look_at_last(self) -> None:
        while not await self.look():
            await self._find_coordinator()

    async def _find_coordinator(self) -> None:
        await self._pause()
        values: dict[str, object] = {"key": self.name, "key_type": 0}
        answer = cast("FindCoordinatorResponse", await self._ask_any(FIND_COORDINATOR, values))
        self._coordinator = answer.node_id if answer.error_code.value == 0 else -1

    async def _commit(self) -> bool:
        if self._coordinator < 0:
            return False
        position, topic = self._next, self._partition.topic
        self._history.attempt_commit(self.name, position)
        values = {
            "group_id": self.name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": self._partition.partition,
                            "committed_offset": position,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        }
        try:
            answer = await self._wire.call(self._coordinator, *OFFSET_COMMIT, values)
        except UnansweredError:
            return False
        self._next += 1  # also after an error: the position may be there
        code = cast("OffsetCommitResponse", answer).topics[0].partitions[0].error_code
        if code.value == 0:
            self._history.acknowledge_commit(self.name, position)
            self._positions.require(self.name, self._partition, position, "committed")
            self.progress += 1
        return code.value == 0

    async def look(self) -> bool:
        if self._coordinator < 0:
            return False
        at_least = self._history.committed_position(self.name)
        values = {
            "group_id": self.name,
            "topics": [
                {
                    "name": self._partition.topic,
                    "partition_indexes": [self._partition.partition],
                }
            ],
            "require_stable": False,
        }
        try:
            answer = await self._wire.call(self._coordinator, *OFFSET_FETCH, values)
        except UnansweredError:
            return False
        fetched = cast("OffsetFetchResponse", answer)
        if fetched.error_code.value:
            return False
        found = fetched.topics[0].partitions[0]
        if found.error_code.value:
            return False
        self._history.see_position(self.name, found.committed_offset, at_least)
        self._positions.require(self.name, self._partition, found.committed_offset, "shown")
        return True


class PositionReader(Committer):
    """Looks at the positions of a committer's group all the time, as a tool does that shows lag.

    It has the committer's name, and sees what is not committed yet, if anybody shows it.
    """

    async def run(self) -> None:
        while not self.is_stopping:
            if await self.look():
                self.progress += 1
            else:
                await self._find_coordinator()
            await self._wire.clock.sleep(self._random.uniform(0.01, 0.3))
