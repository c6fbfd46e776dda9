"""Java's own share consumer, 4.3: queues (KIP-932), exactly so many records, renewals, and whoever
takes or leads being killed."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess, running_broker
from support.cluster_processes import cluster_processes
from support.kafka_jars import NEWEST, JarsUnavailableError, require_class_path
from support.share_story import ShareStory
from support.topics import Topics
from support.waiting import eventually
from support.zookeeper import Zookeeper, zookeeper_ensemble

__all__ = ["zookeeper_ensemble"]

SOURCE = Path(__file__).parent / "java" / "ShareTaker.java"
BROKER_SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="session")
def takers(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The command that starts a taker, or a skip with the reason."""
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        pytest.skip("there is no Java (java and javac) to run Kafka's own share consumer with")
    try:
        jars = require_class_path(NEWEST)
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    classes = tmp_path_factory.mktemp("java")
    path = f"{classes}:{jars}"
    subprocess.run([compiler, "-cp", path, "-d", str(classes), str(SOURCE)], check=True)
    frugal = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return (java, *frugal, "-cp", path, "ShareTaker")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker(BROKER_SETTINGS) as process:
        yield process


def story_on(
    broker: BrokerProcess,
    folder: Path,
    takers: Sequence[str],
    partitions: int = 2,
    **settings: str,
) -> ShareStory:
    """With one partition all takers read it. Several are spread among them, and what was acquired
    of one that goes to another taker may come again."""
    topic = Topics(broker.bootstrap).create(partitions=partitions)
    named = {f"share.{name.replace('_', '.')}": value for name, value in settings.items()}
    return ShareStory(broker.bootstrap, folder, takers, topic, named)


def test_many_takers_share_the_records_of_a_topic(
    broker: BrokerProcess, takers: Sequence[str], tmp_path: Path
) -> None:
    with story_on(broker, tmp_path, takers, 1) as story:
        story.produce(f"accept-{number}" for number in range(200))
        members = [story.join("explicit"), story.join("implicit"), story.join("limited")]
        story.produce(f"accept-{number}" for number in range(200, 600))
        story.wait_until_all_are_confirmed()
        assert Counter(one.value for one in story.deliveries) == Counter(story.sent)
        for member in members:
            polled = [one["count"] for one in member.events if one["event"] == "poll"]
            assert all(count <= 7 for count in polled) or "limited" not in member.name
        members[0].leave()


def test_what_takers_say_of_records_is_what_becomes_of_them(
    broker: BrokerProcess, takers: Sequence[str], tmp_path: Path
) -> None:
    with story_on(broker, tmp_path, takers, 1) as story:
        story.produce(f"{kind}-{n}" for n in range(20) for kind in ("release", "reject", "accept"))
        story.join("explicit")
        story.join("explicit")
        story.wait_until_all_are_confirmed()

        def is_over() -> bool:
            return sum(story.accepted.values()) >= 40

        eventually(is_over, lambda: str(story.accepted))
        counts = defaultdict(list)
        for one in story.deliveries:
            counts[one.value].append((one.count, one.said))
        for value, seen in counts.items():
            expected = {
                "release": [(1, "RELEASE"), (2, "RELEASE"), (3, "ACCEPT")],
                "reject": [(1, "REJECT")],
                "accept": [(1, "ACCEPT")],
            }[value.partition("-")[0]]
            assert sorted(seen) == expected, value


def test_a_taker_renews_what_takes_longer(
    broker: BrokerProcess, takers: Sequence[str], tmp_path: Path
) -> None:
    with story_on(broker, tmp_path, takers, 1) as story:
        story.produce(["accept-1", "renew-1", "renew-2"])
        (taker,) = [story.join("explicit")]
        story.wait_until_all_are_confirmed()
        eventually(lambda: len(story.accepted) == 3, lambda: str(story.deliveries))
        assert {one.count for one in story.deliveries} == {1}
        assert not taker.acknowledged("InvalidRecordStateException")


def test_what_a_stuck_taker_holds_comes_to_another_one_when_its_lock_is_over(
    broker: BrokerProcess, takers: Sequence[str], tmp_path: Path
) -> None:
    settings = {"record_lock_duration_ms": "1500"}
    with story_on(broker, tmp_path, takers, 1, **settings) as story:
        story.produce(f"accept-{number}" for number in range(20))
        stuck = story.join("stuck")
        stuck.wait_until_it_has(1)
        held = {one.value for one in stuck.deliveries}
        story.join("explicit")
        story.wait_until_all_are_confirmed()
        again = {one.value: one.count for one in story.deliveries if one.taker != stuck.name}
        assert all(again[value] >= 2 for value in held)


def test_what_a_killed_taker_had_comes_to_another_one(
    broker: BrokerProcess, takers: Sequence[str], tmp_path: Path
) -> None:
    with story_on(broker, tmp_path, takers, 1) as story:
        story.produce(f"accept-{number}" for number in range(50))
        stuck = story.join("stuck")  # with the default lock of half a minute
        stuck.wait_until_it_has(1)
        held = {one.value for one in stuck.deliveries}
        stuck.kill()
        story.join("explicit")
        story.wait_until_all_are_confirmed()
        again = {one.value: one.count for one in story.deliveries if one.taker != stuck.name}
        assert held <= again.keys()
        assert all(again[value] == 2 for value in held)


def test_a_leader_is_killed_and_nothing_is_lost_or_accepted_twice(
    takers: Sequence[str], tmp_path: Path, zookeeper_ensemble: Zookeeper
) -> None:
    settings = {
        **BROKER_SETTINGS,
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
    }
    zookeeper = zookeeper_ensemble.fresh_connect()
    with cluster_processes(tmp_path, zookeeper, settings=settings) as cluster:
        topic = cluster.create_topic(partitions=2)
        locks = {"share.record.lock.duration.ms": "3000"}
        with ShareStory(cluster.bootstrap, tmp_path, takers, topic, locks) as story:
            first, second = story.join("explicit"), story.join("explicit")
            for round_number in range(500):  # until each has partitions, and has worked
                story.produce(f"accept-{round_number}-{number}" for number in range(25))
                story.wait_until_all_are_confirmed()
                if all(len([*taker.deliveries]) >= 20 for taker in (first, second)):
                    break
            story.produce(f"accept-then-{number}" for number in range(100))
            leader = cluster.view(topic, 0).leader
            confirmed = first.acknowledged() | second.acknowledged()
            before = {taker.name: len([*taker.deliveries]) for taker in story.takers}
            cluster.kill(leader)
            cluster.wait_until_led_by_another(topic, leader)
            story.produce(f"accept-later-{number}" for number in range(200))
            story.wait_until_all_are_done()
            later = {
                (one.partition, one.offset)
                for taker in story.takers
                for one in [*taker.deliveries][before[taker.name] :]
            }
            assert confirmed
            assert not later & confirmed
