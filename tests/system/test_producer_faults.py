"""Connections cut at every byte, silence, and brokers killed: nothing lost, doubled or displaced.

The producer is ours and reaches its broker through a proxy; other people's client reads the log.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
import moldau.errors
from moldau.testing.free_ports import take_port
from support import confluent_client
from support.broker_process import BrokerProcess, broker_process
from support.cutting_proxy import CuttingProxy, Way
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS, eventually

IMPATIENT = {
    "linger_ms": 0,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 20,
    "delivery_timeout_ms": 60_000,
}
PARTITIONS = 3


@pytest.fixture
def proxy(folder: Path) -> Iterator[CuttingProxy]:
    """A proxy with a broker behind it that sends clients to the proxy."""
    port = take_port()
    with CuttingProxy(port) as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with broker_process(folder / "broker", settings=settings, port=port) as process:
            process.start()
            yield proxy


@pytest.fixture
def chance() -> random.Random:
    """Moments at random; the seed is shown when a test fails."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 pytest shows it with a failure
    return random.Random(seed)


def values_in(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    """Everything in the log: `count` records and not one more."""
    got = confluent_client.consume(bootstrap, topic, count, partition=partition)
    with confluent_client.consumer(bootstrap) as client:
        from confluent_kafka import TopicPartition

        ends = client.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_SECONDS)
    assert ends == (0, count), "there are more records than were sent"
    return [one.value for one in got]


def measure(proxy: CuttingProxy, producer: moldau.Producer, topic: str) -> dict[Way, int]:
    """How many bytes one record takes on the wire, both ways."""
    before = dict(proxy.passed)
    producer.send(topic, b"number 00000", partition=0).result(PATIENCE_SECONDS)
    return {way: proxy.passed[way] - before[way] for way in Way}


@pytest.mark.parametrize("way", list(Way))
def test_a_cut_at_any_byte_of_a_request_and_of_its_answer(proxy: CuttingProxy, way: Way) -> None:
    topic = Topics(proxy.bootstrap).create(1)
    with moldau.Producer(proxy.bootstrap, **IMPATIENT) as producer:
        producer.send(topic, b"number 00000", partition=0).result(PATIENCE_SECONDS)
        size = measure(proxy, producer, topic)[way]
        assert size > 40
        sent = [b"number 00000"] * 2
        for count in range(size):
            cut = proxy.cut_after(way, count)
            sent.append(b"number %05d" % len(sent))
            metadata = producer.send(topic, sent[-1], partition=0).result(PATIENCE_SECONDS)
            assert cut.is_set()
            assert metadata.offset == len(sent) - 1
    assert values_in(proxy.bootstrap, topic, len(sent)) == sent


@pytest.mark.parametrize("way", list(Way))
def test_a_cut_while_the_producer_connects_again(proxy: CuttingProxy, way: Way) -> None:
    topic = Topics(proxy.bootstrap).create(1)
    sent: list[bytes] = []
    with moldau.Producer(proxy.bootstrap, **IMPATIENT) as producer:
        producer.send(topic, b"first", partition=0).result(PATIENCE_SECONDS)
        sent.append(b"first")
        for count in range(0, 700, 13):
            proxy.cut_all()
            proxy.cut_after(way, count)
            sent.append(b"number %d" % count)
            producer.send(topic, sent[-1], partition=0).result(PATIENCE_SECONDS)
            proxy.disarm()
    assert values_in(proxy.bootstrap, topic, len(sent)) == sent


@pytest.mark.parametrize(
    ("options", "is_exact"),
    [
        ({}, True),
        ({"compression_type": "zstd", "linger_ms": 1}, True),
        ({"max_in_flight_requests_per_connection": 1}, True),
        ({"enable_idempotence": False}, False),
        ({"acks": 1}, False),
    ],
    ids=["idempotent", "compressed", "one in flight", "acks=all, not idempotent", "acks=1"],
)
def test_cuts_at_random_in_a_stream_of_batches(
    proxy: CuttingProxy, chance: random.Random, options: dict[str, object], is_exact: bool
) -> None:
    topic = Topics(proxy.bootstrap).create(PARTITIONS)
    sent: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    settings = {**IMPATIENT, "batch_size": 2_000, **options}
    with Saboteur(proxy, chance) as saboteur, moldau.Producer(proxy.bootstrap, **settings) as ours:
        number = 0
        while saboteur.cut_count < 25:
            partition = chance.randrange(PARTITIONS)
            values = [b"%d of %d" % (number + n, partition) for n in range(chance.randrange(1, 80))]
            number += len(values)
            sent[partition] += values
            if chance.random() < 0.5:
                ours.send_many(topic, values, partition=partition)
            else:
                futures = [ours.send(topic, value, partition=partition) for value in values]
                if chance.random() < 0.1:
                    futures[-1].result(PATIENCE_SECONDS)
        saboteur.stop()
        ours.flush(PATIENCE_SECONDS)
    for partition, values in sent.items():
        if is_exact:
            assert values_in(proxy.bootstrap, topic, len(values), partition) == values
        else:
            assert first_writings(proxy.bootstrap, topic, partition) == values


