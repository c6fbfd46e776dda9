"""Looks at records that a follower or a coordinator cannot use, and steps down when they are
damaged here.

The same follower asking again and again for what it was given may have a bad line or a bad disk,
or the bytes may be bad on ours: the followers check them, we did so only when they came. The CRCs
of the range are checked in a worker. If they are bad, another replica in sync takes over, and this
one, out of the in-sync set, goes back to the damaged batch and copies it (`replica_fetcher`). A
coordinator that loads its state checks the CRCs too, and reports the damage here.

A shell, owned by the event loop; one look for each partition at a time.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from moldau.cluster.rules.broker_shutdown import plan_controlled_shutdown
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.coordination.port import CoordinationError
from moldau.errors import KafkaError
from moldau.model import BrokerId, Offset, TopicPartition
from moldau.records.batch_header import crc_matches, walk_headers
from moldau.replication.partition import Partition
from moldau.storage.local_log import LogRead
from moldau.storage.log import Log
from moldau.workers import Workers

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]

_log = logging.getLogger("moldau.replication")

_LOOKED_AT_BYTES = 8 << 20


class HandOvers(Protocol):
    """Writes states by compare-and-set (`cluster.state_writer.StateWriter`)."""

    async def write(self, plan: Sequence[PlannedState]) -> bool: ...


class DamageWatch:
    """See the module."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        image: Callable[[], MetadataImage],
        writes: HandOvers,
        workers: Workers,
        spawn: Spawn,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._writes = writes
        self._workers = workers
        self._spawn = spawn
        self._looking: set[TopicPartition] = set()

    def on_suspicion(self, partition: Partition, offset: Offset) -> None:
        """A follower or a coordinator cannot use the records at an offset."""
        topic_partition = partition.topic_partition
        if topic_partition not in self._looking:
            self._looking.add(topic_partition)
            self._spawn(f"check of {topic_partition}", self._check_records(partition, offset))

    async def _check_records(self, partition: Partition, offset: Offset) -> None:
        try:
            damaged_from = await self._find_damage(partition, offset)
            if damaged_from is not None:
                await self._step_down(partition, damaged_from)
        except (KafkaError, CoordinationError) as error:
            _log.error("cannot check %s: %s", partition.topic_partition, error)
        finally:
            self._looking.discard(partition.topic_partition)

    async def _find_damage(self, partition: Partition, offset: Offset) -> Offset | None:
        log = partition.log
        found = read_batches(log, offset, _LOOKED_AT_BYTES, log.log_end_offset).slice
        if found is None:
            return None
        return await self._workers.run(lambda: find_damaged_batch(found.read(), offset))

    async def _step_down(self, partition: Partition, damaged_from: Offset) -> None:
        topic, number = partition.topic_partition
        _log.error("%s is damaged here from offset %d on", partition.topic_partition, damaged_from)
        partition.note_damage(damaged_from)
        image = self._image()
        state = image.topics.get(topic)
        if state is None or not partition.is_leader:
            return

        def concerns(topic_state: TopicState, index: int) -> bool:
            return index == number

        plan = plan_controlled_shutdown(
            [state],
            self._broker_id,
            image.brokers.keys(),
            min_in_sync_of=lambda _: partition.log.options.min_insync_replicas,
            is_whole=False,
            concerns=concerns,
        )
        if not plan:
            _log.error("%s stays here: no other replica is in sync", partition.topic_partition)
            return
        partition.stop_accepting()
        if not await self._writes.write(plan):
            partition.resume_accepting()  # another follower's fetch brings us here again


def read_batches(log: Log, offset: Offset, max_bytes: int, end_offset: Offset) -> LogRead:
    """At least one batch, or the rest of the segment where a damaged length hides the batch's end.

    The slice is None only when there are no bytes between the two offsets.
    """
    read = log.read(offset, max_bytes, end_offset=end_offset, min_one=True)
    if read.slice is None:
        read = log.read(offset, sys.maxsize, end_offset=end_offset, min_one=True)
    return read


def find_damaged_batch(data: bytes, offset: Offset) -> Offset | None:
    """The base offset of the first batch whose CRC is wrong, or where there is no batch at all."""
    view = memoryview(data)
    next_offset: int = offset
    end = 0
    for position, header in walk_headers(view):
        if not crc_matches(view[position : position + header.size_bytes], header):
            return Offset(next_offset)
        next_offset, end = header.next_offset, position + header.size_bytes
    return None if end == len(view) else Offset(next_offset)
