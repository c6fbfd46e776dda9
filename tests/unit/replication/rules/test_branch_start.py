"""What a replica of a branch begins with, and what is opened before it."""

from __future__ import annotations

from itertools import product
from uuid import UUID

from moldau.cluster.rules.metadata_image import BranchOrigin, MetadataImage, TopicState
from moldau.model import LeaderEpoch, TopicId
from moldau.replication.replica_logs import may_take_origin, origins_first

ID = TopicId(UUID(int=1))


def image_of(**origins: str | None) -> MetadataImage:
    topics = {
        name: TopicState(
            name=name,
            topic_id=ID,
            partitions=(),
            origin=None
            if origin is None
            else BranchOrigin(topic=origin, topic_id=ID, partitions=1, newest_epoch=LeaderEpoch(3)),
        )
        for name, origin in origins.items()
    }
    return MetadataImage(cluster_id="c", topics=topics, version=1)


def test_a_leader_takes_what_there_is():
    for seen, compacted in product((True, False), repeat=2):
        assert may_take_origin(is_leader=True, was_seen_made=seen, is_compacted=compacted)


def test_a_follower_takes_of_its_origin_only_what_cannot_lack_anything():
    assert may_take_origin(is_leader=False, was_seen_made=True, is_compacted=False)
    assert not may_take_origin(is_leader=False, was_seen_made=False, is_compacted=False)
    assert not may_take_origin(is_leader=False, was_seen_made=True, is_compacted=True)


def test_every_branch_comes_after_its_origin():
    image = image_of(a="b", b="c", c="real", real=None, zebra=None)
    assert origins_first(image, ["a", "b", "c", "real", "zebra"]) == [
        *("real", "zebra", "c", "b", "a")
    ]
    assert origins_first(image, ["gone", "a"]) == ["gone", "a"]


def test_names_that_were_given_again_may_go_round_in_a_circle():
    assert origins_first(image_of(a="b", b="a"), ["b", "a"]) == ["a", "b"]
