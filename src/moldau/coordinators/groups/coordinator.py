"""The group coordinator of one broker: its shards, and the way of a request to the right one.

A group belongs to a partition of the offsets topic, and whoever leads that partition coordinates
the group. This module sends requests to the shard, and looks for expired offsets from time to time.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from uuid import UUID, uuid4

from moldau.clock import Clock, finish_within
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.commits import FoundOffsets, find_offsets
from moldau.coordinators.groups.rules.epoch_group import DescribedConsumerGroup
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    AlterShareOffsets,
    CodeAnswer,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DeleteGroup,
    DeleteOffsets,
    DeleteStates,
    DeleteTopics,
    ExpireOffsets,
    GroupEvent,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    ListedGroup,
    NewState,
    PartitionsAnswer,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
    StateTopicsAnswer,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    Sync,
    SyncAnswer,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import InitializeStates, LogMessage, group_limits_of
from moldau.coordinators.groups.rules.records import (
    CoordinatorRecord,
    StoredRecord,
    decode,
    decode_transactional,
    encode,
)
from moldau.coordinators.groups.rules.share_records import StateTopics
from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.log import CoordinatorLog, CoordinatorLogFormat
from moldau.coordinators.runtime.runtime import CoordinatorRuntime, ShardDuties
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    GroupNotFoundError,
    NotCoordinatorError,
)
from moldau.model import GROUP_OFFSETS_TOPIC, NO_SEQUENCE, BrokerId, TopicPartition, format_uuid
from moldau.records.compression import Codec
from moldau.records.record_batch import EndTransactionMarker
from moldau.replication.partition import Partition
from moldau.workers import Workers

if TYPE_CHECKING:
    from moldau.coordinators.groups.rules.classic_group import DescribedGroup
    from moldau.coordinators.groups.rules.groups import AnyGroup
    from moldau.coordinators.groups.rules.streams_group import DescribedStreamsGroup


_GROUPS_AT_ONCE = 100
"""Groups that are looked at before the event loop gets a turn."""


class GroupCoordinator:
    """What handlers of group requests talk to.

    Every method that asks for something of one group raises `KafkaError` when this broker does not
    coordinate the group, or not yet. What it consists of is loaded with the first shard: a broker
    without groups starts without it.
    """

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        topic: InternalTopic,
        image: Callable[[], MetadataImage],
        options: Callable[[], BrokerOptions],
        clock: Clock,
        workers: Workers,
        duties: ShardDuties,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
        share_states: Callable[[], StatePersister],
        make_uuid: Callable[[], UUID] = uuid4,
        on_message: Callable[[LogMessage], None] = lambda message: None,
    ) -> None:
        self.topic = topic
        self._on_message = on_message
        self._image = image
        self._options = options
        self._clock = clock
        self._workers = workers
        self._duties = duties
        self._spawn = spawn
        self._make_uuid = make_uuid
        self._share_states = share_states
        self._shares: ShareGroups | None = None
        self._leads: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            topic,
            self._make_shard,
            noun="group",
            broker_id=broker_id,
            clock=clock,
            duties=duties,
        )

    @property
    def shares(self) -> ShareGroups:
        if self._shares is None:
            self._shares = ShareGroups(
                self._leads,
                self.topic,
                self._share_states(),
                clock=self._clock,
                spawn=self._spawn,
            )
        return self._shares

    def _make_shard(self, partition: Partition) -> GroupShard:
        log_format: CoordinatorLogFormat[StoredRecord, CoordinatorRecord] = CoordinatorLogFormat(
            encode=encode,
            decode=decode,
            codec=lambda: Codec(self._options().offsets_topic_compression_codec),
            load_buffer_bytes=lambda: self._options().offsets_load_buffer_size,
            decode_transactional=decode_transactional,
        )
        log = CoordinatorLog(
            partition,
            log_format,
            clock=self._clock,
            workers=self._workers,
            require=self._duties.require,
        )
        return GroupShard(
            str(partition.topic_partition),
            log,
            limits=group_limits_of(self._options()),
            clock=self._clock,
            image=self._image,
            commit_timeout_ms=lambda: self._options().offsets_commit_timeout_ms,
            on_message=self._on_message,
            initialize=lambda shard, order: self.shares.initialize(shard, order),
            on_loaded=self._forget_deleted_topics,
        )

    def new_member_id(self, prefix: str) -> str:
        """An id for somebody who has none: readable, and nobody else's."""
        return f"{prefix}-{self._make_uuid()}"

    def new_consumer_id(self) -> str:
        """For a member of a consumer group that made none itself, in the form that Kafka has."""
        return format_uuid(self._make_uuid())

    # Members

    def join(self, event: Join) -> Eventually[JoinAnswer]:
        return cast("Eventually[JoinAnswer]", self._submit_making_topic(event))

    def sync(self, event: Sync) -> Eventually[SyncAnswer]:
        return cast("Eventually[SyncAnswer]", self._submit(event))

    def heartbeat(self, event: Heartbeat) -> Eventually[CodeAnswer]:
        return cast("Eventually[CodeAnswer]", self._submit(event))

    def leave(self, event: Leave) -> Eventually[LeaveAnswer]:
        return cast("Eventually[LeaveAnswer]", self._submit(event))

    def consumer_heartbeat(self, event: ConsumerHeartbeat) -> Eventually[ConsumerHeartbeatAnswer]:
        return cast("Eventually[ConsumerHeartbeatAnswer]", self._submit_making_topic(event))

    def streams_heartbeat(self, event: StreamsHeartbeat) -> Eventually[StreamsHeartbeatAnswer]:
        return cast("Eventually[StreamsHeartbeatAnswer]", self._submit_making_topic(event))

    # Positions

    def commit_offsets(self, event: CommitOffsets) -> Eventually[PartitionsAnswer]:
        return cast("Eventually[PartitionsAnswer]", self._submit_making_topic(event))

    def delete_offsets(self, event: DeleteOffsets) -> Eventually[PartitionsAnswer]:
        return cast("Eventually[PartitionsAnswer]", self._submit(event))

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Mapping[str, Sequence[int]] | None,
        member: tuple[str, int] | None = None,
        *,
        require_stable: bool = False,
    ) -> Eventually[FoundOffsets]:
        """The committed offsets in some partitions by topic, or all of them (None).

        `member` is the id and the epoch of the member of a consumer group that asks. With
        `require_stable` those that an open transaction may change are not told (KIP-447).
        """
        return self._leads.require(group_id).ask(
            lambda groups: find_offsets(
                groups.find(group_id),
                wanted,
                member,
                require_stable=require_stable,
                image=self._image(),
            )
        )

    # Transactions

    async def begin_verification(
        self, group_id: str, producer_id: int, producer_epoch: int, *, bumps_epochs: bool
    ) -> tuple[TopicPartition, int]:
        """The partition of a group, and what the log asks for before the transaction of a producer
        may begin in it (`Partition.begin_verification`)."""
        if not self.topic.is_ready:
            await self.topic.ensure()
        self._leads.require(group_id)
        partition = self._leads.require_partition(group_id)
        verification = partition.log.producers.begin_verification(
            producer_id, producer_epoch, NO_SEQUENCE, bumps_epochs=bumps_epochs
        )
        return partition.topic_partition, verification

    def end_verification(self, group_id: str, producer_id: int, verification: int) -> None:
        """Nothing was committed after all."""
        with suppress(NotCoordinatorError):
            partition = self._leads.require_partition(group_id)
            partition.end_verification(producer_id, verification)

    def commit_transaction_offsets(
        self, event: CommitTransactionOffsets
    ) -> Eventually[PartitionsAnswer]:
        return cast("Eventually[PartitionsAnswer]", self._submit(event))

    def end_transaction(
        self,
        number: int,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> int:
        """Log the end of a producer's transaction in a partition of the offsets topic; the offset
        up to which it has to be committed before the transaction coordinator is told."""
        shard = self._leads.find(number)
        if shard is None:
            raise CoordinatorLoadInProgressError(f"{GROUP_OFFSETS_TOPIC}-{number} is not loaded")
        return shard.end_transaction(marker, producer_id, producer_epoch, transaction_version)

    # Tools

    def describe_group(self, group_id: str) -> Eventually[DescribedGroup | None]:
        return self._leads.require(group_id).ask(lambda groups: groups.describe(group_id))

    def describe_consumer_group(self, group_id: str) -> Eventually[DescribedConsumerGroup | None]:
        return self._leads.require(group_id).ask(lambda groups: groups.describe_consumers(group_id))

    def describe_streams_group(self, group_id: str) -> Eventually[DescribedStreamsGroup | None]:
        return self._leads.require(group_id).ask(
            lambda groups: groups.describe_streams(group_id, self._image())
        )

    async def list_groups(self) -> list[ListedGroup]:
        """The groups that this broker coordinates. Raises `KafkaError` while some of them are
        being loaded; those that another broker coordinates by now, that one tells."""
        found: list[ListedGroup] = []
        for shard in self._leads:
            with suppress(NotCoordinatorError):
                found += await wait_for_answer(shard.ask(lambda groups: groups.listed()))
        return found

    def each_group(self) -> Iterator[AnyGroup]:
        """The groups that are loaded here, as they are now; not to be changed."""
        for shard in self._leads:
            yield from shard.groups

    def delete_group(self, event: DeleteGroup) -> Eventually[CodeAnswer]:
        shard = self._leads.require(event.group_id)
        if shard.peek(lambda groups: groups.find_state_topics(event.group_id)) is not None:
            return self.shares.delete_group(event)
        return cast("Eventually[CodeAnswer]", shard.submit(event))

    # The way to the shard

    def _submit(self, event: GroupEvent) -> Eventually[object]:
        return self._leads.require(event.group_id).submit(event)

    def _submit_making_topic(self, event: GroupEvent) -> Eventually[object]:
        if self.topic.is_ready:
            return self._submit(event)
        return self._submit_with_topic(event)

    async def _submit_with_topic(self, event: GroupEvent) -> object:
        await self.topic.ensure()
        return await wait_for_answer(self._submit(event))

    # Following the cluster

    def on_partition_changed(
        self, topic_partition: TopicPartition, partition: Partition | None
    ) -> None:
        """A partition was opened, dropped (None), or has another leader."""
        self._leads.on_partition_changed(topic_partition, partition)

    def refresh_options(self) -> None:
        """The broker's options have changed."""
        if self._leads:
            limits = group_limits_of(self._options())
            for shard in self._leads:
                shard.set_limits(limits)

    def forget_topics(self, names: frozenset[str]) -> None:
        """Topics were deleted: so are the offsets that belong to them (GRP-10)."""
        if names and self._leads:
            self._spawn(
                "forgetting of deleted topics", self._forget_topics(tuple(self._leads), names)
            )

    def _forget_deleted_topics(self, shard: GroupShard) -> None:
        """Topics may have been deleted while no broker had this shard loaded."""
        self._spawn("forgetting of deleted topics", self._forget_topics((shard,), None))

    async def _forget_topics(
        self, shards: Sequence[GroupShard], names: frozenset[str] | None
    ) -> None:
        await self._send_to_groups(
            shards, lambda group_id: DeleteTopics(group_id=group_id, topics=names)
        )

    # Time

    async def run_expiry(self) -> None:
        """Look for what is too old to keep, for ever."""
        while True:
            await self._clock.sleep(self._options().offsets_retention_check_interval_ms / 1000)
            await self._expire_offsets()

    async def _expire_offsets(self) -> None:
        if not self._leads:
            return

        await self._send_to_groups(
            tuple(self._leads), lambda group_id: ExpireOffsets(group_id=group_id)
        )

    async def _send_to_groups(
        self, shards: Sequence[GroupShard], event_for: Callable[[str], GroupEvent]
    ) -> None:
        for shard in shards:
            for count, group_id in enumerate(shard.group_ids, start=1):
                shard.report(event_for(group_id))
                if count % _GROUPS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def close(self) -> None:
        """Stop coordinating; nothing is logged, so the members find their group again."""
        self._leads.close()


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
        keeper: StatePersister,
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


PartitionIds = frozenset[tuple[UUID, int]]


class StatePersister(Protocol):
    """Asks the share coordinators, wherever they are; raises nothing."""

    async def initialize(
        self, group_id: str, state_epoch: int, states: Sequence[NewState]
    ) -> PartitionIds:
        """Have states begun; those that were."""
        ...

    async def delete(self, group_id: str, partitions: AssignedPartitions) -> PartitionIds:
        """Have states forgotten; those that were."""
        ...
