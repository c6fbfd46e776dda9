"""Subscriptions and assignments: what other clients write and read, byte for byte."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as KafkaPythonAssignment
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as KafkaPythonSubscription
from kio.schema.consumer_protocol_assignment.v3 import data as assignment_v3
from kio.schema.consumer_protocol_subscription.v0 import data as subscription_v0
from kio.schema.consumer_protocol_subscription.v3 import data as subscription_v3
from kio.serial import entity_writer

from moldau.errors import MalformedFrameError
from moldau.model import TopicPartition
from moldau.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

topics = st.text(alphabet="abcxyz.-_", min_size=1, max_size=5)
partitions = st.lists(st.builds(TopicPartition, topics, st.integers(0, 99)), unique=True).map(
    lambda found: tuple(sorted(found))
)
subscriptions = st.builds(
    Subscription,
    st.lists(topics, unique=True).map(lambda found: tuple(sorted(found))),
    st.none() | st.binary(max_size=9),
    partitions,
    st.integers(-1, 1 << 30),
    st.none() | st.text(max_size=4),
)


def by_topic(found: tuple[TopicPartition, ...]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for topic, index in found:
        rows.setdefault(topic, []).append(index)
    return rows


def written_by_kio(version: int, entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return struct.pack(">h", version) + buffer.getvalue()


@given(subscription=subscriptions)
def test_a_subscription_comes_back(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(subscription=subscriptions)
def test_a_subscription_is_what_kafkas_schema_says(subscription: Subscription) -> None:
    owned = tuple(
        subscription_v3.TopicPartition(topic=topic, partitions=tuple(rows))  # type: ignore[arg-type]
        for topic, rows in by_topic(subscription.owned_partitions).items()
    )
    entity = subscription_v3.ConsumerProtocolSubscription(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation_id,  # type: ignore[arg-type]
        rack_id=subscription.rack_id,
    )
    assert encode_subscription(subscription) == written_by_kio(3, entity)
    oldest = subscription_v0.ConsumerProtocolSubscription(
        topics=subscription.topics, user_data=subscription.user_data
    )
    assert encode_subscription(subscription, 0) == written_by_kio(0, oldest)


@given(subscription=subscriptions, version=st.integers(0, 3))
def test_each_version_says_what_it_can(subscription: Subscription, version: int) -> None:
    found = decode_subscription(encode_subscription(subscription, version))
    assert found.topics == subscription.topics
    assert found.user_data == subscription.user_data
    assert found.owned_partitions == (subscription.owned_partitions if version >= 1 else ())
    assert found.generation_id == (subscription.generation_id if version >= 2 else -1)
    assert found.rack_id == (subscription.rack_id if version >= 3 else None)


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    known = encode_subscription(Subscription(("a",)))
    assert decode_subscription(b"\x00\x09" + known[2:] + b"more") == Subscription(("a",))


@given(subscription=subscriptions)
def test_aiokafka_reads_a_subscription_and_writes_the_oldest_version(
    subscription: Subscription,
) -> None:
    read = ConsumerProtocolMemberMetadata.decode(encode_subscription(subscription))
    assert tuple(read.subscription) == subscription.topics
    assert read.user_data == subscription.user_data
    written = ConsumerProtocolMemberMetadata(0, list(subscription.topics), subscription.user_data)
    assert written.encode() == encode_subscription(subscription, 0)


@given(subscription=subscriptions, version=st.integers(0, 3))
def test_kafka_python_writes_the_same_subscription(
    subscription: Subscription, version: int
) -> None:
    owned = [
        KafkaPythonSubscription.TopicPartition(topic=topic, partitions=rows)
        for topic, rows in by_topic(subscription.owned_partitions).items()
    ]
    written = KafkaPythonSubscription(
        version=version,
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    assert written.encode(header=True) == encode_subscription(subscription, version)


@given(partitions=partitions, user_data=st.none() | st.binary(max_size=9))
def test_an_assignment_comes_back_and_is_what_other_clients_write(
    partitions: tuple[TopicPartition, ...], user_data: bytes | None
) -> None:
    encoded = encode_assignment(Assignment(partitions, user_data))
    assert decode_assignment(encoded) == Assignment(partitions, user_data)
    rows = tuple(
        assignment_v3.TopicPartition(topic=topic, partitions=tuple(indexes))  # type: ignore[arg-type]
        for topic, indexes in by_topic(partitions).items()
    )
    entity = assignment_v3.ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data)
    assert encoded == written_by_kio(3, entity)
    by_aiokafka = ConsumerProtocolMemberAssignment(3, list(by_topic(partitions).items()), user_data)
    assert by_aiokafka.encode() == encoded
    by_kafka_python = KafkaPythonAssignment(
        version=3,
        assigned_partitions=[
            KafkaPythonAssignment.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
        ],
        user_data=user_data,
    )
    assert by_kafka_python.encode(header=True) == encoded


def test_no_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == Assignment()


def test_topics_and_partitions_are_sorted_as_java_sorts_them() -> None:
    shuffled = Subscription(
        ("b", "a"), None, (TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0))
    )
    found = decode_subscription(encode_subscription(shuffled))
    assert found.topics == ("a", "b")
    assert found.owned_partitions == (("a", 0), ("a", 2), ("b", 1))


@given(subscription=subscriptions, data=st.data())
def test_a_subscription_that_is_cut_is_malformed(
    subscription: Subscription, data: st.DataObject
) -> None:
    encoded = encode_subscription(subscription)
    with pytest.raises(MalformedFrameError):
        decode_subscription(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(raw=st.binary(max_size=40))
def test_any_bytes_are_read_or_malformed(raw: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(raw)
        except MalformedFrameError:
            continue
