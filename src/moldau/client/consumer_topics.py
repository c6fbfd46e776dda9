"""Which topics a consumer reads, and what becomes of them: new ones, more partitions.

A shell around `rules.subscription` and the metadata of the cluster. Owned by one consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from moldau.client.cluster_client import ClusterClient
from moldau.client.consumer_metadata import MetadataKeeper
from moldau.client.rules.offset_positions import PartitionTable
from moldau.client.rules.subscription import Subscription
from moldau.config.client_consumer_options import ConsumerOptions
from moldau.errors import ClientError, KafkaError
from moldau.model import TopicPartition


class ConsumerTopics:
    """The subscription and the topics behind it. `on_fresh` hears of every look at the cluster."""

    def __init__(
        self,
        client: ClusterClient,
        table: PartitionTable,
        options: ConsumerOptions,
        *,
        on_fresh: Callable[[bool], None],
        on_failure: Callable[[KafkaError | ClientError], None],
    ) -> None:
        self.subscription = Subscription()
        self.names: frozenset[str] = frozenset()  # that match the subscription
        self._client = client
        self._table = table
        self._on_fresh = on_fresh
        self._watched: Mapping[str, int] = {}  # how many partitions the group's topics had
        self.keeper = MetadataKeeper(
            client,
            self._to_ask_for,
            max_age_seconds=options.metadata_max_age_ms / 1000,
            may_create=options.allow_auto_create_topics,
            on_fresh=self._look,
            on_failure=on_failure,
        )

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.names = frozenset() if subscription.is_pattern else subscription.names
        self._watched = {}
        self.keeper.want()

    @property
    def is_ready(self) -> bool:
        """Whether it is known what to read."""
        return not self.subscription.is_empty and bool(self.names or self.keeper.is_known)

    async def count_partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """Of the topics that exist; from now on they are watched."""
        await self._client.metadata.refresh(topics)
        self._watched = {name: self.partition_count(name) for name in topics}
        return {name: count for name, count in self._watched.items() if count}

    @property
    def has_other_partitions(self) -> bool:
        """Whether a watched topic has got more partitions, or is gone."""
        return any(self.partition_count(name) != n for name, n in self._watched.items())

    def partition_count(self, name: str) -> int:
        """0 while the topic is not there, or cannot be described."""
        topic = self._client.metadata.current.topics.get(name)
        return 0 if topic is None or topic.error is not None else len(topic.partitions)

    def find_all_partitions(self) -> frozenset[TopicPartition]:
        """Of the topics that can be described. Others are as they were."""
        there = {
            TopicPartition(name, index)
            for name in self.names
            for index in range(self.partition_count(name))
        }
        unknown = {name for name in self.names if not self.partition_count(name)}
        kept = {one for one in self._table.partitions if one.topic in unknown}
        return frozenset(there | kept)

    def _to_ask_for(self) -> Collection[str] | None:
        if self.subscription.is_pattern:
            return None
        assigned = {state.partition.topic for state in self._table}
        return self.names | assigned | self._watched.keys()

    def _look(self) -> None:
        names = self.subscription.matching(self._client.metadata.current.topics.values())
        has_changed = names != self.names
        self.names = names
        self._on_fresh(has_changed)
