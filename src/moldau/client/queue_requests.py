"""A queue's way to the brokers: heartbeats to the group's coordinator, share fetches and
acknowledgements to the leaders of partitions, metadata.

Carries out what the machine (`rules.queue_machine`) wants asked, and tells it the answers. Decides
nothing. Heartbeats have a connection of their own, and so have the share sessions: a broker ends a
session with its connection, and releases the records. A shell of one loop: each request has a task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from uuid import UUID

from moldau.client.broker_errors import find_error, read_code
from moldau.client.cluster_client import ClusterClient
from moldau.client.connection_pool import ConnectionPool
from moldau.client.connections import BrokerConnection
from moldau.client.coordinator_link import CoordinatorLink
from moldau.client.outages import PartitionOutages
from moldau.client.rules.acquired_records import AcquiredOffsets
from moldau.client.rules.consumer_instructions import Refresh
from moldau.client.rules.consumer_membership import HeartbeatAnswer
from moldau.client.rules.queue_instructions import (
    AcknowledgedRanges,
    SendShareAcknowledge,
    SendShareFetch,
    SendShareHeartbeat,
    SendShareLeave,
    ShareAnswer,
    SharePartitionAnswer,
    TopicIdPartition,
)
from moldau.client.rules.queue_machine import QueueMachine
from moldau.client.rules.share_membership import SHARE_LEAVING_EPOCH
from moldau.config.client_options import QueueOptions
from moldau.errors import (
    ClientError,
    KafkaError,
    MalformedFrameError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition
from moldau.net.port import Network
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import SHARE_ACKNOWLEDGE, SHARE_FETCH, SHARE_GROUP_HEARTBEAT, Api
from moldau.wire.shape import Values, millis

if TYPE_CHECKING:
    from kio.schema.share_acknowledge.v2.response import ShareAcknowledgeResponse
    from kio.schema.share_fetch.v2.response import PartitionData, ShareFetchResponse

_FIRST_WITH_RENEWALS: Final = 2
_DROPPABLE: Final = frozenset({"share_acquire_mode", "is_renew_ack"})
_UNSUPPORTED: Final = (
    "this broker does not serve share groups (Kafka does from 4.2 on, with the feature "
    "share.version=1): read the topic with a Consumer, or upgrade the broker"
)

QueueTurns: TypeAlias = AbstractContextManager[QueueMachine]
"""`with turns as machine:` an event happens to the machine; what it wants done is done then."""

_Rows = dict[UUID, list[dict[str, object]]]


class QueueRequests:
    """The requests of one queue's client."""

    def __init__(
        self,
        client: ClusterClient,
        pool: ConnectionPool,
        network: Network,
        tasks: TaskSupervisor,
        turns: QueueTurns,
        *,
        group_id: str,
        member_id: str,
        options: QueueOptions,
        on_left: Callable[[], None],
    ) -> None:
        self._client = client
        self._pool = pool
        self._tasks = tasks
        self._turns = turns
        self._group_id = group_id
        self._member_id = member_id
        self._options = options
        self._on_left = on_left
        self._link = CoordinatorLink(client, group_id, own_network=network)
        self._heartbeat: asyncio.Task[None] | None = None
        self._outages = PartitionOutages()
        self._watched: dict[int, BrokerConnection] = {}  # those of share sessions, while open

    async def close(self) -> None:
        await self._link.close()

    # Membership

    def heartbeat(self, asked: SendShareHeartbeat) -> None:
        work = self._beat(asked)
        self._heartbeat = self._tasks.spawn(f"member of {self._group_id}", work)

    def leave(self, asked: SendShareLeave) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()  # its answer means nothing any more
        self._tasks.spawn(f"member of {self._group_id}", self._leave(asked))

    async def _beat(self, asked: SendShareHeartbeat) -> None:
        values = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "member_epoch": asked.epoch,
            "rack_id": asked.rack,
            "subscribed_topic_names": None if asked.topics is None else sorted(asked.topics),
        }
        try:
            answer = await self._send_heartbeat(values)
        except (KafkaError, ClientError) as error:
            await self._link.note_failure(error)
            with self._turns as machine:
                machine.membership.heartbeat_failed(asked.beat, error)
        else:
            with self._turns as machine:
                machine.membership.heartbeat_answered(asked.beat, answer)

    async def _leave(self, asked: SendShareLeave) -> None:
        if asked.is_told:
            values = {
                "group_id": self._group_id,
                "member_id": self._member_id,
                "member_epoch": SHARE_LEAVING_EPOCH,
            }
            with contextlib.suppress(KafkaError, ClientError):  # the session will time out
                await self._send_heartbeat(values)
        self._on_left()

    async def _send_heartbeat(self, values: Values) -> HeartbeatAnswer:
        return await self._link.beat(SHARE_GROUP_HEARTBEAT, values, _UNSUPPORTED)

    # Records

    def fetch(self, asked: SendShareFetch) -> None:
        self._tasks.spawn(f"share fetch from broker {asked.broker_id}", self._exchange(asked))

    def acknowledge(self, asked: SendShareAcknowledge) -> None:
        self._tasks.spawn(f"acknowledge to broker {asked.broker_id}", self._exchange(asked))

    async def _exchange(self, asked: SendShareFetch | SendShareAcknowledge) -> None:
        try:
            if isinstance(asked, SendShareFetch):
                answer = await self._fetch(asked)
            else:
                answer = await self._acknowledge(asked)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.failed(asked, error)
        else:
            self._report_refusals(answer)
            with self._turns as machine:
                machine.answered(asked, answer)

    async def _fetch(self, asked: SendShareFetch) -> ShareAnswer:
        options = self._options
        rows = _acknowledgement_rows(asked.acknowledged, asked.added)
        forgotten: defaultdict[UUID, list[int]] = defaultdict(list)
        for topic_id, index in asked.forgotten:
            forgotten[topic_id].append(index)
        values = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "share_session_epoch": asked.session_epoch,
            "max_wait": asked.max_wait_ms,
            "min_bytes": options.fetch_min_bytes,
            "max_bytes": options.fetch_max_bytes,
            "max_records": asked.max_records,
            "batch_size": asked.max_records,
            "share_acquire_mode": asked.mode.value,
            "is_renew_ack": False,
            "topics": [{"topic_id": one, "partitions": some} for one, some in rows.items()],
            "forgotten_topics_data": [
                {"topic_id": one, "partitions": some} for one, some in forgotten.items()
            ],
        }
        connection = await self._connect(asked.broker_id)
        version = self._choose_version(connection, SHARE_FETCH)
        found = await self._call(
            connection, SHARE_FETCH, version, values, extra_seconds=asked.max_wait_ms / 1000
        )
        answer = cast("ShareFetchResponse", found)
        self._link.require_success(answer.error_code, answer.error_message)
        return ShareAnswer(
            partitions=[
                _read_partition((topic.topic_id, row.partition_index), row)
                for topic in answer.responses
                if topic.topic_id is not None
                for row in topic.partitions
            ],
            lock_ms=millis(answer.acquisition_lock_timeout),
            can_renew=version >= _FIRST_WITH_RENEWALS,
        )

    async def _acknowledge(self, asked: SendShareAcknowledge) -> ShareAnswer:
        rows = _acknowledgement_rows(asked.acknowledged)
        values = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "share_session_epoch": asked.session_epoch,
            "is_renew_ack": asked.has_renewals,
            "topics": [{"topic_id": one, "partitions": some} for one, some in rows.items()],
        }
        connection = await self._connect(asked.broker_id)
        version = self._choose_version(connection, SHARE_ACKNOWLEDGE)
        found = await self._call(connection, SHARE_ACKNOWLEDGE, version, values)
        answer = cast("ShareAcknowledgeResponse", found)
        self._link.require_success(answer.error_code, answer.error_message)
        lock = getattr(answer, "acquisition_lock_timeout", None)  # from version 2 on
        return ShareAnswer(
            partitions=[
                SharePartitionAnswer(
                    (topic.topic_id, row.partition_index),
                    acknowledge_failure=find_error(row.error_code, row.error_message, ""),
                )
                for topic in answer.responses
                if topic.topic_id is not None
                for row in topic.partitions
            ],
            lock_ms=None if lock is None else millis(lock),
            can_renew=version >= _FIRST_WITH_RENEWALS,
        )

    async def _call(
        self,
        connection: BrokerConnection,
        api: Api,
        version: int,
        values: Values,
        *,
        extra_seconds: float = 0.0,
    ) -> object:
        try:
            return await connection.call(
                api, values, _DROPPABLE, version=version, extra_seconds=extra_seconds
            )
        except MalformedFrameError:
            await connection.close()
            raise

    async def _connect(self, broker_id: int) -> BrokerConnection:
        brokers = self._client.metadata.current.brokers
        self._pool.learn_brokers({one.id: one.address for one in brokers.values()})
        connection = await self._pool.to_broker(broker_id)
        if self._watched.get(broker_id) is not connection:
            self._watched[broker_id] = connection
            self._tasks.spawn(f"end of broker {broker_id}", self._watch(broker_id, connection))
        return connection

    async def _watch(self, broker_id: int, connection: BrokerConnection) -> None:
        """A session ends with its connection, and records are released that wait here."""
        failure = await connection.wait_until_over()
        if self._watched.get(broker_id) is connection:
            del self._watched[broker_id]
            with self._turns as machine:
                machine.disconnected(broker_id, failure)

    def _choose_version(self, connection: BrokerConnection, api: Api) -> int:
        try:
            return connection.choose_version(api)
        except UnsupportedByBrokerError as error:
            raise UnsupportedByBrokerError(_UNSUPPORTED) from error

    def _report_refusals(self, answer: ShareAnswer) -> None:
        if not self._outages and all(row.failure is None for row in answer.partitions):
            return
        now = self._client.clock.monotonic()
        topics = self._client.metadata.current.topics.values()
        names = {topic.topic_id: topic.name for topic in topics}
        for row in answer.partitions:
            topic_id, index = row.partition
            partition = TopicPartition(names.get(topic_id, str(topic_id)), index)
            if row.failure is None:
                self._outages.on_success(partition, now)
            elif row.failure.code.retriable:  # other errors are the program's
                self._outages.on_refusal(partition, row.failure, now)

    # Metadata

    def refresh(self, asked: Refresh) -> None:
        self._tasks.spawn("metadata of a queue", self._refresh(asked))

    async def _refresh(self, asked: Refresh) -> None:
        try:
            await self._client.metadata.refresh(asked.topics)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.refresh_failed(error)
        else:
            with self._turns as machine:
                machine.refreshed()


