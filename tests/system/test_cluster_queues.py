"""Leaders of a queue's partitions, of its state and of its group are killed while jobs are done.

Every record is dealt with. What the broker has confirmed as accepted is never delivered again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import moldau
from moldau.client.admin.values import ConfigResource
from moldau.config.alterations import ConfigChange
from moldau.errors import AcknowledgementError, ClientError, ClosedClientError, KafkaError
from moldau.model import GROUP_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from support.cluster_processes import ClusterProcesses
from support.queue_cluster import cluster
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

GROUP = "workers"


class Workers:
    """Threads that take from one queue, and note what they saw and what was confirmed."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        self._lock = threading.Lock()
        self._confirmed: set[bytes] = set()
        self._doubtful: set[bytes] = set()  # was done; whether the broker knows, nobody knows
        self.seen: Counter[bytes] = Counter()
        self.again: list[bytes] = []  # delivered although it was confirmed before
        self.queue = moldau.Queue(
            bootstrap, group=GROUP, topic=topic, confirm=True, fetch_max_wait_ms=200
        )
        self._threads = [threading.Thread(target=self._work) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def confirmed(self) -> set[bytes]:
        with self._lock:
            return set(self._confirmed)

    @property
    def done(self) -> set[bytes]:
        with self._lock:
            return self._confirmed | self._doubtful

    def _work(self) -> None:
        while True:
            value = b""
            try:
                with self.queue.next() as job:
                    value = job.record.value or b""
                    with self._lock:
                        self.seen[value] += 1
                        if value in self._confirmed:
                            self.again.append(value)
                with self._lock:
                    self._confirmed.add(value)
            except ClosedClientError:
                return
            except AcknowledgementError:
                with self._lock:
                    self._doubtful.add(value)
            except (KafkaError, ClientError):
                continue

    def close(self) -> None:
        self.queue.close()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)


@contextmanager
def workers(bootstrap: str, topic: str, count: int) -> Iterator[Workers]:
    made = Workers(bootstrap, topic, count)
    try:
        yield made
    finally:
        made.close()


def produce(cluster: ClusterProcesses, topic: str, first: int, count: int) -> set[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    with moldau.Producer(cluster.bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 2)
    return set(values)


@pytest.mark.timeout(400)
def test_no_job_is_lost_or_done_again_when_leaders_and_coordinators_die(
    cluster: ClusterProcesses,
) -> None:
    topic = cluster.create_topic(2)
    change = ConfigChange(name="share.auto.offset.reset", value="earliest")
    lock = ConfigChange(name="share.record.lock.duration.ms", value="5000")
    with moldau.Admin(cluster.bootstrap) as admin:
        resource = ConfigResource.group(GROUP)
        assert admin.alter_configs({resource: [change, lock]}) == {resource: None}
    expected = produce(cluster, topic, 0, 100)
    with workers(cluster.bootstrap, topic, 3) as some, workers(cluster.bootstrap, topic, 2) as more:

        def wait_for_all() -> None:
            eventually(
                lambda: some.done | more.done >= expected,
                lambda: f"not done: {expected - some.done - more.done}",
                2 * PATIENCE_SECONDS,
            )

        wait_for_all()
        for round_number, struck in enumerate(
            (topic, SHARE_GROUP_STATE_TOPIC, GROUP_OFFSETS_TOPIC), start=1
        ):
            expected |= produce(cluster, topic, round_number * 1000, 100)
            killed = cluster.view(struck).leader
            cluster.kill(killed)
            cluster.wait_until_led_by_another(struck, killed)
            expected |= produce(cluster, topic, round_number * 1000 + 100, 50)
            wait_for_all()
            cluster.start(killed)
            cluster.wait_until_whole()
        wait_for_all()
    confirmed = some.confirmed | more.confirmed
    assert some.again + more.again == []
    assert some.seen.keys() | more.seen.keys() == expected
    left = take_what_is_left(cluster, topic)
    assert not left & confirmed


def take_what_is_left(cluster: ClusterProcesses, topic: str) -> set[bytes]:
    """Up to a record that is produced now into each partition."""
    with moldau.Producer(cluster.bootstrap) as producer:
        for partition in range(2):
            producer.send(topic, b"end", partition=partition)
    left: list[bytes] = []
    with moldau.Queue(cluster.bootstrap, group=GROUP, topic=topic) as queue:
        while left.count(b"end") < 2:
            with queue.next(PATIENCE_SECONDS) as job:
                left.append(job.record.value or b"")
    return set(left) - {b"end"}
