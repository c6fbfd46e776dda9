"""A consumer's way to the coordinator of its group: membership, commits, committed offsets.

Carries out what the machine (`rules.membership`, `rules.commits`) wants asked, and tells it the
answers. Decides nothing but when to look for the coordinator anew.

Membership has a connection of its own: a JoinGroup request is answered when the whole group has
come, and nothing else should queue behind it. Offsets go over the client's common connection, so
that they can be committed while a join is under way. A shell of one loop: each request has a task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.coordinator_link import CoordinatorLink
from moldau.client.offset_values import GroupOffset
from moldau.client.rules.consumer_instructions import (
    Failure,
    LookUpCommitted,
    OffsetsToCommit,
    SendCommit,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
)
from moldau.client.rules.consumer_machine import Turns
from moldau.client.rules.group_errors import Reaction
from moldau.client.rules.membership import Joined, MembershipSettings
from moldau.clock import finish_within
from moldau.errors import ClientError, ErrorCode, KafkaError, OperationTimeoutError
from moldau.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from moldau.net.port import Network
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from moldau.wire.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.join_group.v9.response import JoinGroupResponse
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as SingleFetchResponse
    from kio.schema.offset_fetch.v9.response import (
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
    )
    from kio.schema.sync_group.v5.response import SyncGroupResponse

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

_Task = asyncio.Task[None] | None


class Coordinator:
    """The coordinator of one consumer's group."""

    def __init__(
        self,
        client: ClusterClient,
        network: Network,
        group_id: str,
        settings: MembershipSettings,
        tasks: TaskSupervisor,
        turns: Turns,
        *,
        read_committed: bool,
        timeout_seconds: float,
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._settings = settings
        self._tasks = tasks
        self._turns = turns
        self._read_committed = read_committed
        self._timeout_seconds = timeout_seconds
        # Without an answer for a whole session, the coordinator has forgotten the member anyway.
        self._own_link = CoordinatorLink(
            client,
            group_id,
            own_network=network,
            longest_seconds=settings.session_timeout_ms / 1000,
        )
        self._link = CoordinatorLink(client, group_id)
        self._request: _Task = None  # JoinGroup or SyncGroup
        self._heartbeat: _Task = None

    async def close(self) -> None:
        await self._own_link.close()

    # Membership

    def join(self, asked: SendJoin) -> None:
        _cancel(self._heartbeat)  # its answer means nothing any more, nor does its failure
        self._request = self._spawn(self._request_place(lambda: self._join(asked)))

    def sync(self, asked: SendSync) -> None:
        self._request = self._spawn(self._request_place(lambda: self._sync(asked)))

    def heartbeat(self, asked: SendHeartbeat) -> None:
        self._heartbeat = self._spawn(self._beat(asked))

    def leave(self, asked: SendLeave) -> None:
        if asked.is_last:
            _cancel(self._heartbeat)
            _cancel(self._request)
        self._spawn(self._leave(asked))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.spawn(f"member of {self._group_id}", work)

    async def _request_place(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except (KafkaError, ClientError) as error:
            await self._own_link.note_failure(error)
            with self._turns as machine:
                machine.require_classic_membership().request_failed(error)

    async def _join(self, asked: SendJoin) -> None:
        settings = self._settings
        values = {
            "group_id": self._group_id,
            "session_timeout": settings.session_timeout_ms,
            "rebalance_timeout": settings.max_poll_interval_ms,
            "member_id": asked.member_id,
            "group_instance_id": settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": data} for name, data in asked.protocols],
            "reason": asked.reason,
        }
        seconds = settings.max_poll_interval_ms / 1000 + _JOIN_GRACE_SECONDS
        answer = cast(
            "JoinGroupResponse",
            await self._own_link.call(JOIN_GROUP, values, _MEMBER_DROPPABLE, extra_seconds=seconds),
        )
        if answer.error_code is ErrorCode.member_id_required:
            with self._turns as machine:
                machine.require_classic_membership().member_id_given(answer.member_id)
        self._own_link.require_success(answer.error_code)
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
            "group_instance_id": self._settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": asked.protocol,
            "assignments": [
                {"member_id": member_id, "assignment": data}
                for member_id, data in asked.assignments.items()
            ],
        }
        seconds = self._settings.max_poll_interval_ms / 1000
        answer = cast(
            "SyncGroupResponse",
            await self._own_link.call(SYNC_GROUP, values, _MEMBER_DROPPABLE, extra_seconds=seconds),
        )
        self._own_link.require_success(answer.error_code)
        with self._turns as machine:
            machine.require_classic_membership().synced(answer.assignment)

    async def _beat(self, asked: SendHeartbeat) -> None:
        generation_id, member_id, instance_id = asked.identity
        values = {
            "group_id": self._group_id,
            "generation_id": generation_id,
            "member_id": member_id,
            "group_instance_id": instance_id,
        }
        try:
            answer = await self._own_link.call(HEARTBEAT, values, _MEMBER_DROPPABLE)
            self._own_link.require_success(cast("HeartbeatResponse", answer).error_code)
        except (KafkaError, ClientError) as error:
            await self._own_link.note_failure(error)
            with self._turns as machine:
                machine.require_classic_membership().heartbeat_failed(asked.heart, error)
        else:
            with self._turns as machine:
                machine.require_classic_membership().heartbeat_answered(asked.heart)

    async def _leave(self, asked: SendLeave) -> None:
        if asked.drops_connection:
            await self._own_link.close()
        if asked.member_id:
            with contextlib.suppress(KafkaError, ClientError):  # the session will time out
                await self._send_leave(asked)
        if asked.is_last:
            with self._turns as machine:
                machine.left()

    async def _send_leave(self, asked: SendLeave) -> None:
        connection = await self._own_link.connect()
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
        self._own_link.require_success(cast("LeaveGroupResponse", answer).error_code)

    # Commits

    def commit(self, asked: SendCommit) -> None:
        self._spawn(self._commit(asked))

    async def _commit(self, asked: SendCommit) -> None:
        try:
            await self._send_commit(asked)
        except (KafkaError, ClientError) as error:
            await self._link.note_failure(error)
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
        answer = await self._link.call(OFFSET_COMMIT, values, _COMMIT_DROPPABLE)
        for topic in cast("OffsetCommitResponse", answer).topics:
            for row in topic.partitions:
                if row.error_code is not ErrorCode.none:
                    subject = str(TopicPartition(topic.name, row.partition_index))
                    raise error_for(row.error_code, None, subject)

    # Committed offsets

    def look_up(self, asked: LookUpCommitted) -> None:
        self._spawn(self._look_up(asked))

    async def _look_up(self, asked: LookUpCommitted) -> None:
        try:
            found = await self.committed(asked.partitions, self._timeout_seconds)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.look_ups.failed(error)
        else:
            with self._turns as machine:
                machine.found_committed(found)

    async def committed(
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
                reaction = await self._link.note_failure(error)
                if reaction is Reaction.STOP:
                    raise
                failures[:] = [error]
            await self._client.clock.sleep(self._client.backoff_seconds(attempt))
            attempt += 1

    async def _fetch_committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        group = await self._fetch_group(partitions)
        self._link.require_success(getattr(group, "error_code", ErrorCode.none))
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
        connection = await self._link.connect()
        version = connection.choose_version(OFFSET_FETCH)
        if version < _FIRST_WITH_SEVERAL_GROUPS:
            values = {**group, "require_stable": self._read_committed}
            answer = await connection.call(OFFSET_FETCH, values, _FETCH_DROPPABLE, version=version)
            return cast("SingleFetchResponse", answer)
        with self._turns as machine:
            member = machine.find_epoch_member()
        if member is not None:
            group |= {"member_id": member.member_id, "member_epoch": member.generation_id}
        values = {"groups": [group], "require_stable": self._read_committed}
        answer = await connection.call(OFFSET_FETCH, values, _FETCH_DROPPABLE, version=version)
        (found,) = cast("OffsetFetchResponse", answer).groups
        return found


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
