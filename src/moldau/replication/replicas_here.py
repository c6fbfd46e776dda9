"""The replicas that are open on a broker, found by key and by topic. A shell's table."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.cluster.rules.metadata_image import TopicState
from moldau.config.topic_options import TopicOptions
from moldau.model import TopicPartition
from moldau.replication.partition import Partition

_NONE: Mapping[int, Partition] = {}


class ReplicasHere(dict[TopicPartition, Partition]):
    """By topic and number. Changed by `add` and `take_out` alone."""

    def __init__(self) -> None:
        super().__init__()
        self._by_topic: dict[str, dict[int, Partition]] = {}  # the same; no empty ones

    def of_topic(self, name: str) -> Mapping[int, Partition]:
        """By number: a change of one topic costs what the topic has, not what the broker has."""
        return self._by_topic.get(name, _NONE)

    def add(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        self[partition.topic_partition] = partition
        self._by_topic.setdefault(topic, {})[number] = partition

    def take_out(self, key: TopicPartition) -> Partition:
        here = self._by_topic[key.topic]
        del here[key.partition]
        if not here:
            del self._by_topic[key.topic]
        return self.pop(key)


def is_settled(
    partition: Partition, topic: TopicState | None, options: TopicOptions | None
) -> bool:
    """Whether to apply what is said of a replica that is open here would change nothing."""
    if topic is None or partition.topic_id != topic.topic_id:
        return False
    state = topic.find_partition(partition.topic_partition.partition)
    is_in_force = state is not None and partition.state.is_in_force(state)
    return is_in_force and (options is None or partition.log.options is options)
