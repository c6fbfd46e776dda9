"""Reads partitions from given offsets on, wherever their leaders are and move to.

Answers for fetching with long polls, one request at a time to each leader, the next one under way
while the caller works on the last answer. Keeps the position of each partition. Does not commit,
does not belong to a group, and does not choose where to go when an offset is gone: that is raised.

A shell, owned by one task; the fetches under way are its children and change nothing of it.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moldau.client.cluster_client import ClusterClient
from moldau.client.fetching import FetchedPartition, FetchPosition, FetchSettings, fetch
from moldau.client.rules.fetched import decode_fetched
from moldau.client.rules.retries import may_retry
from moldau.errors import ClientError, KafkaError
from moldau.model import TopicPartition
from moldau.records.record import Record


class Fetched(NamedTuple):
    """Records of one partition, in order, and how far the partition goes."""

    partition: TopicPartition
    records: list[Record]
    high_watermark: int
    log_start_offset: int


class PartitionReader:
    """Reads a set of partitions. `positions` are the offsets that `read` gives next."""

    def __init__(
        self,
        client: ClusterClient,
        positions: Mapping[TopicPartition, int],
        settings: FetchSettings | None = None,
    ) -> None:
        self.positions = dict(positions)
        self._client = client
        self._settings = settings or FetchSettings()
        self._running: dict[
            asyncio.Task[Sequence[FetchedPartition]], frozenset[TopicPartition]
        ] = {}
        self._failure: KafkaError | ClientError | None = None  # to be dealt with by the next read
        self._failures_in_a_row = 0
        self._last_success = client.clock.monotonic()

    async def read(self, timeout_seconds: float) -> Sequence[Fetched]:
        """What arrives next from any partition; empty when nothing does in time.

        Raises what does not pass by itself: an offset out of range, a topic that is gone.
        """
        clock = self._client.clock
        deadline = clock.monotonic() + timeout_seconds
        while True:
            await self._maybe_recover()
            await self._fetch_idle_partitions()
            left = deadline - clock.monotonic()
            fetched = await self._harvest(left)
            if fetched or left <= 0:
                # The next answers come while the caller works on these, if the requests are sent
                # before it does: hence the pause.
                await self._fetch_idle_partitions()
                await asyncio.sleep(0)
                return fetched

    def forget(self, partition: TopicPartition) -> None:
        """Stop reading a partition; what is under way for it is dropped."""
        self.positions.pop(partition, None)

    async def close(self) -> None:
        tasks = tuple(self._running)
        self._running.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _fetch_idle_partitions(self) -> None:
        """Send a fetch to each leader for those of its partitions that none is under way for."""
        if self._failure is not None:
            return
        try:
            groups = await self._idle_by_leader()
        except (KafkaError, ClientError) as error:
            self._failure = error
            return
        for leader_id, partitions in groups.items():
            work = self._fetch(leader_id, self._positions_of(partitions))
            task = asyncio.get_running_loop().create_task(work, name=f"fetch from {leader_id}")
            self._running[task] = frozenset(partitions)

    async def _idle_by_leader(self) -> Mapping[int, list[TopicPartition]]:
        busy = frozenset[TopicPartition]().union(*self._running.values())
        idle = [partition for partition in self.positions if partition not in busy]
        metadata = self._client.metadata
        if any(partition.topic not in metadata.current.topics for partition in idle):
            await metadata.refresh({partition.topic for partition in self.positions})
        groups: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in idle:
            groups[metadata.current.require_leader(partition)].append(partition)
        return groups

    def _positions_of(self, partitions: Sequence[TopicPartition]) -> Sequence[FetchPosition]:
        metadata = self._client.metadata.current
        return [
            FetchPosition(one, self.positions[one], metadata.require_partition(one).leader_epoch)
            for one in partitions
        ]

    async def _fetch(
        self, leader_id: int, positions: Sequence[FetchPosition]
    ) -> Sequence[FetchedPartition]:
        metadata = self._client.metadata.current
        topics = {position.partition.topic for position in positions}
        ids = {name: metadata.require_topic(name).topic_id for name in topics}
        connection = await self._client.connect_to_broker(leader_id)
        return await fetch(connection, positions, ids, self._settings)

    async def _harvest(self, timeout_seconds: float) -> Sequence[Fetched]:
        if not self._running and self._failure is not None:
            return ()
        loop = asyncio.get_running_loop()
        alarm = loop.create_task(self._client.clock.sleep(max(timeout_seconds, 0.0)))
        try:
            await asyncio.wait((alarm, *self._running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
        arrived: list[Fetched] = []
        for task in [task for task in self._running if task.done()]:
            del self._running[task]
            try:
                answers = task.result()
            except (KafkaError, ClientError) as error:
                self._failure = error
            else:
                arrived += self._take(answers)
        return [one for one in arrived if one.records]

    def _take(self, answers: Sequence[FetchedPartition]) -> Sequence[Fetched]:
        taken: list[Fetched] = []
        for answer in answers:
            if answer.partition not in self.positions:
                continue
            if answer.error is not None:
                self._failure = answer.error
                continue
            position = self.positions[answer.partition]
            records, self.positions[answer.partition] = decode_fetched(answer.data, position)
            taken.append(
                Fetched(answer.partition, records, answer.high_watermark, answer.log_start_offset)
            )
        if taken:
            self._failures_in_a_row = 0
            self._last_success = self._client.clock.monotonic()
        return taken

    async def _maybe_recover(self) -> None:
        """After a failure: raise it when it is final, else pause and learn the new leaders."""
        failure, self._failure = self._failure, None
        if failure is None:
            return
        clock, settings = self._client.clock, self._client.settings
        in_time = clock.monotonic() - self._last_success <= settings.patience_seconds
        if not in_time or not may_retry(failure, self._failures_in_a_row, wait_for_cluster=True):
            raise failure
        delay = settings.backoff.delay_seconds(self._failures_in_a_row, random.random)
        await clock.sleep(delay)
        self._failures_in_a_row += 1
        try:
            await self._client.metadata.refresh({one.topic for one in self.positions})
        except (KafkaError, ClientError) as error:
            self._failure = error
