"""A consumer that may not read what it subscribes to says so, and goes on when it may."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.rules.consumer_story import Story, describe_cluster
from moldau.client.consumer.rules.instructions import TimerKind
from moldau.client.consumer.rules.machine import ConsumerMachine
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import TopicAuthorizationError
from moldau.model import TopicPartition


@pytest.mark.parametrize("group_id", ["g", None])
@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_topic_that_may_not_be_read_is_told_once_for_each_answer(
    group_id: str | None, is_assigned: bool
) -> None:
    story = Story(group_id=group_id)
    denied = TopicMetadata(name="t", error=TopicAuthorizationError("no"))
    story.cluster = replace(describe_cluster(), topics={"t": denied})
    if is_assigned:
        story.happen(lambda machine: machine.assign([TopicPartition("t", 0)]))
    else:
        story.subscribe("t")
    story.wait_for_records()
    story.refresh()
    assert story.had_news
    with pytest.raises(TopicAuthorizationError):
        story.happen(ConsumerMachine.raise_failures)
    story.happen(ConsumerMachine.raise_failures)  # no more than once
    story.fire(TimerKind.METADATA_PAUSE)
    story.cluster = describe_cluster()
    story.refresh()
    story.happen(ConsumerMachine.raise_failures)
