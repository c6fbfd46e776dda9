"""What a branch of a topic is, and what cannot be branched."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from moldau.cluster import znodes
from moldau.cluster.rules.metadata_image import BranchOrigin, PartitionState, TopicState
from moldau.cluster.rules.topic_creation import TopicSpec, plan_topic_branch
from moldau.cluster.topic_operations import assignment_of
from moldau.errors import (
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    ReassignmentInProgressError,
    TopicExistsError,
)
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicId

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
SOURCE_ID, NEW_ID = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def state(leader: BrokerId, epoch: int, *replicas: BrokerId) -> PartitionState:
    return PartitionState(
        leader=leader, leader_epoch=LeaderEpoch(epoch), isr=replicas, replicas=replicas, version=4
    )


SOURCE = TopicState(
    name="real",
    topic_id=SOURCE_ID,
    partitions=(state(TWO, 7, ONE, TWO), state(THREE, 2, THREE, ONE)),
    configs={"segment.bytes": "5", "retention.ms": "9"},
    version=3,
)


def plan(spec: TopicSpec, source: TopicState = SOURCE) -> TopicState:
    return plan_topic_branch(
        spec, source, existing={"real", "other"}, topic_id=NEW_ID, controller_epoch=6
    )


def test_a_branch_is_led_by_who_leads_its_origin_who_alone_is_in_sync():
    made = plan(TopicSpec(name="trial", configs={"retention.ms": "-1"}))
    assert (made.name, made.topic_id, made.version) == ("trial", NEW_ID, -1)
    assert made.configs == {"segment.bytes": "5", "retention.ms": "-1"}
    assert [(one.leader, one.isr, one.replicas) for one in made.partitions] == [
        (TWO, (TWO,), (ONE, TWO)),
        (THREE, (THREE,), (THREE, ONE)),
    ]
    assert all(one.version == -1 for one in made.partitions)


def test_its_epochs_are_later_than_all_of_the_origin():
    made = plan(TopicSpec(name="trial"))
    assert [one.leader_epoch for one in made.partitions] == [8, 8]
    assert made.origin == BranchOrigin(
        topic="real", topic_id=SOURCE_ID, partitions=2, newest_epoch=LeaderEpoch(7)
    )


def test_the_origin_is_in_the_node_of_the_topic():
    made = plan(TopicSpec(name="trial"))
    assignment = assignment_of(made)
    assert znodes.decode_topic("trial", znodes.encode_topic(assignment)) == assignment
    plain = assignment_of(SOURCE)
    assert b"branch" not in znodes.encode_topic(plain)


MOVING = replace(SOURCE.partitions[0], adding_replicas=(THREE,))
LEADERLESS = replace(SOURCE.partitions[0], leader=NO_BROKER)


@pytest.mark.parametrize(
    ("spec", "source", "refusal"),
    [
        (TopicSpec(name="other"), SOURCE, TopicExistsError),
        (TopicSpec(name="a/b"), SOURCE, InvalidTopicError),
        (TopicSpec(name="__consumer_offsets"), SOURCE, InvalidTopicError),
        (TopicSpec(name="x"), replace(SOURCE, name="__transaction_state"), InvalidTopicError),
        (TopicSpec(name="x", partition_count=2), SOURCE, InvalidRequestError),
        (TopicSpec(name="x", replication_factor=2), SOURCE, InvalidRequestError),
        (TopicSpec(name="x", assignments={0: [1]}), SOURCE, InvalidRequestError),
        (TopicSpec(name="x"), replace(SOURCE, partitions=(LEADERLESS,)), LeaderNotAvailableError),
        (TopicSpec(name="x"), replace(SOURCE, partitions=(MOVING,)), ReassignmentInProgressError),
    ],
)
def test_what_cannot_be_branched_is_refused(
    spec: TopicSpec, source: TopicState, refusal: type[KafkaError]
):
    with pytest.raises(refusal):
        plan(spec, source)
