"""The share coordinator of one broker: its shards, and the way of a request to the right one.

A share partition (a group, a topic's id, a partition) belongs to a partition of
`__share_group_state`, and whoever leads that one keeps its state for the leaders of the topic's
partition. This module sends events to shards, has their logs pruned, and forgets deleted topics.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any
from uuid import UUID

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.log import CoordinatorLog, CoordinatorLogFormat
from moldau.coordinators.runtime.runtime import CoordinatorRuntime, ShardDuties
from moldau.coordinators.runtime.shard import wait_for_answer
from moldau.errors import KafkaError
from moldau.model import BrokerId, TopicPartition
from moldau.records.compression import Codec
from moldau.replication.partition import Partition
from moldau.workers import Workers

if TYPE_CHECKING:
    from moldau.shares.rules.delivery_state import SharePartitionKey
    from moldau.shares.rules.state_events import StateAnswer, StateEvent
    from moldau.shares.rules.state_records import ShareStateRecord
    from moldau.shares.share_state_shard import ShareStateShard

_KEYS_AT_ONCE = 100
"""Share partitions that are looked at before the event loop gets a turn."""


class ShareCoordinator:
    """What handlers of share state requests, and brokers that are their own coordinators, ask.

    What it consists of is loaded with the first shard: a broker without share groups starts
    without it.
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
    ) -> None:
        self.topic = topic
        self._image = image
        self._options = options
        self._clock = clock
        self._workers = workers
        self._duties = duties
        self._spawn = spawn
        self._leads: CoordinatorRuntime[ShareStateShard] = CoordinatorRuntime(
            topic,
            self._make_shard,
            noun="share partition",
            broker_id=broker_id,
            clock=clock,
            duties=duties,
        )

    def _make_shard(self, partition: Partition) -> ShareStateShard:
        from moldau.shares.share_state_log import decode_share_state, encode_share_state
        from moldau.shares.share_state_shard import ShareStateShard

        log_format: CoordinatorLogFormat[ShareStateRecord, ShareStateRecord] = CoordinatorLogFormat(
            encode=encode_share_state,
            decode=decode_share_state,
            codec=lambda: Codec(self._options().share_coordinator_state_topic_compression_codec),
            load_buffer_bytes=lambda: self._options().share_coordinator_load_buffer_size,
            locate=lambda record, offset: record._replace(offset=offset),
        )
        log = CoordinatorLog(
            partition,
            log_format,
            clock=self._clock,
            workers=self._workers,
            require=self._duties.require,
        )
        return ShareStateShard(
            str(partition.topic_partition),
            log,
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
        from moldau.shares.rules.state_events import StateAnswer
        from moldau.shares.rules.state_records import coordinator_key

        try:
            shard = self._leads.require(coordinator_key(event.key))
            return await wait_for_answer(shard.submit(event))
        except KafkaError as error:
            return StateAnswer(error.code, str(error))

    # Following the cluster

    def on_partition_changed(
        self, topic_partition: TopicPartition, partition: Partition | None
    ) -> None:
        """A partition was opened, dropped (None), or has another leader."""
        self._leads.on_partition_changed(topic_partition, partition)

    def forget_topics(self, topic_ids: Collection[UUID]) -> None:
        """Topics were deleted: so is the state of all groups in them."""
        if topic_ids and self._leads:
            self._spawn("forgetting of share states", self._forget_topics(topic_ids))

    async def _forget_topics(self, topic_ids: Collection[UUID]) -> None:
        from moldau.shares.rules.state_events import DeleteState

        for shard in self._leads:
            gone = [key for key in shard.keys if key.topic_id in topic_ids]
            for count, key in enumerate(gone, start=1):
                shard.report(DeleteState(key))
                if count % _KEYS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    # Time

    async def run_pruning(self) -> None:
        """Delete what nobody needs any more, for ever."""
        while True:
            options = self._options()
            await self._clock.sleep(options.share_coordinator_state_topic_prune_interval_ms / 1000)
            for shard in self._leads:
                shard.forget_deleted()
                shard.prune()

    async def run_cold_snapshots(self) -> None:
        """Write anew what has not been written for long, so that older records can go."""
        while True:
            interval_ms = self._options().share_coordinator_cold_partition_snapshot_interval_ms
            await self._clock.sleep(interval_ms / 1000)
            for shard in self._leads:
                shard.snapshot_cold(self._clock.now_ms() - interval_ms)

    def close(self) -> None:
        """Stop coordinating; nothing is logged, so that the next coordinator goes on."""
        self._leads.close()
