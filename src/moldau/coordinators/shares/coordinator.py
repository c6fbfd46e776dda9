"""The share coordinator of one broker: its shards, and the way of a request to the right one.

A share partition (a group, a topic's id, a partition) belongs to a partition of
`__share_group_state`, and whoever leads that one keeps its state for the leaders of the topic's
partition. This module sends events to shards, has their logs pruned, and forgets deleted topics.

A shell, owned by the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from moldau.clock import Clock
from moldau.coordinators.runtime.log import CoordinatorLogFormat
from moldau.coordinators.runtime.runtime import CoordinatorRuntime
from moldau.coordinators.runtime.shard import (
    CoordinatorShard,
    Eventually,
    ShardLog,
    wait_for_answer,
)
from moldau.coordinators.shares.rules.records import (
    SharePartitionKey,
    ShareStateRecord,
    coordinator_key,
    decode_share_state,
    encode_share_state,
)
from moldau.coordinators.shares.rules.share_states import (
    DeleteState,
    HasPartition,
    ShareStates,
    SnapshotState,
    StateAnswer,
    StateEvent,
)
from moldau.errors import ErrorCode, KafkaError
from moldau.records.compression import Codec
from moldau.replication.partition import Partition


class ShareCoordinator(CoordinatorRuntime["ShareCoordinatorShard"]):
    """What handlers of share state requests, and brokers that are their own coordinators, ask."""

    _NOUN = "share partition"

    def _make_shard(self, partition: Partition) -> ShareCoordinatorShard:
        log_format = CoordinatorLogFormat(
            encode=encode_share_state,
            decode=decode_share_state,
            codec=lambda: Codec(self._options().share_coordinator_state_topic_compression_codec),
            load_buffer_bytes=lambda: self._options().share_coordinator_load_buffer_size,
            locate=lambda record, offset: record._replace(offset=offset),
        )
        return ShareCoordinatorShard(
            str(partition.topic_partition),
            self._open_log(partition, log_format),
            clock=self._clock,
            commit_timeout_ms=lambda: self._options().share_coordinator_write_timeout_ms,
            has_partition=self._has_partition,
            was_deleted=lambda key: self._image().was_deleted(None, key.topic_id),
            updates_per_snapshot=lambda: (
                self._options().share_coordinator_snapshot_update_records_per_snapshot
            ),
            delete_records=partition.delete_records,
        )

    def _has_partition(self, key: SharePartitionKey) -> bool:
        topic = self._image().topics_by_id.get(key.topic_id)
        return topic is not None and topic.find_partition(key.partition) is not None

    # Requests

    async def submit(self, event: StateEvent) -> StateAnswer:
        """Answers also when somebody else is asked: with the code that says so."""
        try:
            shard = self.require_shard(coordinator_key(event.key))
            return await wait_for_answer(shard.submit(event))
        except KafkaError as error:
            return StateAnswer(error.code, str(error))

    def forget_topics(self, topic_ids: Collection[UUID]) -> None:
        """Topics were deleted: so is the state of all groups in them."""

        def find_deleted(shard: ShareCoordinatorShard) -> list[DeleteState]:
            return [DeleteState(key) for key in shard.keys if key.topic_id in topic_ids]

        if topic_ids and (shards := tuple(self)):
            self._spawn("forgetting of share states", self._report_all(shards, find_deleted))

    # Time

    async def run_pruning(self) -> None:
        """Delete what nobody needs any more, for ever."""
        while True:
            options = self._options()
            await self._clock.sleep(options.share_coordinator_state_topic_prune_interval_ms / 1000)
            for shard in self:
                shard.forget_deleted()
                shard.prune()

    async def run_cold_snapshots(self) -> None:
        """Write anew what has not been written for long, so that older records can go."""
        while True:
            interval_ms = self._options().share_coordinator_cold_partition_snapshot_interval_ms
            await self._clock.sleep(interval_ms / 1000)
            for shard in self:
                shard.snapshot_cold(self._clock.now_ms() - interval_ms)


_log = logging.getLogger("moldau.coordinators")

_SNAPSHOTS_AT_ONCE = 200
_DELETED_AT_ONCE = 1_000


class ShareCoordinatorShard(CoordinatorShard[ShareStates, ShareStateRecord, ShareStateRecord]):
    """The coordinator of some share partitions: `load` once, then `submit`; `close` at the end."""

    def __init__(
        self,
        name: str,
        log: ShardLog[ShareStateRecord, ShareStateRecord],
        *,
        clock: Clock,
        commit_timeout_ms: Callable[[], int],
        has_partition: HasPartition,
        was_deleted: Callable[[SharePartitionKey], bool],
        updates_per_snapshot: Callable[[], int],
        delete_records: Callable[[int], object],
    ) -> None:
        super().__init__(name, log, ShareStates(), clock=clock, commit_timeout_ms=commit_timeout_ms)
        self._has_partition = has_partition
        self._was_deleted = was_deleted
        self._updates_per_snapshot = updates_per_snapshot
        self._delete_records = delete_records

    def _make_machine(self) -> ShareStates:
        return ShareStates()

    @property
    def keys(self) -> tuple[SharePartitionKey, ...]:
        return tuple(self._machine)

    # Requests

    def submit(self, event: StateEvent) -> Eventually[StateAnswer]:
        self._require_active()
        answer, has_written = self._handle(event)
        if answer.error is not ErrorCode.none:
            return answer
        return self._answer_when_committed(answer, StateAnswer, has_written=has_written)

    def report(self, event: StateEvent) -> None:
        """Handle what happened by itself; nobody waits for an answer."""
        if self.is_active:
            self._handle(event)

    def _handle(self, event: StateEvent) -> tuple[StateAnswer, bool]:
        outcome = self._machine.handle(
            event,
            self._clock.now_ms(),
            has_partition=self._has_partition,
            updates_per_snapshot=self._updates_per_snapshot(),
        )
        if not outcome.records:
            return outcome.answer, False
        error = self._write(outcome.records)
        return (outcome.answer if error is None else StateAnswer(error)), True

    def _write(self, records: Sequence[ShareStateRecord]) -> ErrorCode | None:
        """Append and apply (SHS-5). After an error nothing has happened, or the shard is torn."""
        first_offset = self._log.end_offset
        error = self._append(records)
        if error is None:
            for offset, record in enumerate(records, start=first_offset):
                self._machine.apply(record._replace(offset=offset))
        return error

    def forget_deleted(self) -> None:
        """Delete states whose topic was deleted while no broker had them loaded. A topic that is
        only missing from the image may come back, and its states are kept (DEL-1)."""
        if not self.is_active:
            return
        deleted = sorted(key for key in self._machine if self._was_deleted(key))
        for key in deleted[:_DELETED_AT_ONCE]:
            self.report(DeleteState(key))

    # The log

    def snapshot_cold(self, before_ms: int) -> None:
        """Write share partitions anew that nobody has written for long."""
        if not self.is_active:
            return
        for key in self._machine.cold_keys(before_ms, self._log.end_offset)[:_SNAPSHOTS_AT_ONCE]:
            self.report(SnapshotState(key))

    def prune(self) -> None:
        """Delete what later records have made superfluous (SHS-3)."""
        if not self.is_active:
            return
        needed_from = self._machine.needed_from(self._log.end_offset)
        # What makes the rest superfluous has to be there to stay.
        if self._log.end_offset > self._log.committed_offset:
            return
        try:
            self._delete_records(needed_from)
        except KafkaError as error:
            _log.info("%s is not pruned: %s", self.name, error)
