"""The topics that the members of a consumer group want, as assignors take them. A rule."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

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


def assignable_topics(names: frozenset[str], image: MetadataImage) -> dict[str, AssignableTopic]:
    """By name; those that are not there have nothing to assign yet."""
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


def hash_topics(names: frozenset[str], image: MetadataImage) -> int:
    """Differs when the topics differ in anything that assignments depend on; 0 of none. As Kafka
    does, it is logged with the epoch; how it is computed is each coordinator's own affair."""
    topics = assignable_topics(names, image)
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for name, topic in topics.items():
        racks = [sorted(some) for some in topic.racks]
        digest.update(repr((name, topic.topic_id.hex, topic.partition_count, racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
