"""A topic in which coordinators keep their state: how it is made when it is first needed, and who
leads the partition of a key in it.

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
from moldau.errors import CoordinatorNotAvailableError, KafkaError, TopicExistsError
from moldau.shards.placement import partition_for

_log = logging.getLogger(__name__)

_IN_A_CLUSTER = 3


class StateTopicMaker(Protocol):
    """`broker.topic_maker.TopicMaker`, as far as it is needed here."""

    def create_topic(self, spec: TopicSpec) -> Awaitable[TopicState]: ...


class StateTopic:
    """The topic of the whole cluster. Safe to call from many tasks of one loop at once."""

    def __init__(
        self,
        name: str,
        *,
        spec: Callable[[], TopicSpec],
        maker: StateTopicMaker,
        image: Callable[[], MetadataImage],
        wait_until_applied: Callable[[], Awaitable[None]],
        spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.name = name
        self._spec = spec
        self._maker = maker
        self._image = image
        self._wait_until_applied = wait_until_applied
        self._spawn = spawn
        self._making: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """The topic is there, and this broker has opened its part of it."""
        return self._making is None and self.name in self._image().topics

    def find_partition(self, key: str) -> int | None:
        """The number of a key's partition; None while there is no topic."""
        topic = self._image().topics.get(self.name)
        return None if topic is None else partition_for(key, len(topic.partitions))

    def find_state(self, key: str) -> PartitionState | None:
        """Who leads a key's partition."""
        topic = self._image().topics.get(self.name)
        if topic is None:
            return None
        return topic.find_partition(partition_for(key, len(topic.partitions)))

    async def ensure(self) -> None:
        """Return when the topic is there and what is ours of it can be written to."""
        if self.is_ready:
            return
        if self._making is None:
            # A task of its own: a client that goes away must not take the others' topic along.
            self._making = self._spawn(f"making of {self.name}", self._make())
        await asyncio.shield(self._making)
        if not self.is_ready:
            raise CoordinatorNotAvailableError(f"there is no {self.name} yet")

    async def _make(self) -> None:
        try:
            await self._maker.create_topic(self._spec())
        except TopicExistsError:
            pass  # another broker was faster
        except KafkaError as error:
            _log.warning("cannot make %s, which coordinators need: %s", self.name, error)
        else:
            await self._wait_until_applied()
        finally:
            self._making = None


def replication_factor_of(options: BrokerOptions, option_name: str, value: int) -> int:
    """What is set; else three in a cluster, as Kafka has it, and one for a broker alone."""
    is_set = any(option_name in level for _, level in options.layers.levels())
    if is_set or options.is_alone:
        return value
    return _IN_A_CLUSTER
