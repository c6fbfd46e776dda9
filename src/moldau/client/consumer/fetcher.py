"""A consumer's way to the brokers that lead partitions: records, offsets, epochs, metadata.

Carries out what the machine (`rules.machine`) wants asked, and tells it the answers.
Decides nothing. A shell of one loop: for each broker a task that fetches, one request at a time,
with a fetch session; other questions have a task each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, assert_never, cast

from moldau.client.admin.partitions import LogAdmin
from moldau.client.cluster import ClusterClient
from moldau.client.connections import BrokerConnection, ConnectionPool, PartitionOutages
from moldau.client.consumer.rules.fetch_buffer import Position
from moldau.client.consumer.rules.fetch_plan import reads_committed
from moldau.client.consumer.rules.instructions import (
    Fetch,
    FetcherInstruction,
    LearnTopics,
    LookUpOffsets,
    Refresh,
    Validate,
)
from moldau.client.consumer.rules.machine import Turns
from moldau.client.consumer.rules.offset_manager import LeaderEpochEnd
from moldau.client.rules.broker_errors import error_for, read_code
from moldau.config.client_options import ConsumerOptions
from moldau.errors import ClientError, ErrorCode, KafkaError, MalformedFrameError
from moldau.model import CONSUMER, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import FETCH, OFFSET_FOR_LEADER_EPOCH
from moldau.wire.fetch_exchange import (
    FetchAnswer,
    FetchSessionHandler,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import FetchRequest

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse

_LAST_BY_NAME: Final = 12
_FIRST_WITH_SESSIONS: Final = 7
_EPOCH_DROPPABLE: Final = frozenset({"replica_id"})
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class _FetchSession:
    """What a broker is to be asked next."""

    def __init__(self) -> None:
        self.handler = FetchSessionHandler()
        self.next: Fetch | None = None
        self.is_set = asyncio.Event()


class Fetcher:
    """Owned by one consumer, whose loop it runs on."""

    def __init__(
        self,
        client: ClusterClient,
        pool: ConnectionPool,
        options: ConsumerOptions,
        tasks: TaskSupervisor,
        turns: Turns,
    ) -> None:
        self._client = client
        self._pool = pool
        self._options = options
        self._tasks = tasks
        self._turns = turns
        self._sessions: dict[int, _FetchSession] = {}  # by broker
        self._outages = PartitionOutages()

    def perform(self, asked: FetcherInstruction) -> None:
        match asked:
            case Fetch():
                self._fetch(asked)
            case Refresh():
                self._tasks.spawn("consumer metadata", self._refresh(asked))
            case LookUpOffsets():
                self._tasks.spawn("offsets by time", self._look_up_offsets(asked))
            case Validate():
                self._tasks.spawn("validation of positions", self._validate(asked))
            case LearnTopics():
                self._tasks.spawn("topics of the group", self._learn_topics(asked))
            case _ as never:
                assert_never(never)

    # Records

    def _fetch(self, fetch: Fetch) -> None:
        session = self._sessions.get(fetch.broker_id)
        if session is None:
            session = self._sessions[fetch.broker_id] = _FetchSession()
            self._tasks.spawn(f"fetch from broker {fetch.broker_id}", self._fetch_from(session))
        session.next = fetch
        session.is_set.set()

    async def _fetch_from(self, session: _FetchSession) -> None:
        while True:
            await session.is_set.wait()
            session.is_set.clear()
            fetch, session.next = session.next, None
            if fetch is None:
                continue
            try:
                connection = await self._connect(fetch.broker_id)
                answer = await self._exchange(connection, session.handler, fetch)
            except (ClientError, KafkaError):
                session.handler.start_over()
                with self._turns as machine:
                    machine.fetch_plan.fetch_failed(fetch.broker_id)
            else:
                self._report_refusals(fetch, answer)
                with self._turns as machine:
                    machine.fetch_plan.fetched(fetch, answer)

    def _report_refusals(self, fetch: Fetch, answer: FetchAnswer) -> None:
        if not self._outages and not any(
            row.error_code for topic in answer.topics for row in topic.partitions
        ):
            return
        now = self._client.clock.monotonic()
        names = {one.topic_id: one.name for one, _ in fetch.wanted}
        for topic in answer.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for row in topic.partitions:
                partition = TopicPartition(name, row.partition)
                code = read_code(row.error_code)
                if not row.error_code:
                    self._outages.on_success(partition, now)
                elif code.retriable:  # other errors are the program's
                    self._outages.on_refusal(partition, error_for(code, None, str(partition)), now)

    async def _connect(self, broker_id: int) -> BrokerConnection:
        brokers = self._client.metadata.current.brokers
        self._pool.learn_brokers({one.id: one.address for one in brokers.values()})
        return await self._pool.to_broker(broker_id)

    async def _exchange(
        self, connection: BrokerConnection, session: FetchSessionHandler, fetch: Fetch
    ) -> FetchAnswer:
        by_name = any(topic.topic_id is None for topic, _ in fetch.wanted)
        version = connection.choose_version(FETCH, at_most=_LAST_BY_NAME if by_name else None)
        if version < _FIRST_WITH_SESSIONS:
            session.start_over(is_forgotten=True)
        body = self._encode(version, session, fetch)
        try:
            raw = await connection.exchange(
                FETCH, version, (body,), extra_seconds=fetch.max_wait_ms / 1000
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

    def _encode(self, version: int, session: FetchSessionHandler, fetch: Fetch) -> bytes:
        session.want_only(fetch.wanted)
        named = session.next_request(by_name=version <= _LAST_BY_NAME)
        options = self._options
        request = FetchRequest(
            replica_id=CONSUMER,
            replica_epoch=-1,
            max_wait_ms=fetch.max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=int(reads_committed(options)),
            session_id=named.session_id,
            session_epoch=named.epoch,
            topics=named.topics,
            forgotten_topics=named.forgotten,
            rack_id=options.client_rack,
            cluster_id=None,
        )
        return encode_fetch_request(version, request)

    # Metadata

    async def _refresh(self, asked: Refresh) -> None:
        try:
            await self._client.metadata.refresh(
                asked.topics, may_create=self._options.allow_auto_create_topics
            )
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.refresh_failed(error)
        else:
            with self._turns as machine:
                machine.refreshed(asked)

    async def _learn_topics(self, asked: LearnTopics) -> None:
        try:
            await self._client.metadata.refresh(asked.topics)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.require_classic_membership().request_failed(error)
        else:
            with self._turns as machine:
                machine.require_classic_membership().topics_learned(asked)

    # Positions

    async def _look_up_offsets(self, asked: LookUpOffsets) -> None:
        try:
            found = await self.find_offsets(asked.timestamps)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.offset_fetcher.failed(error)
        else:
            with self._turns as machine:
                machine.found_offsets(asked, found)

    async def find_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Position]:
        """By timestamp; the end where no record is as young."""
        found = await self._list_offsets(wanted)
        beyond = [one for one, position in found.items() if position.offset == NO_OFFSET]
        return {**found, **await self._list_offsets(dict.fromkeys(beyond, LATEST_TIMESTAMP))}

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Position]:
        if not wanted:
            return {}
        listed = await LogAdmin(self._client).list_offsets(
            wanted,
            read_committed=reads_committed(self._options),
            timeout_ms=self._options.default_api_timeout_ms,
        )
        found: dict[TopicPartition, Position] = {}
        for partition, answer in listed.items():
            if isinstance(answer, KafkaError):
                raise answer
            # The epoch belongs to the record at the offset, not to the one before it.
            found[partition] = Position(answer.offset)
        return found

    async def _validate(self, asked: Validate) -> None:
        """Ask the new leaders whether they have what was read from the old ones (KIP-320)."""
        found: list[LeaderEpochEnd] = []
        try:
            by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            for partition in asked.fetch_epochs:
                by_leader[self._client.metadata.current.require_leader(partition)].append(partition)
            for leader_id, partitions in by_leader.items():
                epochs = {one: asked.fetch_epochs[one] for one in partitions}
                found += await self._find_epoch_ends(leader_id, epochs)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.offset_fetcher.failed(error)
        else:
            with self._turns as machine:
                machine.validated(asked, found)

    async def _find_epoch_ends(
        self, leader_id: int, fetch_epochs: Mapping[TopicPartition, int]
    ) -> list[LeaderEpochEnd]:
        metadata = self._client.metadata.current
        leader_epochs = {one: metadata.require_partition(one).leader_epoch for one in fetch_epochs}
        topics: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
        for partition, fetch_epoch in fetch_epochs.items():
            topics[partition.topic].append(
                {
                    "partition": partition.partition,
                    "current_leader_epoch": leader_epochs[partition],
                    "leader_epoch": fetch_epoch,
                }
            )
        values = {
            "replica_id": CONSUMER,
            "topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()],
        }
        connection = await self._client.connect_to_broker(leader_id)
        answer = await connection.call(OFFSET_FOR_LEADER_EPOCH, values, _EPOCH_DROPPABLE)
        found: list[LeaderEpochEnd] = []
        for topic in cast("OffsetForLeaderEpochResponse", answer).topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.topic, row.partition)
                if row.error_code is not ErrorCode.none:
                    await self._client.metadata.refresh((topic.topic,))
                    raise error_for(row.error_code, None, str(partition))
                end = Position(row.end_offset, row.leader_epoch)
                is_known = end.offset != NO_OFFSET
                found.append(
                    LeaderEpochEnd(partition, leader_epochs[partition], end if is_known else None)
                )
        return found
