"""Coordinators and leaders are killed in the middle of transactions: what comes out is exact.

A producer with a transactional id writes numbers in transactions, some of which it aborts; readers
of committed records see each committed number once, and the aborted ones never.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from moldau.coordinators.runtime.internal_topic import partition_for
from moldau.model import TRANSACTION_STATE_TOPIC
from support.cluster_processes import ClusterProcesses, cluster
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

_PARTITIONS = 3
_EACH = 4


class Writer:
    """One transaction after the other, in a thread; every fifth is aborted."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 60_000,
        }
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[list[int]] = []  # transactions of which it was not told what became
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(2 * PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        assert self.error is None, self.error

    def wait_until_it_goes_on(self, transactions: int = 3) -> None:
        enough = len(self.committed) + transactions * _EACH
        eventually(lambda: self.error or len(self.committed) >= enough, "it commits again")

    def _run(self) -> None:
        number = 0
        try:
            producer = self._begin()
            while not self._stop.is_set():
                some = list(range(number, number + _EACH))
                number += _EACH
                if not self._write(producer, some):
                    producer = self._begin()
        except BaseException as error:  # noqa: BLE001 for the test to see
            self.error = error

    def _begin(self) -> Producer:
        producer = Producer(self._settings)
        producer.init_transactions(2 * PATIENCE_SECONDS)
        return producer

    def _write(self, producer: Producer, some: list[int]) -> bool:
        """False when another producer has to go on."""
        is_ending = False
        try:
            producer.begin_transaction()
            for one in some:
                producer.produce(self._topic, b"%d" % one, partition=one % _PARTITIONS)
            if some[0] // _EACH % 5 == 4:
                producer.abort_transaction(2 * PATIENCE_SECONDS)
                self.aborted += some
            else:
                is_ending = True
                producer.commit_transaction(2 * PATIENCE_SECONDS)
                self.committed += some
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(2 * PATIENCE_SECONDS)
                self.aborted += some
                return True
            if is_ending:
                self.unknown.append(some)
            else:
                self.aborted += some
            return False
        return True


def read_committed(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
        found: list[int] = []
        ended: set[int] = set()

        def is_over() -> bool:
            message = consumer.poll(0.2)
            if message is None:
                return False
            if message.error() is None:
                found.append(int(message.value() or b""))
                ended.discard(message.partition())
            else:
                ended.add(message.partition())
            return len(ended) == _PARTITIONS

        eventually(is_over, "the end of every partition")
        return found
    finally:
        consumer.close()


def check(cluster: ClusterProcesses, topic: str, writer: Writer) -> None:
    wanted = set(writer.committed)

    def is_exact() -> bool:
        found = set(read_committed(cluster.bootstrap, topic))
        return wanted <= found

    eventually(is_exact, "everything that was committed")
    found = Counter(read_committed(cluster.bootstrap, topic))
    assert max(found.values()) == 1
    extra = set(found) - wanted
    assert not extra & set(writer.aborted)
    for some in writer.unknown:  # as a whole, or not at all
        assert not set(some) & extra or set(some) <= extra
        extra -= set(some)
    assert not extra


def coordinator_of(cluster: ClusterProcesses, name: str) -> tuple[int, int]:
    number = partition_for(name, len(cluster.views(TRANSACTION_STATE_TOPIC)))
    return cluster.view(TRANSACTION_STATE_TOPIC, number).leader, number


def test_coordinators_are_killed_in_the_middle_of_transactions(cluster: ClusterProcesses) -> None:
    topic = cluster.create_topic(_PARTITIONS)
    writer = Writer(cluster.bootstrap, topic, f"writer-{topic}")
    with writer.running():
        writer.wait_until_it_goes_on()
        for _ in range(3):
            coordinator, number = coordinator_of(cluster, f"writer-{topic}")
            cluster.kill(coordinator)
            cluster.wait_until_led_by_another(TRANSACTION_STATE_TOPIC, coordinator, number)
            writer.wait_until_it_goes_on()
            cluster.start(coordinator)
            cluster.wait_until_whole()
    check(cluster, topic, writer)
