"""Finds out where to begin: committed offsets, offsets by time, and whether a position still holds.

A shell around `rules.offset_positions`: one task, owned by the consumer. It looks up what the
partitions need, and tries again while that fails for the moment.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from moldau.client.admin_logs import LogAdmin
from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.group_offsets import GroupOffsets
from moldau.client.rules.delivery import Position
from moldau.client.rules.offset_positions import Need, PartitionState, PartitionTable
from moldau.client.rules.retries import may_retry
from moldau.errors import ClientError, ErrorCode, KafkaError, NoOffsetError, OperationTimeoutError
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import CONSUMER, LATEST_TIMESTAMP, NO_OFFSET
from moldau.wire.apis import OFFSET_FOR_LEADER_EPOCH

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse

_EPOCH_DROPPABLE = frozenset({"replica_id"})


class PositionKeeper:
    """Looks up positions for the partitions that need one."""

    def __init__(
        self,
        client: ClusterClient,
        table: PartitionTable,
        offsets: GroupOffsets | None,
        *,
        read_committed: bool,
        timeout_seconds: float,
        on_found: Callable[[], None],
        on_void: Callable[[TopicPartition], None],
        on_failure: Callable[[KafkaError | ClientError], None],
    ) -> None:
        self._client = client
        self._table = table
        self._offsets = offsets
        self._read_committed = read_committed
        self._timeout_seconds = timeout_seconds
        self._on_found = on_found
        self._on_void = on_void
        self._on_failure = on_failure
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Look for partitions that need a position."""
        self._wanted.set()

    async def run(self) -> None:
        attempt = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._look_up()
                attempt = 0
            except (KafkaError, ClientError) as error:
                if not may_retry(error, 0, wait_for_cluster=True) and not isinstance(
                    error, OperationTimeoutError
                ):
                    self._on_failure(error)  # the program's next poll wants them again
                    continue
                self._wanted.set()
                delay = self._client.backoff_seconds(attempt)
                await self._client.clock.sleep(delay)
                attempt += 1

    async def _look_up(self) -> None:
        await self._look_up_committed()
        await self._look_up_times()
        await self._validate()
        self._on_found()

    def _needing(self, need: Need) -> list[PartitionState]:
        return [state for state in self._table if state.need is need and not state.is_held]

    async def _look_up_committed(self) -> None:
        needing = self._needing(Need.COMMITTED)
        if not needing or self._offsets is None:
            return
        partitions = [state.partition for state in needing]
        found = await self._offsets.committed(partitions, self._timeout_seconds)
        failure: NoOffsetError | None = None
        for partition, committed in found.items():
            position = None
            if committed is not None:
                position = Position(committed.offset, committed.leader_epoch)
            try:
                self._table.found_committed(partition, position)
            except NoOffsetError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _look_up_times(self) -> None:
        needing = self._needing(Need.RESET)
        now_ms = self._client.clock.now_ms()
        wanted = {state.partition: self._table.choose_timestamp(state, now_ms) for state in needing}
        epochs = {state.partition: state.epoch for state in needing}
        for partition, position in (await self.find_offsets(wanted)).items():
            self._table.found_offset(partition, epochs[partition], position)

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
            read_committed=self._read_committed,
            timeout_ms=round(self._timeout_seconds * 1000),
        )
        found: dict[TopicPartition, Position] = {}
        for partition, answer in listed.items():
            if isinstance(answer, KafkaError):
                raise answer
            # The epoch belongs to the record at the offset, not to the one before it.
            found[partition] = Position(answer.offset)
        return found

    async def _validate(self) -> None:
        """Ask the new leaders whether they have what was read from the old ones (KIP-320)."""
        by_leader: defaultdict[int, list[PartitionState]] = defaultdict(list)
        for state in self._needing(Need.VALIDATION):
            leader_id = self._client.metadata.current.require_leader(state.partition)
            by_leader[leader_id].append(state)
        for leader_id, states in by_leader.items():
            await self._validate_at(leader_id, states)

    async def _validate_at(self, leader_id: int, states: list[PartitionState]) -> None:
        metadata = self._client.metadata.current
        leader_epochs = {
            state.partition: metadata.require_partition(state.partition).leader_epoch
            for state in states
        }
        epochs = {state.partition: state.epoch for state in states}
        topics: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
        for state in states:
            topics[state.partition.topic].append(
                {
                    "partition": state.partition.partition,
                    "current_leader_epoch": leader_epochs[state.partition],
                    "leader_epoch": state.fetch_epoch,
                }
            )
        values = {
            "replica_id": CONSUMER,
            "topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()],
        }
        connection = await self._client.connect_to_broker(leader_id)
        answer = await connection.call(OFFSET_FOR_LEADER_EPOCH, values, _EPOCH_DROPPABLE)
        for topic in cast("OffsetForLeaderEpochResponse", answer).topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.topic, row.partition)
                if row.error_code is not ErrorCode.none:
                    await self._client.metadata.refresh((topic.topic,))
                    raise error_for(row.error_code, None, str(partition))
                end = Position(row.end_offset, row.leader_epoch)
                gone = self._table.validated(
                    partition,
                    epochs[partition],
                    leader_epochs[partition],
                    None if end.offset == NO_OFFSET else end,
                )
                if gone:
                    self._on_void(partition)
