"""Consumers of four libraries in one group, joining, leaving and killed while records flow.

Whoever leads the group, every record is dealt with, no partition has two owners at a time, and
committed offsets only grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess, running_broker
from support.mixed_group_story import Story, check

BROKER_SETTINGS = {"group.min.session.timeout.ms": "1000"}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker(BROKER_SETTINGS) as process:
        yield process


def test_four_libraries_share_one_group(broker: BrokerProcess, tmp_path: Path) -> None:
    with Story(broker.bootstrap, tmp_path, "range") as story:
        confluent, ours = story.join("confluent", "moldau")
        aiokafka, kafka_python = story.join("aiokafka", "kafka-python")
        story.let_flow(300)
        ours.kill()  # perhaps the leader
        story.join("moldau", "moldau")
        confluent.leave()
        story.let_flow(300)
        kafka_python.kill()
        story.join("confluent")
        aiokafka.leave()
        story.join("kafka-python")
        story.let_flow(300)
        story.finish()
        check(story)


@pytest.mark.parametrize(
    ("assignor", "other"), [("cooperative-sticky", "confluent"), ("sticky", "kafka-python")]
)
def test_sticky_members_of_different_libraries(
    broker: BrokerProcess, tmp_path: Path, assignor: str, other: str
) -> None:
    with Story(broker.bootstrap, tmp_path, assignor) as story:
        (ours,) = story.join("moldau")
        (theirs,) = story.join(other)
        story.let_flow(200)
        story.join("moldau", other)
        theirs.leave()
        story.let_flow(200)
        ours.kill()
        story.join("moldau")
        story.let_flow(200)
        story.finish()
        check(story)
