"""ISR-2, ISR-3: proposals that may be written, and those that surely came to nothing."""

from dataclasses import replace
from uuid import UUID

import pytest

from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.replication.rules.isr import is_surely_void, joining_brokers, takes_in_restarted

FORMER = PartitionState(leader=1, leader_epoch=4, isr=(1,), replicas=(1, 2, 3), version=7)
TOPIC = TopicState(name="clicks", topic_id=UUID(int=1), partitions=(FORMER,))
EXPAND = PlannedState(TOPIC, 0, FORMER, replace(FORMER, isr=(1, 2, 3)))
SHRINK = PlannedState(TOPIC, 0, replace(FORMER, isr=(1, 2)), FORMER)


def image_with(*topics: TopicState) -> MetadataImage:
    return MetadataImage(cluster_id="c", topics={topic.name: topic for topic in topics})


def test_those_who_come_in_were_not_in_before():
    assert joining_brokers(EXPAND) == (2, 3)
    assert joining_brokers(SHRINK) == ()


@pytest.mark.parametrize(
    ("registered", "is_restarted"),
    [
        ({2: 10, 3: 11}, False),
        ({2: 10, 3: 12}, True),  # registered anew since it fetched
        ({2: 10}, True),  # gone
        ({}, True),
    ],
)
def test_a_broker_that_was_restarted_since_it_fetched_does_not_come_in(registered, is_restarted):
    fetched = {2: 10, 3: 11}
    assert takes_in_restarted(EXPAND, registered, fetched.__getitem__) is is_restarted


def test_a_broker_that_is_known_nowhere_was_not_restarted():
    assert not takes_in_restarted(EXPAND, {}, lambda broker: -1)


def test_who_leaves_is_asked_for_no_epoch():
    assert not takes_in_restarted(SHRINK, {}, {}.__getitem__)


def test_a_proposal_is_void_while_the_store_has_what_it_was_made_over():
    assert is_surely_void(EXPAND, image_with(TOPIC))


def test_a_newer_state_may_be_the_proposal_itself():
    newer = replace(TOPIC, partitions=(replace(FORMER, version=8),))
    assert not is_surely_void(EXPAND, image_with(newer))


@pytest.mark.parametrize(
    "image",
    [
        image_with(),
        image_with(replace(TOPIC, topic_id=UUID(int=2))),
        image_with(replace(TOPIC, partitions=())),
    ],
    ids=["gone", "another topic", "no such partition"],
)
def test_a_partition_that_goes_takes_its_proposal_along(image):
    assert not is_surely_void(EXPAND, image)
