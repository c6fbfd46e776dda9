"""The offsets topic: how it is made when the first group needs it, and who leads a group in it.

A shell: it asks the cluster to make the topic, once, however many clients come at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.broker_options import BrokerOptions
from moldau.config.internal_topics import find_internal_configs
from moldau.errors import CoordinatorNotAvailableError, KafkaError, TopicExistsError
from moldau.groups.rules.placement import partition_for
from moldau.model.topic_names import GROUP_OFFSETS_TOPIC

_log = logging.getLogger(__name__)


_REPLICATION_FACTOR = "offsets.topic.replication.factor"
_IN_A_CLUSTER = 3


class OffsetsTopicMaker(Protocol):
    """`broker.topic_maker.TopicMaker`, as far as it is needed here."""

    def create_topic(self, spec: TopicSpec) -> Awaitable[TopicState]: ...


class OffsetsTopic:
    """The topic of the whole cluster. Safe to call from many tasks of one loop at once."""

    def __init__(
        self,
        *,
        maker: OffsetsTopicMaker,
        image: Callable[[], MetadataImage],
        wait_until_applied: Callable[[], Awaitable[None]],
        options: Callable[[], BrokerOptions],
        spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._maker = maker
        self._image = image
        self._wait_until_applied = wait_until_applied
        self._options = options
        self._spawn = spawn
        self._making: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """The topic is there, and this broker has opened its part of it."""
        return self._making is None and GROUP_OFFSETS_TOPIC in self._image().topics

    def find_partition(self, group_id: str) -> int | None:
        """The number of a group's partition; None while there is no topic."""
        topic = self._image().topics.get(GROUP_OFFSETS_TOPIC)
        return None if topic is None else partition_for(group_id, len(topic.partitions))

    def find_state(self, group_id: str) -> PartitionState | None:
        """Who leads a group's partition."""
        topic = self._image().topics.get(GROUP_OFFSETS_TOPIC)
        if topic is None:
            return None
        return topic.find_partition(partition_for(group_id, len(topic.partitions)))

    async def ensure(self) -> None:
        """Return when the topic is there and what is ours of it can be written to."""
        if self.is_ready:
            return
        if self._making is None:
            # A task of its own: a client that goes away must not take the others' topic along.
            self._making = self._spawn("making of the offsets topic", self._make())
        await asyncio.shield(self._making)
        if not self.is_ready:
            raise CoordinatorNotAvailableError(f"there is no {GROUP_OFFSETS_TOPIC} yet")

    async def _make(self) -> None:
        try:
            await self._maker.create_topic(self._spec())
        except TopicExistsError:
            pass  # another broker was faster
        except KafkaError as error:
            _log.warning("cannot make %s, which groups need: %s", GROUP_OFFSETS_TOPIC, error)
        else:
            await self._wait_until_applied()
        finally:
            self._making = None

    def _spec(self) -> TopicSpec:
        options = self._options()
        return TopicSpec(
            name=GROUP_OFFSETS_TOPIC,
            partition_count=options.offsets_topic_num_partitions,
            replication_factor=replication_factor_of(options),
            configs=find_internal_configs(GROUP_OFFSETS_TOPIC, options) or {},
        )


def replication_factor_of(options: BrokerOptions) -> int:
    """What is set; else three in a cluster, as Kafka has it, and one for a broker alone."""
    is_set = any(_REPLICATION_FACTOR in level for _, level in options.layers.levels())
    if is_set or options.is_alone:
        return options.offsets_topic_replication_factor
    return _IN_A_CLUSTER
