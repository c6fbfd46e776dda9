"""The topics that a producer sends to: how many partitions they have, and who leads them.

Answers for asking the cluster when a topic is new, when a leader is missing, and now and then. A
shell on the producer's loop; `targets` is read by any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from moldau.client.cluster_client import ClusterClient
from moldau.client.intake import Intake
from moldau.client.rules.accumulator import Accumulator
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.partitioners import Partitioner
from moldau.client.rules.producer_batches import P
from moldau.client.rules.retries import may_retry
from moldau.client.rules.topic_target import TopicTarget
from moldau.config.client_options import ProducerOptions
from moldau.errors import (
    ClientError,
    ClosedClientError,
    ClusterUnreachableError,
    KafkaError,
    MoldauError,
    UnknownTopicError,
)
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import NO_BROKER

_UNKNOWN_TOPIC_SECONDS = 5.0
"""A topic may be unknown for so long after it was made; later it is a wrong name."""


class ProducerTopics(Generic[P]):
    """The topics of one producer."""

    def __init__(
        self,
        client: ClusterClient,
        intake: Intake[P],
        accumulator: Accumulator[P],
        options: ProducerOptions,
        make_partitioner: Callable[[], Partitioner],
    ) -> None:
        self.targets: dict[str, TopicTarget[P]] = {}
        self.on_news: Callable[[], None] = lambda: None
        self._client = client
        self._intake = intake
        self._accumulator = accumulator
        self._options = options
        self._make_partitioner = make_partitioner
        self._learning: dict[str, asyncio.Task[TopicTarget[P]]] = {}
        self._is_wanted = asyncio.Event()

    def find_leader(self, partition: TopicPartition) -> int | None:
        """The leader as far as it is known."""
        metadata = self._client.metadata.current
        topic = metadata.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        leader_id = topic.partitions[partition.partition].leader_id
        return leader_id if leader_id != NO_BROKER and leader_id in metadata.brokers else None

    async def learn(self, topic: str) -> TopicTarget[P]:
        """Ask for a topic until it is usable; raises what stands in the way after max.block.ms."""
        task = self._learning.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._learn(topic))
            self._learning[topic] = task
            task.add_done_callback(lambda _: self._learning.pop(topic))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # not the one who asks, but the one who was asked
                raise ClosedClientError("the producer is closed") from None
            raise

    async def close(self) -> None:
        """Stop asking; whoever waits for a topic hears of it."""
        tasks = tuple(self._learning.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _learn(self, topic: str) -> TopicTarget[P]:
        async def look() -> TopicTarget[P]:
            found = await self._client.metadata.refresh((topic,), may_create=True)
            return self._update(found.require_topic(topic))

        max_block_seconds = self._options.max_block_ms / 1000
        try:
            return await self._client.retry(
                look, timeout_seconds=max_block_seconds, may_go_on=_may_wait
            )
        except ClusterUnreachableError as error:
            raise ClusterUnreachableError(
                f"{error}; send waits {max_block_seconds:g} seconds for one (max.block.ms): start "
                "it, or give the producer another address"
            ) from error

    def _update(self, topic: TopicMetadata) -> TopicTarget[P]:
        """Take over what was learned; a partition once known stays, for the sake of its batches."""
        target = self.targets.get(topic.name)
        if target is None:
            target = TopicTarget(
                topic.name,
                self._make_partitioner(),
                ignores_keys=self._options.partitioner_ignore_keys,
            )
        target.available = topic.partitions_with_leader()
        if len(topic.partitions) > len(target.queues):
            with self._intake.lock:
                target.queues = [
                    self._accumulator.queue_of(TopicPartition(topic.name, row.index))
                    for row in topic.partitions
                ]
        self.targets[topic.name] = target
        return target

    # Keeping up to date

    def want_refresh(self) -> None:
        """Something that was known has turned out wrong."""
        self._is_wanted.set()

    async def run(self) -> None:
        """Ask again when it is wanted, and when what is known is old; until cancelled."""
        attempt = 0
        while True:
            await self._wait_until_wanted()
            self._is_wanted.clear()
            await self._refresh()
            self.on_news()
            # Wanted again at once: the cluster is not ready yet, or not there.
            attempt = attempt + 1 if self._is_wanted.is_set() else 0
            delay = self._client.backoff_seconds(attempt)
            await self._client.clock.sleep(delay)

    async def _wait_until_wanted(self) -> None:
        max_age_seconds = self._options.metadata_max_age_ms / 1000
        timer = self._client.clock.call_later(max_age_seconds, self.want_refresh)
        try:
            await self._is_wanted.wait()
        finally:
            timer.cancel()

    async def _refresh(self) -> None:
        if not self.targets:
            return
        try:
            found = await self._client.metadata.refresh(tuple(self.targets), may_create=True)
        except (KafkaError, ClientError):
            self._is_wanted.set()
            return
        for name in self.targets:
            topic = found.topics.get(name)
            if topic is not None and topic.error is None:
                self._update(topic)


def _may_wait(error: MoldauError, attempt: int, waited_seconds: float) -> bool:
    """A topic that is being made is unknown for a while; the number of attempts says nothing."""
    if isinstance(error, UnknownTopicError):
        return waited_seconds <= _UNKNOWN_TOPIC_SECONDS
    return may_retry(error, 0, wait_for_cluster=True)
