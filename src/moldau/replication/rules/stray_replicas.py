"""What becomes of a log that this broker holds, by what the metadata says of its topic. A rule.

A log is deleted for two reasons only (DEL-1): somebody asked for the deletion of its topic, by a
mark or a record with the topic's id; or the topic is there, under the same id, and its partition
was given to other brokers. Everything else is no reason. A topic's node may be missing because
somebody removed it by hand, or because the store was restored from a backup that is older than the
topic; a topic of the same name under another id tells nothing about this one. Then the log is kept
until the id appears again, or a person removes it.

The store may also be older than the log: a state whose leader epoch is lower than one that the
replica has seen was in force before the replica came here, and it says nothing about where the
partition is now. Under the same epoch nobody was taken away by the controller, since every change
of the replicas begins a new one (CTL-3): somebody has edited the topic's node, while the in-sync
set may still count on this replica.
"""

from __future__ import annotations

from enum import Enum, auto

from moldau.cluster.rules.metadata_image import NO_TOPIC_ID, MetadataImage
from moldau.model import BrokerId, TopicId, TopicPartition


class ReplicaStatus(Enum):
    """Of a log on this broker."""

    ASSIGNED = auto()
    DELETED = auto()
    STRAY = auto()  # out of service, untouched


def find_status(
    replica: TopicPartition,
    topic_id: TopicId | None,
    seen_epoch: int,
    image: MetadataImage,
    broker_id: BrokerId,
) -> ReplicaStatus:
    """`seen_epoch` is the highest leader epoch that this replica knows of, -1 for none."""
    topic = image.topics.get(replica.topic)
    if topic is None or not is_same_topic(topic_id, topic.topic_id):
        return (
            ReplicaStatus.DELETED
            if image.was_deleted(replica.topic, topic_id)
            else ReplicaStatus.STRAY
        )
    state = topic.find_partition(replica.partition)
    if state is None:
        return ReplicaStatus.STRAY
    if broker_id in state.replicas:
        return ReplicaStatus.ASSIGNED
    return ReplicaStatus.STRAY if state.leader_epoch <= seen_epoch else ReplicaStatus.DELETED


def is_same_topic(held: TopicId | None, wanted: TopicId) -> bool:
    """Whether a log with this id is a log of the topic; one without an id goes by its name."""
    return held in (None, NO_TOPIC_ID, wanted)
