"""A consumer's membership in its group: join, sync, heartbeat, leave (the classic protocol).

Answers for staying a member, and for coming to an assignment when the group rebalances. What
happens to partitions that come or go is its owner's business (`MembershipOwner`), as is the pace of
the program: nothing is given up while the program works on records of it.

    idle ──join wanted──> giving up ──given up──> joining ──answer──> syncing ──assigned──> stable
      ^                   (eager: all)               ^                                        │
      └── left, or the program is too slow           └──────── rebalance, new topics ─────────┘

A shell. `_run` is the task that joins; a task beside it sends heartbeats from the answer to
JoinGroup until the next JoinGroup is sent, so also while the program is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.coordinator_link import CoordinatorLink
from moldau.client.group_offsets import Identity
from moldau.client.rules.assignors import Assignor, GroupMember
from moldau.client.rules.group_errors import Reaction
from moldau.client.rules.group_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from moldau.errors import ClientError, ErrorCode, KafkaError
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import NO_GENERATION
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.join_group.v9.response import JoinGroupResponse
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.sync_group.v5.response import SyncGroupResponse

_log = logging.getLogger("moldau.consumer")

_JOIN_GRACE_SECONDS = 5.0
"""How much longer than the rebalance time-out the coordinator may take to answer a join."""

_DROPPABLE = frozenset({"group_instance_id", "reason", "protocol_type", "protocol_name"})
_FIRST_WITH_LEAVING_MEMBERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """Kafka's settings of a group member."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    instance_id: str | None = None
    rack: str | None = None


class MembershipOwner(Protocol):
    """The consumer, as its membership sees it."""

    def subscribed_topics(self) -> frozenset[str]:
        """What to ask the group for."""

    def owned_partitions(self) -> frozenset[TopicPartition]:
        """What is assigned now."""

    def idle_seconds(self) -> float:
        """How long ago the program last asked for records."""

    async def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Done when the program has dealt with what it has of them, and its offsets are
        committed. Returns early when `lose` is called meanwhile."""

    async def lose(self) -> None:
        """All partitions belong to others already."""

    async def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Done when the program was told of them."""

    async def count_partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """Of the topics that exist; asked by the leader, who looks after all members' topics."""

    def fail(self, error: KafkaError | ClientError) -> None:
        """Tell the program; the membership has ended."""


class GroupMembership:
    """One member of one group."""

    def __init__(
        self,
        client: ClusterClient,
        link: CoordinatorLink,
        assignors: Sequence[Assignor],
        settings: MembershipSettings,
        owner: MembershipOwner,
        tasks: TaskSupervisor,
    ) -> None:
        self.generation_id = NO_GENERATION
        self.member_id = ""
        self.is_stable = False  # has an assignment of the current generation
        self.leads = False
        self._client = client
        self._link = link
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._settings = settings
        self._owner = owner
        self._tasks = tasks
        self._join_wanted = asyncio.Event()
        self._reason = "the consumer has started"
        self._last_assigned: tuple[TopicPartition, ...] = ()  # what sticky assignors remember
        self._last_generation_id = NO_GENERATION
        self._runner: asyncio.Task[None] | None = None
        self._heart: asyncio.Task[None] | None = None

    @property
    def identity(self) -> Identity:
        """As whom commits are made."""
        return Identity(self.generation_id, self.member_id, self._settings.instance_id)

    @property
    def is_lost(self) -> bool:
        """The group goes on without this member, or does not know it yet."""
        return self.generation_id == NO_GENERATION

    @property
    def is_running(self) -> bool:
        return self._runner is not None and not self._runner.done()

    def start(self) -> None:
        """Join, and stay a member from now on."""
        if not self.is_running:
            self._join_wanted.set()
            self._runner = self._tasks.spawn(f"member of {self._link.group_id}", self._run())

    def request_join(self, reason: str) -> None:
        """Have the group rebalance: the subscription or the topics have changed."""
        if not self._join_wanted.is_set():
            self._reason = reason
            self._join_wanted.set()

    async def stop(self) -> None:
        """End the tasks, without a word to the coordinator."""
        await _cancel(self._runner)
        self._runner = None
        await self._stop_heartbeats()

    async def leave(self, reason: str) -> None:
        """Tell the coordinator, so that it need not wait for the session to time out.

        A static member says nothing: it means to come back.
        """
        await self._stop_heartbeats()
        member_id = self.member_id
        self._forget_membership(keep_member_id=False)
        if not member_id or self._settings.instance_id is not None:
            return
        with contextlib.suppress(KafkaError, ClientError):  # the session will time out
            await self._send_leave(member_id, reason)

    # Joining

    async def _run(self) -> None:
        attempt = 0
        while True:
            await self._join_wanted.wait()
            self._join_wanted.clear()
            try:
                await self._rebalance()
                attempt = 0
            except (KafkaError, ClientError) as error:
                if not await self._may_go_on(error):
                    await self._stop_heartbeats()
                    await self._owner.lose()
                    self._owner.fail(error)
                    return
                self._join_wanted.set()
                # A new member id, or a rebalance that goes on, is no reason to wait.
                if self._needs_pause(error):
                    delay = self._client.backoff_seconds(attempt)
                    await self._client.clock.sleep(delay)
                    attempt += 1

    async def _may_go_on(self, error: KafkaError | ClientError) -> bool:
        reaction = await self._link.note_failure(error)
        if reaction is Reaction.START_OVER:
            _log.info("group %s has lost this member: %s", self._link.group_id, error)
            await self._stop_heartbeats()
            self._forget_membership(keep_member_id=_keeps_member_id(error))
            await self._owner.lose()
        return reaction is not Reaction.STOP

    def _needs_pause(self, error: KafkaError | ClientError) -> bool:
        return not isinstance(error, KafkaError) or error.code not in (
            ErrorCode.member_id_required,
            ErrorCode.rebalance_in_progress,
        )

    async def _rebalance(self) -> None:
        self.is_stable = False
        await self._owner.give_up(self._to_give_up())
        await self._stop_heartbeats()
        self._join_wanted.clear()  # whatever was wanted up to now, this join is for it
        joined = await self._join()
        self._start_heartbeats()
        assignment = await self._sync(joined)
        await self._take_over(joined, assignment)

    def _to_give_up(self) -> frozenset[TopicPartition]:
        """Before joining: everything, or what is not subscribed to any more."""
        owned = self._owner.owned_partitions()
        if not self._is_cooperative:
            return owned
        topics = self._owner.subscribed_topics()
        return frozenset(one for one in owned if one.topic not in topics)

    async def _join(self) -> JoinGroupResponse:
        settings = self._settings
        values = {
            "group_id": self._link.group_id,
            "session_timeout": settings.session_timeout_ms,
            "rebalance_timeout": settings.max_poll_interval_ms,
            "member_id": self.member_id,
            "group_instance_id": settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [
                {"name": assignor.name, "metadata": encode_subscription(self._subscribe(assignor))}
                for assignor in self._assignors.values()
            ],
            "reason": self._reason,
        }
        patience = settings.max_poll_interval_ms / 1000 + _JOIN_GRACE_SECONDS
        answer = cast(
            "JoinGroupResponse",
            await self._link.call(JOIN_GROUP, values, _DROPPABLE, extra_seconds=patience),
        )
        if answer.error_code is ErrorCode.member_id_required:
            self.member_id = answer.member_id
        self._check(answer.error_code)
        self.member_id = answer.member_id
        self.generation_id = answer.generation_id
        return answer

    def _subscribe(self, assignor: Assignor) -> Subscription:
        owned = tuple(self._owner.owned_partitions())
        return Subscription(
            topics=tuple(self._owner.subscribed_topics()),
            user_data=assignor.user_data(self._last_assigned, self._last_generation_id),
            owned_partitions=owned,
            generation_id=self.generation_id,
            rack_id=self._settings.rack,
        )

    async def _sync(self, joined: JoinGroupResponse) -> Assignment:
        self.leads = joined.leader == joined.member_id
        protocol = joined.protocol_name
        assignments: Mapping[str, bytes] = {}
        if self.leads and not getattr(joined, "skip_assignment", False):
            assignments = await self._assign(joined)
        values = {
            "group_id": self._link.group_id,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": self._settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": protocol,
            "assignments": [
                {"member_id": member_id, "assignment": data}
                for member_id, data in assignments.items()
            ],
        }
        patience = self._settings.max_poll_interval_ms / 1000
        answer = cast(
            "SyncGroupResponse",
            await self._link.call(SYNC_GROUP, values, _DROPPABLE, extra_seconds=patience),
        )
        self._check(answer.error_code)
        return decode_assignment(answer.assignment)

    async def _assign(self, joined: JoinGroupResponse) -> Mapping[str, bytes]:
        """As the leader: who reads what."""
        assignor = self._assignors.get(joined.protocol_name or "")
        if assignor is None:
            raise error_for(
                ErrorCode.inconsistent_group_protocol,
                f"the coordinator chose the assignor {joined.protocol_name!r}, which was not "
                "offered",
            )
        members = [
            GroupMember(
                row.member_id,
                getattr(row, "group_instance_id", None),  # from version 5 on
                decode_subscription(row.metadata),
            )
            for row in joined.members
        ]
        topics = {topic for member in members for topic in member.subscription.topics}
        counts = await self._owner.count_partitions(topics)
        assigned = assignor.assign(counts, members)
        return {
            member_id: encode_assignment(Assignment(tuple(partitions)))
            for member_id, partitions in assigned.items()
        }

    async def _take_over(self, joined: JoinGroupResponse, assignment: Assignment) -> None:
        assigned = frozenset(assignment.partitions)
        self._last_assigned = tuple(sorted(assigned))
        self._last_generation_id = joined.generation_id
        owned = self._owner.owned_partitions()
        _log.info(
            "member %s of group %s, generation %d: %s",
            self.member_id,
            self._link.group_id,
            joined.generation_id,
            ", ".join(map(str, sorted(assigned))) or "nothing",
        )
        given_up = owned - assigned
        if given_up:
            await self._owner.give_up(given_up)
        if self.generation_id != joined.generation_id:
            return  # lost while the program was waited for
        self.is_stable = True
        if given_up:
            # Only now somebody else may have them.
            self.request_join("partitions were given up for other members")
        await self._owner.take_over(assigned - owned)

    # Heartbeats

    def _start_heartbeats(self) -> None:
        name = f"heartbeats to {self._link.group_id}"
        self._heart = self._tasks.spawn(name, self._beat())

    async def _stop_heartbeats(self) -> None:
        heart, self._heart = self._heart, None
        await _cancel(heart)

    async def _beat(self) -> None:
        settings = self._settings
        failures = 0
        while True:
            delay = settings.heartbeat_interval_ms / 1000
            if failures:
                backoff = self._client.backoff_seconds(failures - 1)
                delay = min(delay, backoff)
            await self._client.clock.sleep(delay)
            if self._owner.idle_seconds() > settings.max_poll_interval_ms / 1000:
                await self._leave_for_slowness()
                return
            try:
                await self._send_heartbeat()
                failures = 0
            except (KafkaError, ClientError) as error:
                failures += 1
                if not await self._take_heartbeat_error(error):
                    return

    async def _take_heartbeat_error(self, error: KafkaError | ClientError) -> bool:
        """Whether to go on."""
        reaction = await self._link.note_failure(error)
        if reaction is Reaction.REJOIN:
            self.request_join("the group rebalances")
            return True
        if reaction is Reaction.START_OVER:
            _log.info("group %s has lost this member: %s", self._link.group_id, error)
            self._forget_membership(keep_member_id=_keeps_member_id(error))
            await self._owner.lose()
            self.request_join("the member was forgotten")
            return False
        if reaction is Reaction.STOP:
            self._forget_membership(keep_member_id=False)
            await self._owner.lose()
            self._owner.fail(error)
            return False
        return True

    async def _leave_for_slowness(self) -> None:
        _log.warning(
            "the program asked for no records for more than max.poll.interval.ms=%d; leaving "
            "group %s, until it does",
            self._settings.max_poll_interval_ms,
            self._link.group_id,
        )
        member_id = self.member_id
        self._forget_membership(keep_member_id=False)
        if member_id and self._settings.instance_id is None:
            with contextlib.suppress(KafkaError, ClientError):
                await self._send_leave(member_id, "max.poll.interval.ms has passed")
        await self._owner.lose()
        self.request_join("the program asks for records again")

    async def _send_heartbeat(self) -> None:
        values = {
            "group_id": self._link.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self._settings.instance_id,
        }
        answer = await self._link.call(HEARTBEAT, values, _DROPPABLE)
        self._check(cast("HeartbeatResponse", answer).error_code)

    async def _send_leave(self, member_id: str, reason: str) -> None:
        connection = await self._link.connect()
        version = connection.choose_version(LEAVE_GROUP)
        values: dict[str, object] = {"group_id": self._link.group_id}
        if version < _FIRST_WITH_LEAVING_MEMBERS:
            values["member_id"] = member_id
        else:
            values["members"] = [
                {"member_id": member_id, "group_instance_id": None, "reason": reason}
            ]
        answer = await connection.call(LEAVE_GROUP, values, _DROPPABLE, version=version)
        self._check(cast("LeaveGroupResponse", answer).error_code)

    def _forget_membership(self, *, keep_member_id: bool) -> None:
        self.generation_id = NO_GENERATION
        self.is_stable = False
        self.leads = False
        if not keep_member_id:
            self.member_id = ""

    def _check(self, code: ErrorCode) -> None:
        if code is not ErrorCode.none:
            raise error_for(code, None, f"group {self._link.group_id!r}")


def _keeps_member_id(error: KafkaError | ClientError) -> bool:
    """An old generation of a member that the coordinator still knows by its id."""
    return isinstance(error, KafkaError) and error.code is ErrorCode.illegal_generation


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is None or task.done() or task is asyncio.current_task():
        return
    task.cancel()
    await asyncio.wait((task,))
