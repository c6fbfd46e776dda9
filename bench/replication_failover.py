"""What a dead broker costs: how long nobody is served, and what many partitions add to that.

A broker is killed with kill -9, so that the others learn of it from ZooKeeper alone, when the
session is over. All times are from the kill on and are held against the session time-out.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean, median

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import ClusterMetadata

from bench.frames import make_batch, produce
from bench.measure import MB
from bench.processes import ServerProcess
from bench.raw_client import RawClient
from bench.replication_cluster import RunningCluster, find_obstacle, running_cluster
from bench.report import Outcome, Table
from bench.scale import TINY, Scale

_MANY_PARTITIONS = 1_000
_KILLS = 3
_SESSION_TIMEOUTS_MS = (2_000, 6_000)
_TINY_SESSION_TIMEOUT_MS = 1_000
_PATIENCE_SECONDS = 60.0
_RECORD_BYTES = 100
_PAUSE_SECONDS = 0.005
_FLUSH_SECONDS = 10.0
_TOPIC = "led"
_MANY_TOPIC = "many"
_QUICK = {
    "enable.idempotence": True,
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
    "log.connection.close": False,
}


def run(scale: Scale) -> Outcome:
    obstacle = find_obstacle()
    if obstacle is not None:
        return obstacle
    is_tiny = scale is TINY
    timeouts_ms = (_TINY_SESSION_TIMEOUT_MS,) if is_tiny else _SESSION_TIMEOUTS_MS
    partitions = min(_MANY_PARTITIONS, scale.partitions)
    outcome = Outcome(tables=[_leader_table(), _controller_table(), _size_table()])
    leaders, controllers, sizes = outcome.tables
    for timeout_ms in timeouts_ms:
        with _cluster(timeout_ms) as cluster:
            _kill_leaders(cluster, timeout_ms, 1 if is_tiny else _KILLS, leaders)
            if timeout_ms == timeouts_ms[0]:
                _kill_controller(cluster, timeout_ms, controllers)
                _grow(cluster, partitions, sizes)
                _kill_controller(cluster, timeout_ms, controllers)
    return outcome


@contextlib.contextmanager
def _cluster(session_timeout_ms: int) -> Iterator[RunningCluster]:
    settings = {
        "zookeeper.session.timeout.ms": str(session_timeout_ms),
        "min.insync.replicas": "2",
        "auto.leader.rebalance.enable": "false",
        "replica.fetch.backoff.ms": "100",
    }
    with running_cluster(settings) as cluster:
        yield cluster


# A leader


def _leader_table() -> Table:
    return Table(
        title="The leader of a partition is killed, seconds",
        columns=("session time-out", "elected", "acknowledged", "confluent-kafka", "at most"),
        note="elected: the metadata of another broker shows a new leader; acknowledged: acks=all, "
        "for a client that asks the new leader at once; confluent-kafka: the longest time without "
        "an acknowledgement for its idempotent producer, median and most.",
    )


def _kill_leaders(cluster: RunningCluster, timeout_ms: int, kills: int, table: Table) -> None:
    leader = cluster.create_topic(_TOPIC)
    elected, acknowledged, served = [], [], []
    for _ in range(kills):
        with _Sender(cluster.bootstrap) as sender:
            killed_at = time.perf_counter()
            cluster.kill(leader)
            elected.append(cluster.wait_for(_led_without(leader), "a new leader", killed_at))
            dead, leader = leader, cluster.metadata().topics[_TOPIC].partitions[0].leader
            _produce(cluster.brokers[leader])
            acknowledged.append(time.perf_counter() - killed_at)
            served.append(sender.longest_gap_after(killed_at))
        cluster.start(dead)
        cluster.wait_until_whole()
    medians = map(median, (elected, acknowledged, served))
    table.add(timeout_ms / 1000, *medians, max(served))


def _produce(leader: ServerProcess) -> None:
    """Until it is accepted: another broker may know of the new leader before it does itself."""
    prepared = produce(_TOPIC, make_batch(1, _RECORD_BYTES), acks=-1)
    deadline = time.perf_counter() + _PATIENCE_SECONDS
    with RawClient(leader) as client:
        while True:
            try:
                client.exchange(prepared)
                return
            except RuntimeError:
                if time.perf_counter() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)


def _led_without(dead: int) -> Callable[[ClusterMetadata], bool]:
    """Whether every partition is led, and none by the dead broker."""

    def is_so(found: ClusterMetadata) -> bool:
        return all(
            part.leader not in (dead, -1)
            for topic in found.topics.values()
            for part in topic.partitions.values()
        )

    return is_so


class _Sender:
    """Sends record after record in a thread of its own, and notes when they are acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **_QUICK})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender")
        self._times: list[float] = []
        self._failure: KafkaError | None = None

    def __enter__(self) -> _Sender:
        self._thread.start()
        self._wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(_FLUSH_SECONDS)
        self._producer.purge()

    def longest_gap_after(self, moment: float) -> float:
        """Between two acknowledgements, of which the later one came after a moment."""
        self._wait_for_more()
        return max(late - early for early, late in pairwise(self._times) if late > moment)

    def _wait_for_more(self, count: int = 100) -> None:
        target, deadline = len(self._times) + count, time.perf_counter() + _PATIENCE_SECONDS
        while len(self._times) < target:
            if self._failure is not None or time.perf_counter() > deadline:
                raise RuntimeError(f"no acknowledgements any more: {self._failure}")
            time.sleep(_PAUSE_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set() and self._failure is None:
            if len(self._producer) < 1:
                self._producer.produce(_TOPIC, b"beat", partition=0, on_delivery=self._note)
            self._producer.poll(_PAUSE_SECONDS)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._times.append(time.perf_counter())
        else:
            self._failure = error


# The controller


def _controller_table() -> Table:
    return Table(
        title="The controller is killed, which leads a third of all partitions, seconds",
        columns=(
            "session time-out",
            "partitions",
            "another controller",
            "all partitions led",
            "between the two",
        ),
        note="As the metadata of another broker shows it; every partition has three replicas.",
    )


def _kill_controller(cluster: RunningCluster, timeout_ms: int, table: Table) -> None:
    dead, partitions = cluster.controller(), _count_partitions(cluster.metadata())
    killed_at = time.perf_counter()
    cluster.kill(dead)
    replaced = cluster.wait_for(
        lambda found: found.controller_id not in (dead, -1), "another controller", killed_at
    )
    led = cluster.wait_for(_led_without(dead), "leaders of all partitions", killed_at)
    table.add(timeout_ms / 1000, partitions, replaced, led, led - replaced)
    cluster.start(dead)
    cluster.wait_until_whole()


def _count_partitions(found: ClusterMetadata) -> int:
    return sum(len(topic.partitions) for topic in found.topics.values())


# What partitions cost


def _size_table() -> Table:
    return Table(
        title="What partitions cost a cluster",
        columns=("partitions", "broker MB", "KB per replica", "watches", "watches per partition"),
        note="broker MB: the mean of three brokers, each with a replica of every partition; "
        "watches: of all brokers, at ZooKeeper.",
    )


def _grow(cluster: RunningCluster, partitions: int, table: Table) -> None:
    before, before_bytes = _count_partitions(cluster.metadata()), _resident_bytes(cluster)
    before_watches = cluster.watch_count()
    table.add(before, before_bytes / MB, None, before_watches, None)
    cluster.create_topic(_MANY_TOPIC, partitions)
    after_bytes, watches = _resident_bytes(cluster), cluster.watch_count()
    table.add(
        before + partitions,
        after_bytes / MB,
        (after_bytes - before_bytes) / partitions / 1000,
        watches,
        (watches - before_watches) / partitions,
    )


def _resident_bytes(cluster: RunningCluster) -> float:
    return mean(broker.resident_bytes() for broker in cluster.brokers.values())
