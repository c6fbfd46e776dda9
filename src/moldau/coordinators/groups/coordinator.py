"""The group coordinator of one broker: its shards, and the way of a request to the right one.

A group belongs to a partition of the offsets topic, and whoever leads that partition coordinates
the group. This module sends requests to the shard, and looks for expired offsets from time to time.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol, TypeVar
from uuid import UUID, uuid4

from moldau.clock import finish_within
from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.classic_group import ClassicGroup, DescribedGroup
from moldau.coordinators.groups.rules.commits import FoundOffsets, find_offsets
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.epoch_group import DescribedConsumerGroup
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    AlterShareOffsets,
    CodeAnswer,
    ConsumerHeartbeatAnswer,
    DeleteGroup,
    DeleteStates,
    DeleteTopics,
    ExpireOffsets,
    GroupRequest,
    ListedGroup,
    NewState,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
)
from moldau.coordinators.groups.rules.groups import AnyGroup, Groups
from moldau.coordinators.groups.rules.outcome import InitializeStates, LogMessage, group_limits_of
from moldau.coordinators.groups.rules.records import (
    CoordinatorRecord,
    StoredRecord,
    decode,
    decode_transactional,
    encode,
)
from moldau.coordinators.groups.rules.share_group import ShareGroup
from moldau.coordinators.groups.rules.share_records import StateTopics
from moldau.coordinators.groups.rules.streams_group import DescribedStreamsGroup, StreamsGroup
from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.log import CoordinatorLogFormat
from moldau.coordinators.runtime.runtime import CoordinatorPorts, CoordinatorRuntime
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    GroupNotFoundError,
    NotCoordinatorError,
)
from moldau.model import GROUP_OFFSETS_TOPIC, NO_SEQUENCE, TopicPartition, format_uuid
from moldau.records.compression import Codec
from moldau.records.record_batch import EndTransactionMarker
from moldau.replication.partition import Partition

A = TypeVar("A")
K = TypeVar("K", ClassicGroup, ConsumerGroup, ShareGroup, StreamsGroup)
PartitionIds = frozenset[tuple[UUID, int]]

INITIALIZATION_WAIT_SECONDS: Final = 2.0
"""So long a member of a share group that joins waits for the states of its partitions, rather than
to hear of them with its next heartbeat."""


class StatePersister(Protocol):
    """Asks the share coordinators, wherever they are; raises nothing. They keep, for the leaders of
    partitions, how far a share group has come in each of them."""

    async def initialize(
        self, group_id: str, state_epoch: int, states: Sequence[NewState]
    ) -> PartitionIds:
        """Have states begun; those that were."""
        ...

    async def delete(self, group_id: str, partitions: AssignedPartitions) -> PartitionIds:
        """Have states forgotten; those that were."""
        ...


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """What handlers of group requests talk to.

    Every method that asks for something of one group raises `KafkaError` when this broker does not
    coordinate the group, or not yet.
    """

    _NOUN = "group"

    def __init__(
        self,
        topic: InternalTopic,
        ports: CoordinatorPorts,
        *,
        persister: StatePersister,
        make_uuid: Callable[[], UUID] = uuid4,
        on_message: Callable[[LogMessage], None] = lambda message: None,
    ) -> None:
        super().__init__(topic, ports)
        self._persister = persister
        self._make_uuid = make_uuid
        self._on_message = on_message
        self._initialized = _Signals()

    def _make_shard(self, partition: Partition) -> GroupShard:
        log_format: CoordinatorLogFormat[StoredRecord, CoordinatorRecord] = CoordinatorLogFormat(
            encode=encode,
            decode=decode,
            codec=lambda: Codec(self._options().offsets_topic_compression_codec),
            load_buffer_bytes=lambda: self._options().offsets_load_buffer_size,
            decode_transactional=decode_transactional,
        )
        return GroupShard(
            str(partition.topic_partition),
            self._open_log(partition, log_format),
            limits=group_limits_of(self._options()),
            clock=self._clock,
            image=self._image,
            commit_timeout_ms=lambda: self._options().offsets_commit_timeout_ms,
            on_message=self._on_message,
            initialize=self._initialize_states,
            on_loaded=self._forget_deleted_topics,
        )

    def new_member_id(self, prefix: str) -> str:
        """An id for somebody who has none: readable, and nobody else's."""
        return f"{prefix}-{self._make_uuid()}"

    def new_consumer_id(self) -> str:
        """For a member of a consumer group that made none itself, in the form that Kafka has."""
        return format_uuid(self._make_uuid())

    # Requests

    def submit(self, event: GroupRequest[A]) -> Eventually[A]:
        if not event.creates_topic or self.topic.is_ready:
            return self.require_shard(event.group_id).submit(event)
        return self._submit_with_topic(event)

    async def _submit_with_topic(self, event: GroupRequest[A]) -> A:
        await self.topic.ensure()
        return await wait_for_answer(self.require_shard(event.group_id).submit(event))

    def _read_group(
        self, group_id: str, kind: type[K], read: Callable[[K, Groups], A]
    ) -> Eventually[A | None]:
        """None when there is no group of this kind."""

        def read_group(groups: Groups) -> A | None:
            group = groups.find(group_id)
            return read(group, groups) if isinstance(group, kind) else None

        return self.require_shard(group_id).read_state(read_group)

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
        return self.require_shard(group_id).read_state(
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
        self.require_shard(group_id)
        partition = self.require_partition(group_id)
        verification = partition.log.producers.begin_verification(
            producer_id, producer_epoch, NO_SEQUENCE, bumps_epochs=bumps_epochs
        )
        return partition.topic_partition, verification

    def end_verification(self, group_id: str, producer_id: int, verification: int) -> None:
        """Nothing was committed after all."""
        with suppress(NotCoordinatorError):
            partition = self.require_partition(group_id)
            partition.end_verification(producer_id, verification)

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
        shard = self.find_shard(number)
        if shard is None:
            raise CoordinatorLoadInProgressError(f"{GROUP_OFFSETS_TOPIC}-{number} is not loaded")
        return shard.end_transaction(marker, producer_id, producer_epoch, transaction_version)

    # Tools

    def describe_group(self, group_id: str) -> Eventually[DescribedGroup | None]:
        return self._read_group(group_id, ClassicGroup, lambda group, _: group.describe())

    def describe_consumer_group(self, group_id: str) -> Eventually[DescribedConsumerGroup | None]:
        return self._read_group(
            group_id, ConsumerGroup, lambda group, groups: group.describe(groups.limits)
        )

    def describe_share_group(self, group_id: str) -> Eventually[DescribedConsumerGroup | None]:
        return self._read_group(
            group_id, ShareGroup, lambda group, groups: group.describe(groups.limits)
        )

    def describe_streams_group(self, group_id: str) -> Eventually[DescribedStreamsGroup | None]:
        return self._read_group(
            group_id, StreamsGroup, lambda group, _: group.describe(self._image())
        )

    async def list_groups(self) -> list[ListedGroup]:
        """The groups that this broker coordinates. Raises `KafkaError` while some of them are
        being loaded; those that another broker coordinates by now, that one tells."""
        found: list[ListedGroup] = []
        for shard in self:
            with suppress(NotCoordinatorError):
                found += await wait_for_answer(shard.read_state(Groups.listed))
        return found

    def each_group(self) -> Iterator[AnyGroup]:
        """The groups that are loaded here, as they are now; not to be changed."""
        for shard in self:
            yield from shard.groups

    def delete_group(self, event: DeleteGroup) -> Eventually[CodeAnswer]:
        shard = self.require_shard(event.group_id)
        if isinstance(shard.peek_state(lambda groups: groups.find(event.group_id)), ShareGroup):
            return self._delete_share_group(event)
        return shard.submit(event)

    # Share groups: share coordinators have to be asked

    async def share_heartbeat(self, event: ShareHeartbeat) -> ConsumerHeartbeatAnswer:
        answer = await wait_for_answer(self.submit(event))
        if event.epoch != JOINING_EPOCH or answer.error is not ErrorCode.none:
            return answer
        shard = self.require_shard(event.group_id)
        if not shard.peek_state(lambda groups: groups.is_initializing(event.group_id)):
            return answer
        with suppress(TimeoutError):  # its next heartbeats bring it then
            signal = self._initialized.wait_for_next(event.group_id)
            await finish_within(signal, self._clock, INITIALIZATION_WAIT_SECONDS)
        # What it has by now; it is a member already, and says nothing new.
        again = await wait_for_answer(self.submit(replace(event, epoch=answer.epoch, topics=None)))
        if again.error is not ErrorCode.none:
            return answer
        return again if again.assigned is not None else replace(again, assigned=answer.assigned)

    def _initialize_states(self, shard: GroupShard, order: InitializeStates) -> None:
        """The machine of a shard has decided that states are needed."""

        async def initialize() -> None:
            asked = frozenset((one.topic_id, one.partition) for one in order.states)
            done: PartitionIds = frozenset()
            try:
                done = await self._persister.initialize(
                    order.group_id, order.state_epoch, order.states
                )
            finally:
                shard.report(StatesInitialized(group_id=order.group_id, asked=asked, done=done))
                self._initialized.wake(order.group_id)

        self._spawn(f"states of share group {order.group_id}", initialize())

    async def find_state_topics(self, group_id: str) -> StateTopics:
        """Where a share group has a state. Raises `GroupNotFoundError` when there is no such
        group."""
        found = await wait_for_answer(
            self._read_group(group_id, ShareGroup, lambda group, _: group.state_topics)
        )
        if found is None:
            raise GroupNotFoundError(f"there is no share group {group_id!r}")
        return found

    async def alter_share_offsets(
        self, group_id: str, states: Sequence[NewState], names: Mapping[UUID, str]
    ) -> tuple[ErrorCode, PartitionIds]:
        """Begin partitions anew; an error for all, and where it was done."""
        shard = self.require_shard(group_id)
        event = AlterShareOffsets(group_id=group_id, states=tuple(states), names=names)
        answer = await wait_for_answer(shard.submit(event))
        if answer.error is not ErrorCode.none:
            return answer.error, frozenset()
        asked = frozenset((one.topic_id, one.partition) for one in states)
        done: PartitionIds = frozenset()
        try:
            done = await self._persister.initialize(group_id, answer.epoch, states)
        finally:
            told = shard.submit(StatesInitialized(group_id=group_id, asked=asked, done=done))
        return (await wait_for_answer(told)).error, done

    async def delete_share_offsets(
        self, group_id: str, topic_ids: frozenset[UUID] | None
    ) -> tuple[ErrorCode, frozenset[UUID]]:
        """Forget topics, or all (None); an error for all, and which are forgotten."""
        shard = self.require_shard(group_id)
        event = DeleteStates(group_id=group_id, topic_ids=topic_ids)
        answer = await wait_for_answer(shard.submit(event))
        if answer.error is not ErrorCode.none or not answer.partitions:
            return answer.error, frozenset()
        done: frozenset[UUID] = frozenset()
        asked = frozenset(answer.partitions)
        try:
            deleted = await self._persister.delete(group_id, answer.partitions)
            done = frozenset(
                topic_id
                for topic_id, partitions in answer.partitions.items()
                if all((topic_id, partition) in deleted for partition in partitions)
            )
        finally:
            told = shard.submit(StatesDeleted(group_id=group_id, asked=asked, done=done))
        return (await wait_for_answer(told)).error, done

    async def _delete_share_group(self, event: DeleteGroup) -> CodeAnswer:
        """First what share coordinators keep for it, then the group (SHG-3)."""
        error, _ = await self.delete_share_offsets(event.group_id, None)
        if error is not ErrorCode.none:
            return CodeAnswer(error=error)
        if (await self.find_state_topics(event.group_id)).deleting:
            return CodeAnswer(error=ErrorCode.coordinator_not_available)
        return await wait_for_answer(self.require_shard(event.group_id).submit(event))

    # Following the cluster

    def refresh_options(self) -> None:
        """The broker's options have changed."""
        limits = group_limits_of(self._options())
        for shard in self:
            shard.set_limits(limits)

    def forget_topics(self, names: frozenset[str]) -> None:
        """Topics were deleted: so are the offsets that belong to them (GRP-10)."""
        if names and (shards := tuple(self)):
            self._spawn("forgetting of deleted topics", self._forget_topics(shards, names))

    def _forget_deleted_topics(self, shard: GroupShard) -> None:
        """Topics may have been deleted while no broker had this shard loaded."""
        self._spawn("forgetting of deleted topics", self._forget_topics((shard,), None))

    async def _forget_topics(
        self, shards: Iterable[GroupShard], names: frozenset[str] | None
    ) -> None:
        await self._report_all(
            shards,
            lambda shard: (DeleteTopics(group_id=one, topics=names) for one in shard.group_ids),
        )

    async def run_expiry(self) -> None:
        """Look for what is too old to keep, for ever."""
        while True:
            await self._clock.sleep(self._options().offsets_retention_check_interval_ms / 1000)
            await self._expire_offsets()

    async def _expire_offsets(self) -> None:
        await self._report_all(
            self, lambda shard: (ExpireOffsets(group_id=one) for one in shard.group_ids)
        )


class _Signals:
    """Requests that wait for the next thing to happen to a group."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def wait_for_next(self, group_id: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group_id, []).append(future)
        return future

    def wake(self, group_id: str) -> None:
        for future in self._waiting.pop(group_id, []):
            if not future.done():
                future.set_result(None)
