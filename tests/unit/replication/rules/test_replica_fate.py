"""A log goes because somebody asked for it, and for no other reason (DEL-1)."""

from uuid import UUID

import pytest

from moldau.cluster.rules.metadata_image import (
    NO_TOPIC_ID,
    DeletedTopic,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.model import TopicPartition
from moldau.replication.rules.stray_replicas import ReplicaStatus, find_status

OURS, THEIRS = UUID(int=1), UUID(int=2)
CLICKS = TopicPartition("clicks", 0)
EMPTY = MetadataImage(cluster_id="c")
DELETED = {OURS: DeletedTopic("clicks", 0)}


def topic(topic_id: UUID, *replicas: int, epoch: int = 5) -> TopicState:
    state = PartitionState(leader=2, leader_epoch=epoch, isr=(2,), replicas=replicas)
    return TopicState(name="clicks", topic_id=topic_id, partitions=(state,))


def image(topic_id: UUID, *replicas: int, epoch: int = 5) -> MetadataImage:
    return EMPTY.with_topics((topic(topic_id, *replicas, epoch=epoch),))


def fate(image: MetadataImage, topic_id: UUID | None = OURS, seen_epoch: int = 5) -> ReplicaStatus:
    return find_status(CLICKS, topic_id, seen_epoch, image, 1)


def test_a_replica_of_the_topic_is_served():
    assert fate(image(OURS, 1, 2)) is ReplicaStatus.ASSIGNED


@pytest.mark.parametrize("unknown", [None, NO_TOPIC_ID])
def test_a_log_without_an_id_goes_by_its_name(unknown):
    assert fate(image(OURS, 1, 2), unknown) is ReplicaStatus.ASSIGNED
    assert fate(EMPTY, unknown) is ReplicaStatus.STRAY
    assert fate(EMPTY.with_topics((), (), {"clicks": OURS}), None) is ReplicaStatus.DELETED


def test_what_was_given_to_other_brokers_is_deleted():
    assert fate(image(OURS, 2, 3, epoch=6)) is ReplicaStatus.DELETED


def test_what_was_elsewhere_before_it_came_here_is_kept():
    assert fate(image(OURS, 2, 3, epoch=4)) is ReplicaStatus.STRAY


def test_what_somebody_took_away_by_hand_is_kept():
    """The controller would have raised the epoch (CTL-3)."""
    assert fate(image(OURS, 2, 3, epoch=5)) is ReplicaStatus.STRAY


def test_a_topic_that_vanished_was_not_deleted():
    assert fate(EMPTY) is ReplicaStatus.STRAY
    assert fate(image(THEIRS, 1, 2)) is ReplicaStatus.STRAY


def test_a_partition_that_its_topic_does_not_have_any_more_is_kept():
    later = TopicPartition("clicks", 1)
    assert find_status(later, OURS, 5, image(OURS, 1, 2), 1) is ReplicaStatus.STRAY


def test_a_mark_with_the_id_deletes_and_one_with_another_id_does_not():
    assert fate(EMPTY.with_topics((), (), {"clicks": OURS})) is ReplicaStatus.DELETED
    assert fate(EMPTY.with_topics((), (), {"clicks": THEIRS})) is ReplicaStatus.STRAY


def test_a_record_of_the_deletion_deletes_also_when_the_name_is_taken_again():
    assert fate(EMPTY.with_topics((), (), deleted=DELETED)) is ReplicaStatus.DELETED
    again = EMPTY.with_topics((topic(THEIRS, 1, 2),), deleted=DELETED)
    assert fate(again) is ReplicaStatus.DELETED
    assert fate(again, THEIRS) is ReplicaStatus.ASSIGNED
