"""How exactly quotas are held for librdkafka's clients, and what they cost those without one.

A producer and a consumer of confluent-kafka with a quota send and read as fast as they are let, for
ten seconds, after a second to get going; beside them is one without a quota, whose requests are
timed with the limited ones there and without. What is shown are ratios to the quota and to the time
alone, so the machine does not matter.
"""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Final

from bench.processes import broker_command, serving, temporary_folder
from bench.report import Goal, Outcome, Table
from bench.scale import TINY, Scale

RATE: Final = 2_000_000
_RECORD_BYTES: Final = 10_000
_TOPIC: Final = "limited"


def run(scale: Scale) -> Outcome:
    seconds = 3.0 if scale is TINY else 10.0
    table = Table(
        title=f"Quotas of {RATE / 1e6:g} MB/s over {seconds:g} s, confluent-kafka",
        columns=("what", "ratio"),
        note="bytes over the quota's bytes; the last row is the time of a request of another "
        "client, with the limited producer there and without.",
    )
    with temporary_folder() as folder, serving(broker_command(folder)) as broker:
        bootstrap = broker.bootstrap
        alone = _other_latency(bootstrap, min(seconds, 3.0))
        _limit(bootstrap)
        produced, beside = _produce(bootstrap, seconds)
        consumed = _consume(bootstrap, seconds)
    table.add("produced / quota", produced / RATE)
    table.add("consumed / quota", consumed / RATE)
    table.add("another client, beside / alone", beside / alone)
    goals = [
        Goal(figure=f"{name}, off by", to_reach=0.1, measured=abs(rate / RATE - 1))
        for name, rate in (("producer_byte_rate", produced), ("consumer_byte_rate", consumed))
    ]
    return Outcome(tables=[table], goals=goals)


def _limit(bootstrap: str) -> None:
    import moldau
    from moldau.quotas import QuotaEntity

    limits = {"producer_byte_rate": float(RATE), "consumer_byte_rate": float(RATE)}
    with moldau.Admin(bootstrap) as admin:
        admin.alter_client_quotas({QuotaEntity(client_id="limited"): limits})


def _produce(bootstrap: str, seconds: float) -> tuple[float, float]:
    """Confirmed bytes per second, and the median time of a request of somebody else meanwhile."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "limited",
            "batch.size": 100_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200,
            "log_level": 0,
        }
    )
    confirmed: list[float] = []
    beside: list[float] = []
    meanwhile = threading.Thread(target=lambda: beside.append(_other_latency(bootstrap, seconds)))
    value = bytes(_RECORD_BYTES)
    began = time.perf_counter()
    meanwhile.start()
    while time.perf_counter() - began < seconds + 1.0:
        try:
            producer.produce(
                _TOPIC, value, on_delivery=lambda *_: confirmed.append(time.perf_counter())
            )
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    ended = time.perf_counter()
    producer.purge()
    producer.flush(10)
    meanwhile.join()
    counted = sum(began + 1.0 <= at <= ended for at in confirmed)
    return counted * _RECORD_BYTES / (ended - began - 1.0), beside[0]


def _consume(bootstrap: str, seconds: float) -> float:
    from confluent_kafka import Consumer, TopicPartition

    import moldau

    with moldau.Producer(bootstrap) as producer:
        values = [bytes(_RECORD_BYTES)] * int(RATE * (seconds + 3) / _RECORD_BYTES)
        producer.send_many(_TOPIC, values).result()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "limited",
            "group.id": "limited",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    first = consumer.poll(30)
    began, count = time.perf_counter(), 0
    while first is not None and time.perf_counter() - began < seconds + 1.0:
        message = consumer.poll(0.05)
        if message is not None and time.perf_counter() - began >= 1.0:
            count += 1
    elapsed = time.perf_counter() - began - 1.0
    consumer.unassign()
    consumer.close()
    return count * _RECORD_BYTES / elapsed


def _other_latency(bootstrap: str, seconds: float) -> float:
    """The median time of a record with acks=all, one at a time, of a client without a quota."""
    import moldau

    times = []
    with moldau.Producer(bootstrap, client_id="other", linger_ms=0) as producer:
        producer.send("free", b"first").result()
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            producer.send("free", b"value").result()
            times.append(time.perf_counter() - now)
    return median(times)
