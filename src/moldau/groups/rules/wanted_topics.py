"""The topics that the members of a consumer group want, as assignors take them. A rule."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.groups.rules.consumer_group_records import ConsumerSubscription
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.server_assignors import AssignableTopic

_HASH_BYTES = 8


def preferred_assignor(members: Mapping[str, ConsumerSubscription], limits: GroupLimits) -> str:
    """The one that most members ask for."""
    asked = Counter(one.assignor for one in members.values() if one.assignor is not None)
    offered = [name for name in asked if name in limits.consumer_assignors]
    if not offered:
        return limits.consumer_assignors[0]
    return min(offered, key=lambda name: (-asked[name], limits.consumer_assignors.index(name)))


def _assignable_topics(names: frozenset[str], image: MetadataImage) -> dict[str, AssignableTopic]:
    """By name, in the order of names."""
    has_racks = any(broker.rack is not None for broker in image.brokers.values())
    found = {}
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is not None:
            racks = [_racks(one.replicas, image) for one in topic.partitions] if has_racks else ()
            found[name] = AssignableTopic(topic.topic_id, len(topic.partitions), racks)
    return found


def _racks(replicas: tuple[int, ...], image: MetadataImage) -> frozenset[str]:
    racks = set()
    for broker_id in replicas:
        broker = image.brokers.get(broker_id)  # type: ignore[call-overload]
        if broker is not None and broker.rack is not None:
            racks.add(broker.rack)
    return frozenset(racks)


def _hash(topics: Mapping[str, AssignableTopic]) -> int:
    """Differs when the topics differ in anything that assignments depend on; 0 of none. As Kafka
    does, it is logged with the epoch; how it is computed is each coordinator's own affair."""
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for name, topic in topics.items():
        racks = [sorted(some) for some in topic.racks]
        digest.update(repr((name, topic.topic_id.hex, topic.partition_count, racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


class WantedTopics:
    """The topics behind some names in one image of the cluster. Names that are not there have
    nothing to assign yet."""

    def __init__(self, names: frozenset[str], image: MetadataImage) -> None:
        self.names = names
        self._image_topics: object = image.topics
        self._image_brokers: object = image.brokers
        self._topics = _assignable_topics(names, image)
        self.by_id = {one.topic_id: one for one in self._topics.values()}
        self.metadata_hash = _hash(self._topics)

    @property
    def partition_counts(self) -> dict[UUID, tuple[str, int]]:
        """Names and partition counts by topic id."""
        return {one.topic_id: (name, one.partition_count) for name, one in self._topics.items()}

    def is_of(self, image: MetadataImage) -> bool:
        return self._image_topics is image.topics and self._image_brokers is image.brokers

    def ids_of(self, names: frozenset[str]) -> frozenset[UUID]:
        """Of those of the names that are there."""
        return frozenset(one.topic_id for name, one in self._topics.items() if name in names)