def first_writings(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """What is in the log, without what came again."""
    from confluent_kafka import TopicPartition

    with confluent_client.consumer(bootstrap) as client:
        _, end = client.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_SECONDS)
    got = confluent_client.consume(bootstrap, topic, end, partition=partition)
    return list(dict.fromkeys(one.value or b"" for one in got))


class Saboteur:
    """Cuts connections again and again, each time after some bytes, in either direction."""

    def __init__(self, proxy: CuttingProxy, chance: random.Random) -> None:
        self.cut_count = 0
        self._proxy = proxy
        self._chance = random.Random(chance.random())
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Saboteur:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._proxy.disarm()

    def _run(self) -> None:
        while not self._stopping.is_set():
            way = self._chance.choice(list(Way))
            most = 20_000 if way is Way.TO_BROKER else 500
            cut = self._proxy.cut_after(way, self._chance.randrange(most))
            while not cut.wait(0.05) and not self._stopping.is_set():
                pass
            self.cut_count += 1


@pytest.mark.parametrize("way", list(Way))
def test_silence_is_ended_by_the_request_timeout(proxy: CuttingProxy, way: Way) -> None:
    topic = Topics(proxy.bootstrap).create(1)
    with moldau.Producer(proxy.bootstrap, **{**IMPATIENT, "request_timeout_ms": 500}) as producer:
        sent = [b"%d" % number for number in range(60)]
        producer.send_many(topic, sent[:20]).result(PATIENCE_SECONDS)
        silent = proxy.cut_after(way, 50, silently=True)
        producer.send_many(topic, sent[20:40]).result(PATIENCE_SECONDS)
        assert silent.is_set()
        producer.send_many(topic, sent[40:]).result(PATIENCE_SECONDS)
    assert values_in(proxy.bootstrap, topic, len(sent)) == sent


def test_a_connection_whose_end_takes_nothing_any_more_is_given_up(proxy: CuttingProxy) -> None:
    topic = Topics(proxy.bootstrap).create(PARTITIONS)
    settings = {"request_timeout_ms": 2_000, "batch_size": 900_000, "max_request_size": 4_000_000}
    with moldau.Producer(proxy.bootstrap, **{**IMPATIENT, **settings}) as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, b"first", partition=partition).result(PATIENCE_SECONDS)
        proxy.go_deaf()
        # More than any buffer between here and there: the producer cannot get rid of it all.
        futures = [
            producer.send(topic, bytes(800_000), partition=number % PARTITIONS)
            for number in range(10 * PARTITIONS)
        ]
        offsets = [future.result(PATIENCE_SECONDS).offset for future in futures]
    assert offsets == [1 + number // PARTITIONS for number in range(10 * PARTITIONS)]


def test_a_broker_that_is_killed_again_and_again(
    broker: BrokerProcess, chance: random.Random
) -> None:
    broker.start()
    topic = Topics(broker.bootstrap).create(PARTITIONS)
    sent: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    with moldau.Producer(broker.bootstrap, **{**IMPATIENT, "batch_size": 2_000}) as producer:
        for _ in range(4):
            futures = []
            for number in range(chance.randrange(2_000, 8_000)):
                partition = number % PARTITIONS
                value = b"%d of %d" % (len(sent[partition]), partition)
                sent[partition].append(value)
                futures.append(producer.send(topic, value, partition=partition))
            futures[chance.randrange(len(futures))].result(PATIENCE_SECONDS)
            broker.kill()
            producer.send(topic, b"while it is gone", partition=0)
            sent[0].append(b"while it is gone")
            broker.start()
        producer.flush(PATIENCE_SECONDS)
    for partition, values in sent.items():
        assert values_in(broker.bootstrap, topic, len(values), partition) == values


def test_a_broker_that_stays_away_fails_what_waits_for_it(broker: BrokerProcess) -> None:
    broker.start()
    topic = Topics(broker.bootstrap).create(1)
    with moldau.Producer(
        broker.bootstrap, **{**IMPATIENT, "delivery_timeout_ms": 1_000, "max_block_ms": 500}
    ) as producer:

        def arrives() -> bool:
            try:
                return producer.send(topic, b"it is there").result(PATIENCE_SECONDS).offset >= 0
            except moldau.errors.ClientError:  # too late, on a busy machine
                return False

        eventually(arrives, "a record in time")
        broker.kill()
        lost = producer.send(topic, b"it is gone")
        with pytest.raises(moldau.errors.DeliveryTimeoutError, match="within 1 seconds"):
            lost.result(PATIENCE_SECONDS)
        with pytest.raises(moldau.errors.ClientError, match="no broker answers"):
            producer.send("another-topic", b"it is gone")
