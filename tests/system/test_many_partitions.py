"""Two thousand partitions: all of them work, and the figures are printed (pytest -s)."""

from __future__ import annotations

import time

from confluent_kafka import TopicPartition

from support import confluent_client
from support.broker_process import BrokerProcess
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS

TOPICS = 20
PARTITIONS = 100


def test_two_thousand_partitions(broker: BrokerProcess) -> None:
    started = time.perf_counter()
    broker.start()
    empty = time.perf_counter() - started
    empty_memory = broker.memory_bytes()
    topics = Topics(broker.bootstrap)
    names = [topics.create(PARTITIONS) for _ in range(TOPICS)]
    producer = confluent_client.producer(broker.bootstrap, linger_ms=20)
    for name in names:
        for partition in range(PARTITIONS):
            producer.produce(name, f"{name} {partition}", partition=partition)
    assert producer.flush(PATIENCE_SECONDS) == 0
    full_memory = broker.memory_bytes()

    stopped = time.perf_counter()
    assert broker.stop() == 0
    stop = time.perf_counter() - stopped
    started = time.perf_counter()
    broker.start()
    full = time.perf_counter() - started
    idle_memory = broker.memory_bytes()

    broker.kill()
    started = time.perf_counter()
    broker.start()
    after_kill = time.perf_counter() - started

    assert set(names) <= Topics(broker.bootstrap).names()
    with confluent_client.consumer(broker.bootstrap) as client:
        client.assign(
            [TopicPartition(name, number, 0) for name in names for number in range(PARTITIONS)]
        )
        got = confluent_client.poll(client, TOPICS * PARTITIONS)
    assert {one.value.decode() for one in got if one.value} == {
        f"{name} {number}" for name in names for number in range(PARTITIONS)
    }
    print(  # noqa: T201
        f"\nstart empty {empty:.2f} s, with {TOPICS * PARTITIONS} partitions {full:.2f} s, "
        f"after a kill {after_kill:.2f} s; stop {stop:.2f} s; memory empty "
        f"{empty_memory >> 20} MB, filled {full_memory >> 20} MB, idle {idle_memory >> 20} MB"
    )
