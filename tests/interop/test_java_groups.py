"""Java's own consumer, 4.3, in consumer groups (KIP-848) and in classic ones, mixed and killed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess, running_broker
from support.kafka_jars import NEWEST, JarsUnavailableError, require_class_path
from support.mixed_group_story import Story, check

SOURCE = Path(__file__).parent / "java" / "GroupMember.java"
CLIENTS = ("java-classic", "java-consumer", "java-range", "java-pattern", "java-static")
BROKER_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="session")
def java_members(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[str]]:
    """The commands that start members, or a skip with the reason."""
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        pytest.skip("there is no Java (java and javac) to run Kafka's own consumer with")
    try:
        jars = require_class_path(NEWEST)
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    classes = tmp_path_factory.mktemp("java")
    path = f"{classes}:{jars}"
    subprocess.run([compiler, "-cp", path, "-d", str(classes), str(SOURCE)], check=True)
    frugal = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    command = (java, *frugal, "-cp", path, "GroupMember")
    return dict.fromkeys(CLIENTS, command)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker(BROKER_SETTINGS) as process:
        yield process


def test_members_come_go_and_are_killed(
    broker: BrokerProcess, java_members: Mapping[str, Sequence[str]], tmp_path: Path
) -> None:
    with Story(broker.bootstrap, tmp_path, "range", commands=java_members) as story:
        (first,) = story.join("java-consumer")
        by_pattern, static = story.join("java-pattern", "java-static")
        story.let_flow(300)
        first.kill()
        static.leave()  # and comes back as the same instance
        story.join("java-static", "java-range")
        story.let_flow(300)
        by_pattern.leave()
        story.let_flow(100)
        story.finish()
        check(story)


def test_a_group_changes_to_the_consumer_protocol_and_back(
    broker: BrokerProcess, java_members: Mapping[str, Sequence[str]], tmp_path: Path
) -> None:
    with Story(broker.bootstrap, tmp_path, "cooperative-sticky", commands=java_members) as story:
        classic, other = story.join("java-classic", "java-classic")
        story.let_flow(200)
        (new,) = story.join("java-consumer")
        classic.leave()
        story.join("confluent-consumer")
        story.let_flow(200)
        other.kill()
        story.join("java-classic")
        story.let_flow(200)
        new.leave()
        story.let_flow(100)
        story.finish()
        check(story)