def _acknowledgement_rows(
    acknowledged: AcknowledgedRanges, added: Iterable[TopicIdPartition] = ()
) -> _Rows:
    """Rows of partitions by topic: those with something to acknowledge, and those to be added."""
    rows: defaultdict[UUID, list[dict[str, object]]] = defaultdict(list)
    for topic_id, index in dict.fromkeys((*acknowledged, *added)):
        ranges = acknowledged.get((topic_id, index), ())
        rows[topic_id].append(
            {
                "partition_index": index,
                "acknowledgement_batches": [
                    {
                        "first_offset": one.first_offset,
                        "last_offset": one.last_offset,
                        "acknowledge_types": (one.kind.value,),
                    }
                    for one in ranges
                ],
            }
        )
    return rows


def _read_partition(partition: TopicIdPartition, row: PartitionData) -> SharePartitionAnswer:
    acknowledge_code = read_code(row.acknowledge_error_code)
    return SharePartitionAnswer(
        partition=partition,
        failure=find_error(row.error_code, row.error_message, ""),
        acknowledge_failure=find_error(acknowledge_code, row.acknowledge_error_message, ""),
        records=memoryview(row.records or b""),
        acquired=[
            AcquiredOffsets(one.first_offset, one.last_offset, one.delivery_count)
            for one in row.acquired_records
        ],
    )
