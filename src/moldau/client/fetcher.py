"""Fetches ahead of the program: one task for each broker, one request at a time.

Answers for following leaders (or the near replica that a leader names), for fetch sessions, and for
keeping what came until somebody takes it. Decodes nothing. Where to begin, and what to do when an
offset is gone, is not decided here.

A shell. Its tasks change the fetch offsets of `PartitionTable` and nothing else of it. A broker is
asked again when what it gave has been taken: so one answer is on its way while the one before is
worked on, and memory holds no more than two of each broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from moldau.client.broker_errors import error_for, read_code
from moldau.client.cluster_client import ClusterClient
from moldau.client.connection_pool import ConnectionPool
from moldau.client.connections import BrokerConnection
from moldau.client.rules.delivery import Chunk, Position
from moldau.client.rules.fetched_batches import split_batches
from moldau.client.rules.offset_positions import Need, PartitionState, PartitionTable
from moldau.config.client_consumer_options import ConsumerOptions
from moldau.errors import ClientError, ErrorCode, KafkaError, MalformedFrameError
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import CONSUMER
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import FETCH
from moldau.wire.fetch_exchange import (
    AnsweredPartition,
    FetchAnswer,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest
from moldau.wire.fetch_session import FetchSession, TopicKey, Wanted

_NO_REPLICA: Final = -1
_LAST_BY_NAME: Final = 12
_FIRST_WITH_SESSIONS: Final = 7
_SHORT_WAIT_MS: Final = 50
"""How long a broker may wait while partitions are left out that will be wanted soon."""

# What passes by itself, or with fresh metadata.
_PASSING: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Kafka's `fetch.*` settings of a consumer."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    read_committed: bool
    rack: str
    replica_seconds: float  # how long a near replica is read before the leader is asked

    @classmethod
    def of(cls, options: ConsumerOptions) -> FetcherSettings:
        return cls(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            partition_max_bytes=options.max_partition_fetch_bytes,
            read_committed=options.isolation_level == "read_committed",
            rack=options.client_rack,
            replica_seconds=options.metadata_max_age_ms / 1000,
        )


class _Asked(NamedTuple):
    """A request, and of which epoch each position was."""

    wanted: Wanted
    epochs: Mapping[TopicPartition, int]
    max_wait_ms: int


class Fetcher:
    """Owned by one consumer, whose loop it runs on."""

    def __init__(
        self,
        client: ClusterClient,
        pool: ConnectionPool,
        table: PartitionTable,
        settings: FetcherSettings,
        tasks: TaskSupervisor,
        *,
        on_news: Callable[[], None],
        want_metadata: Callable[[], None],
    ) -> None:
        self.is_shared = False  # several readers take chunks, each at its own pace
        self._client = client
        self._pool = pool
        self._table = table
        self._settings = settings
        self._tasks = tasks
        self._on_news = on_news
        self._want_metadata = want_metadata
        self._ready: dict[TopicPartition, Chunk] = {}  # in the order of arrival
        self._wakers: dict[int, asyncio.Event] = {}  # by broker
        self._backing_off: set[tuple[TopicPartition, int]] = set()  # with the position's epoch
        self._is_closed = False

    # For the owner

    def wake(self) -> None:
        """Look anew at what there is to fetch: something was taken, moved or assigned."""
        if self._is_closed:
            return
        now = self._client.clock.monotonic()
        for state in self._table:
            if not state.is_fetchable or self._must_be_validated(state):
                continue
            broker_id = self._find_broker(state, now)
            if broker_id is not None and state.partition not in self._ready:
                self._wake_broker(broker_id)

    def _must_be_validated(self, state: PartitionState) -> bool:
        """With a newer leader, the position has to be validated before it is fetched."""
        topic = self._client.metadata.current.topics.get(state.partition.topic)
        if topic is None or state.partition.partition >= len(topic.partitions):
            return False
        leader_epoch = topic.partitions[state.partition.partition].leader_epoch
        self._table.leader_changed(state.partition, leader_epoch)
        if state.need is Need.READY:
            return False
        self._on_news()
        return True

    def take(self, partitions: Container[TopicPartition] | None = None) -> list[Chunk]:
        """What has come (of these partitions), in order. Void and paused chunks are not given."""
        taken: list[Chunk] = []
        for chunk in tuple(self._ready.values()):
            state = self._table.find(chunk.partition)
            if state is None or state.epoch != chunk.epoch:
                del self._ready[chunk.partition]
            elif not state.is_paused and (partitions is None or chunk.partition in partitions):
                del self._ready[chunk.partition]
                taken.append(chunk)
        if taken:
            self.wake()
        return taken

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what came of these partitions."""
        for partition in partitions:
            self._ready.pop(partition, None)

    def close(self) -> None:
        """Start nothing any more. The tasks end with their supervisor."""
        self._is_closed = True
        self._ready.clear()

    # Brokers

    def _wake_broker(self, broker_id: int) -> None:
        waker = self._wakers.get(broker_id)
        if waker is None:
            waker = self._wakers[broker_id] = asyncio.Event()
            self._tasks.spawn(f"fetch from broker {broker_id}", self._fetch_from(broker_id, waker))
        waker.set()

    async def _fetch_from(self, broker_id: int, waker: asyncio.Event) -> None:
        session = FetchSession()
        failures = 0
        while True:
            waker.clear()
            asked = self._choose(broker_id)
            if asked is None:
                await waker.wait()
                continue
            try:
                connection = await self._connect(broker_id)
                answer = await self._exchange(connection, session, asked)
            except (ClientError, KafkaError):
                session.start_over()
                self._want_metadata()
                await self._pause(failures)
                failures += 1
                continue
            failures = 0
            self._take_answer(broker_id, asked, answer)
            if answer.throttle_time_ms > 0:
                await self._client.clock.sleep(answer.throttle_time_ms / 1000)

    async def _pause(self, failures: int) -> None:
        delay = self._client.backoff_seconds(failures)
        await self._client.clock.sleep(delay)

    async def _connect(self, broker_id: int) -> BrokerConnection:
        brokers = self._client.metadata.current.brokers
        self._pool.learn_brokers({one.id: one.address for one in brokers.values()})
        return await self._pool.to_broker(broker_id)

    def _find_broker(self, state: PartitionState, now: float) -> int | None:
        """Whom to ask: a near replica while that is known, else the leader."""
        metadata = self._client.metadata.current
        if state.preferred_replica is not None:
            if now < state.preferred_until and state.preferred_replica in metadata.brokers:
                return state.preferred_replica
            state.preferred_replica = None
        topic = metadata.topics.get(state.partition.topic)
        if topic is None or state.partition.partition >= len(topic.partitions):
            self._want_metadata()
            return None
        leader_id = topic.partitions[state.partition.partition].leader_id
        if leader_id not in metadata.brokers:
            self._want_metadata()
            return None
        return leader_id

    # Requests

    def _choose(self, broker_id: int) -> _Asked | None:
        """All that can be fetched from this broker now; None when there is nothing."""
        wanted: dict[tuple[TopicKey, int], FetchPartition] = {}
        epochs: dict[TopicPartition, int] = {}
        now = self._client.clock.monotonic()
        max_wait_ms = self._settings.max_wait_ms
        for state in self._table:
            if not state.is_fetchable or self._find_broker(state, now) != broker_id:
                continue
            if state.partition in self._ready:
                if not self.is_shared:
                    return None
                max_wait_ms = min(max_wait_ms, _SHORT_WAIT_MS)
                continue
            is_backing_off = (state.partition, state.epoch) in self._backing_off
            if not is_backing_off and not self._must_be_validated(state):
                key, row = self._row(state)
                wanted[key, row.partition] = row
                epochs[state.partition] = state.epoch
        return _Asked(wanted, epochs, max_wait_ms) if wanted else None

    def _row(self, state: PartitionState) -> tuple[TopicKey, FetchPartition]:
        topic = self._client.metadata.current.topics[state.partition.topic]
        index = state.partition.partition
        row = FetchPartition(
            partition=index,
            current_leader_epoch=topic.partitions[index].leader_epoch,
            fetch_offset=state.fetch_offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self._settings.partition_max_bytes,
        )
        return TopicKey(topic.name, topic.topic_id), row

    async def _exchange(
        self, connection: BrokerConnection, session: FetchSession, asked: _Asked
    ) -> FetchAnswer:
        by_name = any(topic.topic_id is None for topic, _ in asked.wanted)
        version = connection.choose_version(FETCH, at_most=_LAST_BY_NAME if by_name else None)
        if version < _FIRST_WITH_SESSIONS:
            session.start_over(is_forgotten=True)
        body = self._encode(version, session, asked)
        try:
            raw = await connection.exchange(
                FETCH, version, (body,), extra_seconds=asked.max_wait_ms / 1000
            )
            answer = parse_fetch_answer(version, raw.frame, raw.position)
        except MalformedFrameError:
            await connection.close()
            raise
        if answer.error_code in _SESSION_LOST:
            lost = answer.error_code != ErrorCode.invalid_fetch_session_epoch
            session.start_over(is_forgotten=lost)
            return answer
        if answer.error_code:
            raise error_for(read_code(answer.error_code), None, "fetch")
        session.answered(answer.session_id)
        return answer

    def _encode(self, version: int, session: FetchSession, asked: _Asked) -> bytes:
        session.want_only(asked.wanted)
        named = session.next_request()
        settings = self._settings
        request = FetchRequest(
            replica_id=CONSUMER,
            replica_epoch=-1,
            max_wait_ms=asked.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=int(settings.read_committed),
            session_id=named.session_id,
            session_epoch=named.epoch,
            topics=named.topics,
            forgotten_topics=named.forgotten,
            rack_id=settings.rack,
            cluster_id=None,
        )
        return encode_fetch_request(version, request)

    # Answers

    def _take_answer(self, broker_id: int, asked: _Asked, answer: FetchAnswer) -> None:
        names: dict[UUID | None, str] = {topic.topic_id: topic.name for topic, _ in asked.wanted}
        has_news = False
        for topic in answer.topics:
            name = topic.name if topic.name is not None else names.get(topic.topic_id)
            for row in topic.partitions:
                partition = TopicPartition(name or "", row.partition)
                state = self._table.find(partition)
                # What was moved in the meantime, or is not wanted any more, does not count.
                if state is None or state.epoch != asked.epochs.get(partition):
                    continue
                is_wanted = state.need is Need.READY and not state.is_held
                if is_wanted and partition not in self._ready:
                    has_news |= self._take_row(broker_id, state, row)
        if has_news:
            self._on_news()

    def _take_row(self, broker_id: int, state: PartitionState, row: AnsweredPartition) -> bool:
        """Whether there is something new for the owner."""
        if row.error_code:
            return self._take_error(broker_id, state, read_code(row.error_code))
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        state.log_start_offset = max(row.log_start_offset, state.log_start_offset)
        if row.preferred_read_replica != _NO_REPLICA:
            state.preferred_replica = row.preferred_read_replica
            now = self._client.clock.monotonic()
            state.preferred_until = now + self._settings.replica_seconds
            self.wake()
        if not row.records:
            return False
        try:
            aborted = row.aborted_transactions if self._settings.read_committed else None
            found = split_batches(row.records, state.fetch_offset, aborted)
        except KafkaError as error:
            state.failure = error
            return True
        if found.next_offset == state.fetch_offset:
            return False
        end = Position(found.next_offset, found.leader_epoch)
        start = Position(state.fetch_offset)
        self._ready[state.partition] = Chunk(
            state.partition, state.epoch, start, found.batches, end
        )
        state.fetch_offset, state.fetch_epoch = end
        return True

    def _take_error(self, broker_id: int, state: PartitionState, code: ErrorCode) -> bool:
        if state.preferred_replica == broker_id:
            state.preferred_replica = None  # the leader knows better
        elif code not in _PASSING:
            state.failure = error_for(code, None, str(state.partition))
            return True
        self._want_metadata()
        self._back_off((state.partition, state.epoch))
        return False

    def _back_off(self, key: tuple[TopicPartition, int]) -> None:
        def try_again() -> None:
            self._backing_off.discard(key)
            self.wake()

        self._backing_off.add(key)
        delay = self._client.backoff_seconds(0)
        self._client.clock.call_later(delay, try_again)
