"""A consumer's way to the coordinator of its group: membership, commits, committed offsets.

Carries out what the machine wants asked (classic protocol, KIP-848, commits), and tells it the
answers. Decides nothing but when to look for the coordinator again. Membership has a connection
of its own: a JoinGroup request is answered when the whole group has come, and nothing else should
queue behind it. The same connection serves the heartbeats of share groups. A shell of one loop.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, assert_never, cast
from uuid import UUID

from moldau.client.cluster import ClusterClient, find_coordinator
from moldau.client.connections import NOTHING_DROPPABLE, BrokerConnection, open_connection
from moldau.client.consumer.rules.classic_membership import Joined
from moldau.client.consumer.rules.consumer_membership import HeartbeatAnswer
from moldau.client.consumer.rules.fetch_plan import reads_committed
from moldau.client.consumer.rules.instructions import (
    CoordinatorInstruction,
    Failure,
    LookUpCommitted,
    OffsetsToCommit,
    SendCommit,
    SendConsumerHeartbeat,
    SendConsumerLeave,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
)
from moldau.client.consumer.rules.machine import Turns
from moldau.client.rules.broker_errors import Reaction, error_for, react_to
from moldau.client.rules.cluster_metadata import Broker
from moldau.client.rules.offsets import GroupOffset
from moldau.clock import finish_within
from moldau.config.client_options import ConsumerOptions
from moldau.errors import (
    ClientError,
    ErrorCode,
    KafkaError,
    OperationTimeoutError,
    UnsupportedByBrokerError,
)
from moldau.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from moldau.net.port import Network
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Api,
)
from moldau.wire.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.join_group.v9.response import JoinGroupResponse
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as SingleFetchResponse
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponse, OffsetFetchResponseGroup
    from kio.schema.sync_group.v5.response import SyncGroupResponse
    from kio.static.protocol import Payload

    from moldau.wire.shape import Values


_JOIN_GRACE_SECONDS: Final = 5.0
"""How much longer than the rebalance time-out the coordinator may take to answer a join."""

_MEMBER_DROPPABLE: Final = frozenset(
    {"group_instance_id", "reason", "protocol_type", "protocol_name"}
)
_FETCH_DROPPABLE: Final = frozenset({"require_stable", "member_id", "member_epoch"})
_COMMIT_DROPPABLE: Final = frozenset(
    {"committed_leader_epoch", "group_instance_id", "retention_time"}
)
_FIRST_WITH_LEAVING_MEMBERS: Final = 3
_FIRST_WITH_SEVERAL_GROUPS: Final = 8
_BROKERS_RETENTION: Final = -1

_NOT_CHANGED: Final = -1
_UNSUPPORTED: Final = (
    "this broker does not serve group.protocol=consumer (Kafka does from 4.0 on, with the feature "
    "group.version=1 and `consumer` in group.coordinator.rebalance.protocols); set "
    "group.protocol=classic"
)

_Task = asyncio.Task[None] | None


def make_member_id(random: Random) -> str:
    """A new one, as Kafka's clients write their ids."""
    made = UUID(int=random.getrandbits(128), version=4)
    return base64.urlsafe_b64encode(made.bytes).rstrip(b"=").decode()


