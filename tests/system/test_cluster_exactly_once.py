"""Consume, transform, produce on three brokers while they and the worker are killed.

What a reader of decided transactions finds is exactly the input, per partition in order.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.cluster_processes import ClusterProcesses, cluster
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

PARTITIONS = 3
COUNT = 300
GROUP = "exactly-once"

WORKER = textwrap.dedent(
    """
    import json, random, sys
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    bootstrap, source, target, group, partitions, count, seed = json.loads(sys.argv[1])
    chance = random.Random(seed)
    base = {"bootstrap.servers": bootstrap, "log_level": 0}
    while True:
        consumer = Consumer({**base, "group.id": group, "enable.auto.commit": False,
                             "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        producer = Producer({**base, "transactional.id": "worker",
                             "transaction.timeout.ms": 20000})
        try:
            producer.init_transactions(30)
            places = [TopicPartition(source, number) for number in range(partitions)]
            while True:
                committed = consumer.committed(places, 30)
                ends = {one.partition: max(one.offset, 0) for one in committed}
                if all(end >= count for end in ends.values()):
                    sys.exit(0)
                left = [p for p in ends if ends[p] < count]
                consumer.assign([TopicPartition(source, p, ends[p]) for p in left])
                messages = [one for one in consumer.consume(10, 5) if not one.error()]
                if not messages:
                    continue
                producer.begin_transaction()
                for one in messages:
                    producer.produce(target, one.value(), partition=one.partition())
                    ends[one.partition()] = one.offset() + 1
                offsets = [TopicPartition(source, p, ends[p]) for p in ends]
                producer.send_offsets_to_transaction(
                    offsets, consumer.consumer_group_metadata(), 30)
                if chance.random() < 0.2:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
        except KafkaException:
            consumer.close()  # fenced, or a broker that is not there: begin again
    """
)


class Worker:
    """A process that is killed and started again; the one before is fenced."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = list(arguments)
        self._seed = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._seed += 1
        arguments = json.dumps([*self._arguments, self._seed])
        self._process = subprocess.Popen([sys.executable, "-c", WORKER, arguments])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def is_done(self) -> bool:
        assert self._process is not None
        return self._process.poll() == 0


@pytest.fixture
def topics(cluster: ClusterProcesses) -> tuple[str, str]:
    source = cluster.create_topic(PARTITIONS, {"min.insync.replicas": "2"})
    target = cluster.create_topic(PARTITIONS, {"min.insync.replicas": "2"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(COUNT):
        for partition in range(PARTITIONS):
            producer.produce(source, b"%d-%d" % (partition, number), partition=partition)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return source, target


@pytest.fixture
def worker(cluster: ClusterProcesses, topics: tuple[str, str]) -> Iterator[Worker]:
    made = Worker(cluster.bootstrap, *topics, GROUP, PARTITIONS, COUNT)
    yield made
    made.kill()


def progress(cluster: ClusterProcesses, source: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        places = [TopicPartition(source, number) for number in range(PARTITIONS)]
        return sum(max(one.offset, 0) for one in consumer.committed(places, PATIENCE_SECONDS))
    finally:
        consumer.close()


def read_committed(cluster: ClusterProcesses, topic: str, partition: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None
            if message.error():
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()


def test_the_output_is_exactly_the_input_whoever_is_killed(
    cluster: ClusterProcesses, topics: tuple[str, str], worker: Worker
) -> None:
    source, target = topics
    chance = random.Random(7)
    worker.start()
    total = COUNT * PARTITIONS
    for step in range(1, 5):
        eventually(
            lambda: worker.is_done or progress(cluster, source) >= total * step // 6,  # noqa: B023
            f"{step} of 6 parts are through",
        )
        victim = chance.choice(sorted(cluster.brokers))
        cluster.kill(victim)
        if step % 2:
            worker.kill()
            worker.start()
        cluster.start(victim)
        cluster.wait_until_whole()
    eventually(lambda: worker.is_done, "everything is through", seconds=4 * PATIENCE_SECONDS)
    for partition in range(PARTITIONS):
        expected = [b"%d-%d" % (partition, number) for number in range(COUNT)]
        assert read_committed(cluster, target, partition) == expected
