"""Dead letters of a queue (KIP-1191) in a cluster: their topic is led by another broker than most
of the queue's partitions, and its leader dies."""

from __future__ import annotations

import time

import pytest

import moldau
from moldau.client.admin.values import ConfigResource
from moldau.config.alterations import ConfigChange
from moldau.errors import AcknowledgementError, KafkaError, QueueEmptyError
from support.cluster_processes import ClusterProcesses
from support.queue_cluster import cluster
from support.topics import fresh_name
from support.waiting import PATIENCE_SECONDS
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

GROUP = "graders"


def prepare(cluster: ClusterProcesses) -> tuple[str, str]:
    """A topic with a partition on each broker, and one for dead letters, on the first."""
    letters = fresh_name("dlq.")
    topic = fresh_name("jobs")
    first, second, third = cluster.broker_ids
    orders = [first, second, third], [second, third, first], [third, first, second]
    topics = [
        moldau.NewTopic(name=topic, assignments=dict(enumerate(orders))),
        moldau.NewTopic(
            name=letters,
            assignments={0: orders[0]},
            configs={"errors.deadletterqueue.group.enable": "true"},
        ),
    ]
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "2000",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    changes = [ConfigChange(name=name, value=value) for name, value in settings.items()]
    with moldau.Admin(cluster.bootstrap) as admin:
        assert set(admin.create_topics(topics)) == {topic, letters}
        resource = ConfigResource.group(GROUP)
        assert admin.alter_configs({resource: changes}) == {resource: None}
    return topic, letters


def reject_all(cluster: ClusterProcesses, topic: str, values: set[bytes]) -> None:
    """Until the broker has confirmed each: then its letter is written."""
    left = set(values)
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    with moldau.Queue(cluster.bootstrap, group=GROUP, topic=topic, confirm=True) as queue:
        while left:
            assert time.monotonic() < deadline, f"not rejected: {left}"
            try:
                job = queue.next(1.0)
                job.reject()
            except (QueueEmptyError, AcknowledgementError, KafkaError):
                continue
            left.discard(job.record.value or b"")


def read_letters(
    cluster: ClusterProcesses, letters: str, count: int
) -> dict[bytes, dict[str, str]]:
    """By value, with their headers; one may have been written twice."""
    found: dict[bytes, dict[str, str]] = {}
    with moldau.Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([moldau.TopicPartition(letters, 0)])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {found}"
            for record in consumer.poll(1.0):
                headers = {name: (value or b"").decode() for name, value in record.headers}
                found[record.value or b""] = headers
    return found


@pytest.mark.timeout(300)
def test_letters_are_written_by_way_of_other_brokers_and_after_the_death_of_their_leader(
    cluster: ClusterProcesses,
) -> None:
    topic, letters = prepare(cluster)
    first = {b"%d" % number for number in range(6)}
    with moldau.Producer(cluster.bootstrap) as producer:
        for value in sorted(first):
            producer.send(topic, value, partition=int(value) % 3)
    reject_all(cluster, topic, first)
    found = read_letters(cluster, letters, 6)
    assert found.keys() == first
    for value, headers in found.items():
        assert headers["__dlq.errors.topic"] == topic
        assert headers["__dlq.errors.partition"] == str(int(value) % 3)
        assert headers["__dlq.errors.group"] == GROUP

    killed = cluster.view(letters).leader
    more = {b"%d" % number for number in range(100, 106)}
    with moldau.Producer(cluster.bootstrap) as producer:
        for value in sorted(more):
            producer.send(topic, value, partition=int(value) % 3)
    cluster.kill(killed)
    reject_all(cluster, topic, more)
    assert read_letters(cluster, letters, 12).keys() == first | more
