"""Quotas as librdkafka and our client meet them: they wait as told, lose nothing, and others go on.

How exactly a rate is held is asserted on virtual time (`tests/unit/broker/test_quotas_in_memory`);
`python -m bench quotas` measures it with these clients.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

import moldau
from moldau.client.admin.access import ANY
from moldau.quotas import DEFAULT, QuotaEntity
from support import confluent_client
from support.waiting import PATIENCE_SECONDS

VALUE = bytes(10_000)
COUNT = 40


@pytest.fixture
def admin(bootstrap: str) -> Iterator[moldau.Admin]:
    with moldau.Admin(bootstrap) as made:
        yield made


def limit(admin: moldau.Admin, client_id: str, **limits: float | None) -> None:
    answers = admin.alter_client_quotas({QuotaEntity(client_id=client_id): limits})
    assert set(answers.values()) == {None}


def test_a_producer_of_librdkafka_is_slowed_down_and_loses_nothing(
    bootstrap: str, topic: str, admin: moldau.Admin
) -> None:
    limit(admin, "slow", producer_byte_rate=400_000)
    throttled: list[float] = []
    producer = confluent_client.producer(
        bootstrap,
        client_id="slow",
        throttle_cb=lambda event: throttled.append(event.throttle_time),
        batch_size=50_000,
        linger_ms=5,
    )
    for _ in range(COUNT):
        producer.produce(topic, VALUE)
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert producer.poll(0) == 0
    assert max(throttled) > 0
    ends = admin.list_offsets({moldau.TopicPartition(topic, 0): -1})
    assert next(iter(ends.values())).offset == COUNT


def test_a_consumer_of_librdkafka_is_slowed_down_and_reads_everything(
    bootstrap: str, topic: str, admin: moldau.Admin
) -> None:
    with moldau.Producer(bootstrap) as producer:
        for _ in range(COUNT):
            producer.send(topic, VALUE)
    limit(admin, "slow reader", consumer_byte_rate=400_000)
    throttled: list[float] = []
    with confluent_client.consumer(
        bootstrap,
        client_id="slow reader",
        throttle_cb=lambda event: throttled.append(event.throttle_time),
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = []
        while len(read) < COUNT:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None
            assert message.error() is None
            read.append(message.offset())
    assert read == list(range(COUNT))
    assert max(throttled) > 0


def test_our_own_clients_are_slowed_down_and_lose_nothing(
    bootstrap: str, topic: str, admin: moldau.Admin
) -> None:
    limit(admin, "ours", producer_byte_rate=400_000, consumer_byte_rate=400_000)
    with moldau.Producer(bootstrap, client_id="ours", batch_size=50_000) as producer:
        futures = [producer.send(topic, VALUE) for _ in range(COUNT)]
        offsets = [one.result(PATIENCE_SECONDS).offset for one in futures]
    with moldau.Consumer(
        bootstrap, client_id="ours", topics=[topic], group=topic, auto_offset_reset="earliest"
    ) as consumer:
        read: list[int] = []
        while len(read) < COUNT:
            read += [record.offset for record in consumer.poll(PATIENCE_SECONDS)]
    assert offsets == read == list(range(COUNT))


def test_quotas_are_described_by_their_names(admin: moldau.Admin) -> None:
    users = {
        QuotaEntity(user="alice"): {"request_percentage": 50.0},
        QuotaEntity(user="alice", client_id=DEFAULT): {"producer_byte_rate": 1.0},
        QuotaEntity(user=DEFAULT): {"controller_mutation_rate": 2.5},
    }
    assert set(admin.alter_client_quotas(users).values()) == {None}
    assert admin.describe_client_quotas(user=ANY) == users
    alice, of_alice, default = users.items()
    assert admin.describe_client_quotas(user="alice", strict=True) == dict([alice])
    assert admin.describe_client_quotas(user="alice", client_id=ANY) == dict([of_alice])
    assert admin.describe_client_quotas(user=DEFAULT) == dict([default])
    nothing = {entity: dict.fromkeys(limits) for entity, limits in users.items()}
    assert set(admin.alter_client_quotas(nothing).values()) == {None}
    assert not admin.describe_client_quotas(user=ANY)
