"""Whose clock counts, and how far it may be off."""

from __future__ import annotations

import time
from types import ModuleType

import pytest
from confluent_kafka import KafkaError, KafkaException

from compat.conftest import CLIENTS
from support import confluent_client
from support.rows import CREATE_TIME, LOG_APPEND_TIME, Row, numbered_rows
from support.topics import Topics

HOUR_MS = 3_600_000


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_log_append_time_is_the_brokers_clock(
    bootstrap: str, topics: Topics, client: ModuleType, codec: str
) -> None:
    topic = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    client.produce(bootstrap, topic, numbered_rows(50), codec=codec)
    after_ms = int(time.time() * 1000)

    for reader in CLIENTS:
        got = reader.consume(bootstrap, topic, 50)
        assert {one.timestamp_type for one in got} == {LOG_APPEND_TIME}
        assert all(before_ms <= one.timestamp_ms <= after_ms for one in got)
        assert [one.value for one in got] == [row.value for row in numbered_rows(50)]


def test_the_producer_learns_the_brokers_time(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    seen: list[tuple[int, int]] = []
    producer = confluent_client.producer(bootstrap)
    producer.produce(
        topic, b"v", timestamp=5, on_delivery=lambda _, message: seen.append(message.timestamp())
    )
    producer.flush(30)
    ((kind, timestamp_ms),) = seen
    assert kind == 2
    assert timestamp_ms == confluent_client.consume(bootstrap, topic, 1)[0].timestamp_ms


def test_create_time_is_the_producers_clock(bootstrap: str, topic: str, client: ModuleType) -> None:
    row = Row(b"k", b"v", (), 1_234_567_890_123)
    client.produce(bootstrap, topic, [row])
    (got,) = client.consume(bootstrap, topic, 1)
    assert (got.timestamp_type, got.timestamp_ms) == (CREATE_TIME, 1_234_567_890_123)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_timestamps_outside_the_limits_are_refused(
    bootstrap: str, topics: Topics, codec: str
) -> None:
    topic = topics.create(
        config={
            "message.timestamp.before.max.ms": str(HOUR_MS),
            "message.timestamp.after.max.ms": str(HOUR_MS),
        }
    )
    now_ms = int(time.time() * 1000)
    for off_ms in (-2 * HOUR_MS, 2 * HOUR_MS):
        row = Row(None, b"v", (), now_ms + off_ms)
        with pytest.raises(KafkaException) as refused:
            confluent_client.produce(bootstrap, topic, [row], codec=codec)
        assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP
    for off_ms in (-HOUR_MS // 2, 0, HOUR_MS // 2):
        row = Row(None, b"v", (), now_ms + off_ms)
        confluent_client.produce(bootstrap, topic, [row], codec=codec)
    assert len(confluent_client.consume(bootstrap, topic, 3)) == 3


def test_the_far_future_is_refused_by_default(bootstrap: str, topic: str) -> None:
    """One hour is Kafka's default for message.timestamp.after.max.ms since 4.0."""
    row = Row(None, b"v", (), int(time.time() * 1000) + 24 * HOUR_MS)
    with pytest.raises(KafkaException) as refused:
        confluent_client.produce(bootstrap, topic, [row])
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP
