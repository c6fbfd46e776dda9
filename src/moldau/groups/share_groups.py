"""Share groups (KIP-932) at their coordinator: what takes more than one step, since share
coordinators have to be asked.

A shell, owned by the event loop; what is decided is in `rules.share_membership` and
`rules.share_states`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast
from uuid import UUID

from moldau.clock import Clock, finish_within
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.runtime import CoordinatorRuntime
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import ErrorCode, GroupNotFoundError
from moldau.groups.rules.answers import CodeAnswer, ConsumerHeartbeatAnswer, StateTopicsAnswer
from moldau.groups.rules.assigned_partitions import AssignedPartitions
from moldau.groups.rules.epoch_group import DescribedConsumerGroup
from moldau.groups.rules.events import (
    JOINING_EPOCH,
    AlterShareOffsets,
    DeleteGroup,
    DeleteStates,
    NewState,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
)
from moldau.groups.rules.groups import Groups
from moldau.groups.rules.outcome import InitializeStates
from moldau.groups.rules.share_group_records import StateTopics
from moldau.groups.shard import GroupShard
from moldau.groups.share_port import PartitionIds, ShareStateKeeper

INITIALIZATION_WAIT_SECONDS: Final = 2.0
"""So long a member that joins waits for the states of its partitions, rather than to hear of them
with its next heartbeat."""


class ShareGroups:
    """What handlers of share group requests talk to.

    Every method raises `KafkaError` when this broker does not coordinate the group, or not yet.
    """

    def __init__(
        self,
        leads: CoordinatorRuntime[GroupShard],
        topic: InternalTopic,
        keeper: ShareStateKeeper,
        *,
        clock: Clock,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._leads = leads
        self._topic = topic
        self._keeper = keeper
        self._clock = clock
        self._spawn = spawn
        self._initialized = _Signals()

    # Members

    async def heartbeat(self, event: ShareHeartbeat) -> ConsumerHeartbeatAnswer:
        if not self._topic.is_ready:
            await self._topic.ensure()
        answer = await self._submit(event)
        if event.epoch != JOINING_EPOCH or answer.error is not ErrorCode.none:
            return answer
        if not self._is_initializing(event.group_id):
            return answer
        with suppress(TimeoutError):  # its next heartbeats bring it then
            signal = self._initialized.next(event.group_id)
            await finish_within(signal, self._clock, INITIALIZATION_WAIT_SECONDS)
        # What it has by now; it is a member already, and says nothing new.
        again = await self._submit(replace(event, epoch=answer.epoch, topics=None))
        if again.error is not ErrorCode.none:
            return answer
        return again if again.assigned is not None else replace(again, assigned=answer.assigned)

    async def _submit(self, event: ShareHeartbeat) -> ConsumerHeartbeatAnswer:
        answer = self._leads.require(event.group_id).submit(event)
        return cast("ConsumerHeartbeatAnswer", await wait_for_answer(answer))

    def _is_initializing(self, group_id: str) -> bool:
        shard = self._leads.require(group_id)
        return shard.peek(lambda groups: groups.is_initializing(group_id))

    # States

    def initialize(self, shard: GroupShard, order: InitializeStates) -> None:
        """The machine of a shard has decided that states are needed."""
        self._spawn(f"states of share group {order.group_id}", self._initialize(shard, order))

    async def _initialize(self, shard: GroupShard, order: InitializeStates) -> None:
        asked = frozenset((one.topic_id, one.partition) for one in order.states)
        done: PartitionIds = frozenset()
        try:
            done = await self._keeper.initialize(order.group_id, order.state_epoch, order.states)
        finally:
            shard.report(StatesInitialized(group_id=order.group_id, asked=asked, done=done))
            self._initialized.wake(order.group_id)

    # Tools

    def describe(self, group_id: str) -> Eventually[DescribedConsumerGroup | None]:
        return self._leads.require(group_id).ask(lambda groups: groups.describe_takers(group_id))

    async def state_topics(self, group_id: str) -> StateTopics:
        """Where the group has a state. Raises `GroupNotFoundError` when there is no such group."""

        def find(groups: Groups) -> StateTopics | None:
            return groups.find_state_topics(group_id)

        found = await wait_for_answer(self._leads.require(group_id).ask(find))
        if found is None:
            raise GroupNotFoundError(f"there is no share group {group_id!r}")
        return found

    async def alter_offsets(
        self, group_id: str, states: Sequence[NewState], names: Mapping[UUID, str]
    ) -> tuple[ErrorCode, PartitionIds]:
        """Begin partitions anew; an error for all, and where it was done."""
        shard = self._leads.require(group_id)
        event = AlterShareOffsets(group_id=group_id, states=tuple(states), names=names)
        answer = cast("StateTopicsAnswer", await wait_for_answer(shard.submit(event)))
        if answer.error is not ErrorCode.none:
            return answer.error, frozenset()
        asked = frozenset((one.topic_id, one.partition) for one in states)
        done: PartitionIds = frozenset()
        try:
            done = await self._keeper.initialize(group_id, answer.epoch, states)
        finally:
            told = shard.submit(StatesInitialized(group_id=group_id, asked=asked, done=done))
        return cast("CodeAnswer", await wait_for_answer(told)).error, done

    async def delete_offsets(
        self, group_id: str, topic_ids: frozenset[UUID] | None
    ) -> tuple[ErrorCode, frozenset[UUID]]:
        """Forget topics, or all (None); an error for all, and which are forgotten."""
        shard = self._leads.require(group_id)
        event = DeleteStates(group_id=group_id, topic_ids=topic_ids)
        answer = cast("StateTopicsAnswer", await wait_for_answer(shard.submit(event)))
        if answer.error is not ErrorCode.none or not answer.partitions:
            return answer.error, frozenset()
        done: frozenset[UUID] = frozenset()
        asked = frozenset(answer.partitions)
        try:
            done = _whole_topics(
                answer.partitions, await self._keeper.delete(group_id, answer.partitions)
            )
        finally:
            told = shard.submit(StatesDeleted(group_id=group_id, asked=asked, done=done))
        return cast("CodeAnswer", await wait_for_answer(told)).error, done

    async def delete_group(self, event: DeleteGroup) -> CodeAnswer:
        """First what share coordinators keep for it, then the group (SHG-3)."""
        error, _ = await self.delete_offsets(event.group_id, None)
        if error is not ErrorCode.none:
            return CodeAnswer(error=error)
        if (await self.state_topics(event.group_id)).deleting:
            return CodeAnswer(error=ErrorCode.coordinator_not_available)
        shard = self._leads.require(event.group_id)
        return cast("CodeAnswer", await wait_for_answer(shard.submit(event)))


def _whole_topics(asked: AssignedPartitions, done: PartitionIds) -> frozenset[UUID]:
    return frozenset(
        topic_id
        for topic_id, partitions in asked.items()
        if all((topic_id, partition) in done for partition in partitions)
    )


class _Signals:
    """Whoever waits for the next thing to happen to a group."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def next(self, group_id: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group_id, []).append(future)
        return future

    def wake(self, group_id: str) -> None:
        for future in self._waiting.pop(group_id, []):
            if not future.done():
                future.set_result(None)
