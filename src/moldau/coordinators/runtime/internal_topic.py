"""A topic in which coordinators keep their state: how it is made when it is first needed, and who
leads the partition of a key in it.

A shell: it asks the cluster to make the topic, once, however many clients come at the same time.
Fifty logs take a moment on a quick disk and seconds on a slow one. Whoever needs the topic waits
for a moment only, and is told to ask again: a connection answers in order, and what its client
sends next would wait, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Protocol

from moldau.clock import Clock, finish_within
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.broker_options import BrokerOptions, find_internal_configs
from moldau.errors import CoordinatorNotAvailableError, KafkaError, TopicExistsError
from moldau.model import GROUP_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

_log = logging.getLogger("moldau.coordinators")

_IN_A_CLUSTER: Final = 3

WAIT_SECONDS: Final = 1.5
"""As long as it takes, mostly. Who is told that there is no coordinator yet asks again after a
tenth of a second (Java) to a second (librdkafka): a shorter wait makes the first consumer later."""

_SIZES: Final = {
    GROUP_OFFSETS_TOPIC: (
        BrokerOptions.offsets_topic_num_partitions,
        BrokerOptions.offsets_topic_replication_factor,
    ),
    TRANSACTION_STATE_TOPIC: (
        BrokerOptions.transaction_state_log_num_partitions,
        BrokerOptions.transaction_state_log_replication_factor,
    ),
    SHARE_GROUP_STATE_TOPIC: (
        BrokerOptions.share_coordinator_state_topic_num_partitions,
        BrokerOptions.share_coordinator_state_topic_replication_factor,
    ),
}
"""How many partitions and replicas each of them has."""


class TopicCreator(Protocol):
    """`broker.topic_maker.TopicMaker`, as far as it is needed here."""

    def create_topic(self, spec: TopicSpec) -> Awaitable[TopicState]: ...


class InternalTopic:
    """The topic of the whole cluster. Safe to call from many tasks of one loop at once."""

    def __init__(
        self,
        name: str,
        *,
        options: Callable[[], BrokerOptions],
        creator: TopicCreator,
        image: Callable[[], MetadataImage],
        wait_until_applied: Callable[[], Awaitable[None]],
        spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
        clock: Clock,
    ) -> None:
        self.name = name
        self._options = options
        self._creator = creator
        self._image = image
        self._wait_until_applied = wait_until_applied
        self._spawn = spawn
        self._clock = clock
        self._creation: asyncio.Task[None] | None = None
        self._refusal = ""  # why it could not be made, as it was said last

    @property
    def is_ready(self) -> bool:
        """The topic is there, and this broker has opened its part of it."""
        return self._creation is None and self.name in self._image().topics

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
        """Return when the topic is there and what is ours of it can be written to.

        Raises `CoordinatorNotAvailableError` if that takes longer than a moment; it goes on.
        """
        if self.is_ready:
            return
        if self._creation is None:
            # A task of its own: a client that goes away must not take the others' topic along.
            self._creation = self._spawn(f"creation of {self.name}", self._create())
        with suppress(TimeoutError):
            await finish_within(asyncio.shield(self._creation), self._clock, WAIT_SECONDS)
        if not self.is_ready:
            raise CoordinatorNotAvailableError(f"there is no {self.name} yet")

    async def _create(self) -> None:
        try:
            await self._creator.create_topic(plan_internal_topic(self.name, self._options()))
        except TopicExistsError:
            pass  # another broker was faster
        except KafkaError as error:
            self._log_refusal(str(error))
        else:
            await self._wait_until_applied()
        finally:
            self._creation = None

    def _log_refusal(self, refusal: str) -> None:
        """Once: every client asks again and again, and nothing has changed meanwhile."""
        if refusal != self._refusal:
            self._refusal = refusal
            _log.warning("cannot make %s, which coordinators need: %s", self.name, refusal)


def plan_internal_topic(name: str, options: BrokerOptions) -> TopicSpec:
    """The topic as it is made. Where nobody says how many replicas it has, it has three in a
    cluster, as Kafka's, and one on a broker alone."""
    partition_count, replication_factor = _SIZES[name]
    is_set = any(replication_factor.name in level for _, level in options.layers.levels())
    return TopicSpec(
        name=name,
        partition_count=getattr(options, partition_count.attribute),
        replication_factor=getattr(options, replication_factor.attribute)
        if is_set or options.is_alone
        else _IN_A_CLUSTER,
        configs=find_internal_configs(name, options) or {},
    )


_SIGN = 1 << 31
_MASK = (1 << 32) - 1


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32 bits with a sign.

    Remembered: every request to a coordinator asks for it.
    """
    units = memoryview(text.encode("utf-16-be", "surrogatepass"))
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's `Utils.abs` makes zero of the one number that has no positive twin."""
    value = java_hash(key)
    return (0 if value == -_SIGN else abs(value)) % partition_count