class ConsumerCoordinator:
    """The coordinator of one consumer's group."""

    def __init__(
        self,
        client: ClusterClient,
        network: Network,
        group_id: str,
        options: ConsumerOptions,
        tasks: TaskSupervisor,
        turns: Turns,
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._options = options
        self._tasks = tasks
        self._turns = turns
        is_classic = options.group_protocol == "classic"
        self._member_connection = CoordinatorConnection(
            client,
            group_id,
            own_network=network,
            # Without an answer for a session, the coordinator has forgotten the member anyway.
            longest_seconds=options.session_timeout_ms / 1000 if is_classic else math.inf,
        )
        self._connection = CoordinatorConnection(client, group_id)
        self._request: _Task = None  # JoinGroup or SyncGroup
        self._heartbeat: _Task = None

    async def close(self) -> None:
        await self._member_connection.close()

    def perform(self, asked: CoordinatorInstruction) -> None:
        match asked:
            case LookUpCommitted():
                self._spawn(self._look_up_committed(asked))
            case SendCommit():
                self._spawn(self._commit(asked))
            case SendJoin():
                _cancel(self._heartbeat)  # its answer means nothing any more, nor its failure
                self._request = self._spawn(self._request_place(lambda: self._join(asked)))
            case SendSync():
                self._request = self._spawn(self._request_place(lambda: self._sync(asked)))
            case SendHeartbeat():
                self._heartbeat = self._spawn(self._send_heartbeat(asked))
            case SendConsumerHeartbeat():
                self._heartbeat = self._spawn(self._send_consumer_heartbeat(asked))
            case SendLeave():
                if asked.is_last:
                    _cancel(self._heartbeat)
                    _cancel(self._request)
                self._spawn(self._leave(asked))
            case SendConsumerLeave():
                _cancel(self._heartbeat)
                self._spawn(self._leave_consumer_group(asked))
            case _ as never:
                assert_never(never)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.spawn(f"member of {self._group_id}", work)

    # Membership by the classic protocol

    async def _request_place(self, request: Callable[[], Awaitable[None]]) -> None:
        try:
            await request()
        except (KafkaError, ClientError) as error:
            await self._member_connection.note_failure(error)
            with self._turns as machine:
                machine.require_classic_membership().request_failed(error)

    async def _join(self, asked: SendJoin) -> None:
        options = self._options
        values = {
            "group_id": self._group_id,
            "session_timeout": options.session_timeout_ms,
            "rebalance_timeout": options.max_poll_interval_ms,
            "member_id": asked.member_id,
            "group_instance_id": options.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": data} for name, data in asked.protocols],
            "reason": asked.reason,
        }
        seconds = options.max_poll_interval_ms / 1000 + _JOIN_GRACE_SECONDS
        answer = cast(
            "JoinGroupResponse",
            await self._member_connection.call(
                JOIN_GROUP, values, _MEMBER_DROPPABLE, extra_seconds=seconds
            ),
        )
        if answer.error_code is ErrorCode.member_id_required:
            with self._turns as machine:
                machine.require_classic_membership().member_id_given(answer.member_id)
        self._member_connection.require_success(answer.error_code)
        joined = Joined(
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            leader_id=answer.leader,
            protocol=answer.protocol_name,
            skips_assignment=getattr(answer, "skip_assignment", False),  # from version 9 on
            members=[
                # The instance id is there from version 5 on.
                (row.member_id, getattr(row, "group_instance_id", None), row.metadata)
                for row in answer.members
            ],
        )
        with self._turns as machine:
            machine.require_classic_membership().joined(joined)

    async def _sync(self, asked: SendSync) -> None:
        values = {
            "group_id": self._group_id,
            "generation_id": asked.generation_id,
            "member_id": asked.member_id,
            "group_instance_id": self._options.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": asked.protocol,
            "assignments": [
                {"member_id": member_id, "assignment": data}
                for member_id, data in asked.assignments.items()
            ],
        }
        seconds = self._options.max_poll_interval_ms / 1000
        answer = cast(
            "SyncGroupResponse",
            await self._member_connection.call(
                SYNC_GROUP, values, _MEMBER_DROPPABLE, extra_seconds=seconds
            ),
        )
        self._member_connection.require_success(answer.error_code)
        with self._turns as machine:
            machine.require_classic_membership().synced(answer.assignment)

    async def _send_heartbeat(self, asked: SendHeartbeat) -> None:
        generation_id, member_id, instance_id = asked.identity
        values = {
            "group_id": self._group_id,
            "generation_id": generation_id,
            "member_id": member_id,
            "group_instance_id": instance_id,
        }
        try:
            answer = await self._member_connection.call(HEARTBEAT, values, _MEMBER_DROPPABLE)
            self._member_connection.require_success(cast("HeartbeatResponse", answer).error_code)
        except (KafkaError, ClientError) as error:
            await self._member_connection.note_failure(error)
            with self._turns as machine:
                machine.require_classic_membership().heartbeat_failed(asked.heart, error)
        else:
            with self._turns as machine:
                machine.require_classic_membership().heartbeat_answered(asked.heart)

    async def _leave(self, asked: SendLeave) -> None:
        if asked.drops_connection:
            await self._member_connection.close()
        if asked.member_id:
            with contextlib.suppress(KafkaError, ClientError):  # the session will time out
                await self._send_leave(asked)
        if asked.is_last:
            with self._turns as machine:
                machine.left()

    async def _send_leave(self, asked: SendLeave) -> None:
        connection = await self._member_connection.connect()
        version = connection.choose_version(LEAVE_GROUP)
        values: dict[str, object] = {"group_id": self._group_id}
        if version < _FIRST_WITH_LEAVING_MEMBERS:
            values["member_id"] = asked.member_id
        else:
            member = {
                "member_id": asked.member_id,
                "group_instance_id": None,
                "reason": asked.reason,
            }
            values["members"] = [member]
        answer = await connection.call(LEAVE_GROUP, values, _MEMBER_DROPPABLE, version=version)
        self._member_connection.require_success(cast("LeaveGroupResponse", answer).error_code)

    # Membership by the consumer protocol (KIP-848)

    async def _send_consumer_heartbeat(self, asked: SendConsumerHeartbeat) -> None:
        timeout_ms = asked.rebalance_timeout_ms
        values = {
            "group_id": self._group_id,
            "member_id": asked.member_id,
            "member_epoch": asked.epoch,
            "instance_id": asked.instance_id,
            "rack_id": asked.rack,
            "rebalance_timeout": _NOT_CHANGED if timeout_ms is None else timeout_ms,
            "subscribed_topic_names": None if asked.topics is None else sorted(asked.topics),
            "subscribed_topic_regex": asked.pattern,
            "server_assignor": asked.assignor,
            "topic_partitions": None if asked.owned is None else _rows_of(asked.owned),
        }
        try:
            answer = await self._member_connection.send_heartbeat(
                CONSUMER_GROUP_HEARTBEAT, values, _UNSUPPORTED
            )
        except (KafkaError, ClientError) as error:
            await self._member_connection.note_failure(error)
            with self._turns as machine:
                machine.require_consumer_membership().heartbeat_failed(asked.beat, error)
        else:
            with self._turns as machine:
                machine.require_consumer_membership().heartbeat_answered(asked.beat, answer)

    async def _leave_consumer_group(self, asked: SendConsumerLeave) -> None:
        if asked.member_id:
            values = {
                "group_id": self._group_id,
                "member_id": asked.member_id,
                "member_epoch": asked.epoch,
                "instance_id": asked.instance_id,
                "topic_partitions": None,
            }
            with contextlib.suppress(KafkaError, ClientError):  # the session will time out
                await self._member_connection.send_heartbeat(
                    CONSUMER_GROUP_HEARTBEAT, values, _UNSUPPORTED
                )
        if asked.is_last:
            with self._turns as machine:
                machine.left()

    # Commits

    async def _commit(self, asked: SendCommit) -> None:
        try:
            await self._send_commit(asked)
        except (KafkaError, ClientError) as error:
            await self._connection.note_failure(error)
            with self._turns as machine:
                machine.require_commits().failed(error)
        else:
            with self._turns as machine:
                machine.require_commits().committed()

    async def _send_commit(self, asked: SendCommit) -> None:
        generation_id, member_id, instance_id = asked.identity
        values = {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": generation_id,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "retention_time": _BROKERS_RETENTION,
            "topics": _commit_topics(asked.offsets),
        }
        answer = await self._connection.call(OFFSET_COMMIT, values, _COMMIT_DROPPABLE)
        for topic in cast("OffsetCommitResponse", answer).topics:
            for row in topic.partitions:
                if row.error_code is not ErrorCode.none:
                    subject = str(TopicPartition(topic.name, row.partition_index))
                    raise error_for(row.error_code, None, subject)

    # Committed offsets

    async def _look_up_committed(self, asked: LookUpCommitted) -> None:
        try:
            found = await self.fetch_committed(
                asked.partitions, self._options.default_api_timeout_ms / 1000
            )
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.offset_fetcher.failed(error)
        else:
            with self._turns as machine:
                machine.found_committed(found)

    async def fetch_committed(
        self, partitions: Collection[TopicPartition], timeout_seconds: float
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        """What the group has committed; asks again while the coordinator moves or loads."""
        if not partitions:
            return {}
        failures: list[Failure] = []  # the last one
        try:
            return await finish_within(
                self._ask_for_committed(partitions, failures), self._client.clock, timeout_seconds
            )
        except TimeoutError:
            reason = f": {failures[-1]}" if failures else ""
            raise OperationTimeoutError(
                f"could not look up committed offsets within {timeout_seconds:g} seconds{reason}"
            ) from None

    async def _ask_for_committed(
        self, partitions: Collection[TopicPartition], failures: list[Failure]
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        attempt = 0
        while True:
            try:
                return await self._fetch_committed(partitions)
            except (KafkaError, ClientError) as error:
                reaction = await self._connection.note_failure(error)
                if reaction is Reaction.STOP:
                    raise
                failures[:] = [error]
            await self._client.clock.sleep(self._client.backoff_seconds(attempt))
            attempt += 1

    async def _fetch_committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        group = await self._fetch_group(partitions)
        self._connection.require_success(getattr(group, "error_code", ErrorCode.none))
        found: dict[TopicPartition, GroupOffset | None] = dict.fromkeys(partitions)
        for topic in group.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code is not ErrorCode.none:
                    raise error_for(row.error_code, None, str(partition))
                if row.committed_offset != NO_OFFSET:
                    found[partition] = GroupOffset(
                        offset=row.committed_offset,
                        leader_epoch=getattr(row, "committed_leader_epoch", NO_LEADER_EPOCH),
                        metadata=row.metadata or "",
                    )
        return found

    async def _fetch_group(
        self, partitions: Collection[TopicPartition]
    ) -> OffsetFetchResponseGroup | SingleFetchResponse:
        indexes: defaultdict[str, list[int]] = defaultdict(list)
        for partition in partitions:
            indexes[partition.topic].append(partition.partition)
        group: dict[str, object] = {
            "group_id": self._group_id,
            "topics": [{"name": n, "partition_indexes": tuple(i)} for n, i in indexes.items()],
        }
        connection = await self._connection.connect()
        version = connection.choose_version(OFFSET_FETCH)
        if version < _FIRST_WITH_SEVERAL_GROUPS:
            values = {**group, "require_stable": reads_committed(self._options)}
            answer = await connection.call(OFFSET_FETCH, values, _FETCH_DROPPABLE, version=version)
            return cast("SingleFetchResponse", answer)
        with self._turns as machine:
            member = machine.find_epoch_member()
        if member is not None:
            group |= {"member_id": member.member_id, "member_epoch": member.generation_id}
        values = {"groups": [group], "require_stable": reads_committed(self._options)}
        answer = await connection.call(OFFSET_FETCH, values, _FETCH_DROPPABLE, version=version)
        (found,) = cast("OffsetFetchResponse", answer).groups
        return found


def _rows_of(owned: Iterable[tuple[UUID, int]]) -> list[dict[str, object]]:
    indexes: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in sorted(owned):
        indexes[topic_id].append(index)
    return [{"topic_id": topic_id, "partitions": tuple(some)} for topic_id, some in indexes.items()]


def _commit_topics(offsets: OffsetsToCommit) -> list[dict[str, object]]:
    topics: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
    for partition, wanted in offsets.items():
        topics[partition.topic].append(
            {
                "partition_index": partition.partition,
                "committed_offset": wanted.offset,
                "committed_leader_epoch": wanted.leader_epoch,
                "committed_metadata": wanted.metadata,
            }
        )
    return [{"name": name, "partitions": rows} for name, rows in topics.items()]


def _cancel(task: _Task) -> None:
    if task is not None:
        task.cancel()


_WORDS_OF_GROUPS = {
    ErrorCode.group_id_not_found: "there is none of consumers; an id belongs to one type of group, "
    "and a share group may have it",
    ErrorCode.inconsistent_group_protocol: "the group's protocol is not this member's: "
    "they have no assignor in common, or it is another type of group, such as a share group",
}
"""Where the answer has no message: members meet these codes where the id is another group's."""


class CoordinatorConnection:
    """To the coordinator of one group, found when it is needed and again when it moves.

    Consumers of both protocols have one, and share consumers.
    """

    def __init__(
        self,
        client: ClusterClient,
        group_id: str,
        *,
        own_network: Network | None = None,
        longest_seconds: float = math.inf,
    ) -> None:
        """`own_network` makes a connection of its own, on which no answer may take longer."""
        self.group_id = group_id
        self._client = client
        self._own_network = own_network
        connection = client.settings.connection
        self._own_settings = replace(
            connection, request_seconds=min(connection.request_seconds, longest_seconds)
        )
        self._coordinator: Broker | None = None
        self._own_connection: BrokerConnection | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> BrokerConnection:
        """An open connection; raises when the coordinator cannot be found or reached."""
        async with self._connecting:
            if self._coordinator is None:
                self._coordinator = await find_coordinator(self._client, self.group_id)
            if self._own_network is None:
                return await self._client.connect_to_broker(self._coordinator.id)
            return await self._connect_apart(self._own_network, self._coordinator)

    async def _connect_apart(self, network: Network, broker: Broker) -> BrokerConnection:
        connection = self._own_connection
        if connection is None or not connection.is_open:
            client = self._client
            connection = await open_connection(
                network, client.clock, broker.address, self._own_settings
            )
            self._own_connection = connection
        return connection

    async def call(
        self,
        api: Api,
        values: Values,
        droppable: frozenset[str] = NOTHING_DROPPABLE,
        *,
        extra_seconds: float = 0.0,
    ) -> Payload:
        connection = await self.connect()
        return await connection.call(api, values, droppable, extra_seconds=extra_seconds)

    async def note_failure(self, error: Failure) -> Reaction:
        """What to do about an error; a coordinator that is none any more is not asked again."""
        reaction = react_to(error)
        if reaction is Reaction.REDISCOVER:
            async with self._connecting:
                await self.close()
        return reaction

    async def close(self) -> None:
        """Forget the coordinator, and end the connection if it is its own."""
        self._coordinator = None
        connection, self._own_connection = self._own_connection, None
        if connection is not None:
            await connection.close()

    async def send_heartbeat(self, api: Api, values: Values, unsupported: str) -> HeartbeatAnswer:
        """The good answer to a heartbeat of the newer protocols (KIP-848, KIP-932).

        Raises what a bad one says; `unsupported` is for a broker that knows no such heartbeat, or
        does not want to.
        """
        try:
            found = await self.call(api, values)
        except UnsupportedByBrokerError as error:
            raise UnsupportedByBrokerError(unsupported) from error
        # That of share groups has the same fields.
        answer = cast("ConsumerGroupHeartbeatResponse", found)
        if answer.error_code is ErrorCode.unsupported_version:
            raise UnsupportedByBrokerError(unsupported)
        self.require_success(answer.error_code, answer.error_message)
        from moldau.wire.shape import millis  # loaded by the answer itself

        assigned: dict[UUID, frozenset[int]] | None = None
        if answer.assignment is not None:
            assigned = {
                row.topic_id: frozenset(row.partitions)
                for row in answer.assignment.topic_partitions
                if row.topic_id is not None
            }
        return HeartbeatAnswer(answer.member_epoch, millis(answer.heartbeat_interval), assigned)

    def require_success(self, code: ErrorCode, message: str | None = None) -> None:
        if code is not ErrorCode.none:
            words = message or _WORDS_OF_GROUPS.get(code)
            raise error_for(code, words, f"group {self.group_id!r}")
