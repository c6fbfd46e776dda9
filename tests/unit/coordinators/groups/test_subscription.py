"""The topics in what consumers say to each other."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.consumer_protocol_subscription import v0, v1, v2, v3
from kio.schema.types import TopicName
from kio.serial import entity_writer

from moldau.coordinators.groups.rules.offsets import find_subscribed_topics, find_topics

names = st.lists(
    st.text(st.sampled_from("abcxyz.-_0189"), min_size=1, max_size=20), max_size=5, unique=True
)


def subscription(version: int, topics: list[str]) -> bytes:
    """As a client encodes it, by kio's schemas."""
    module = (v0, v1, v2, v3)[version]
    values: dict[str, object] = {
        "topics": tuple(TopicName(name) for name in topics),
        "user_data": b"mine",
    }
    if version >= 1:
        values["owned_partitions"] = ()
    if version >= 2:
        values["generation_id"] = 4
    if version >= 3:
        values["rack_id"] = "r"
    buffer = io.BytesIO()
    entity = module.data.ConsumerProtocolSubscription(**values)
    entity_writer(type(entity))(buffer, entity)
    return struct.pack(">h", version) + buffer.getvalue()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@settings(deadline=None)
@given(topics=names)
def test_topics_of_every_version_are_found(version: int, topics: list[str]) -> None:
    assert find_topics(subscription(version, topics)) == frozenset(topics)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_that_say_something_else_are_not_understood(metadata: bytes) -> None:
    found = find_topics(metadata)
    assert found is None or isinstance(found, frozenset)


@settings(deadline=None)
@given(names.filter(bool), st.data())
def test_what_is_cut_short_is_not_understood(topics: list[str], data: st.DataObject) -> None:
    whole = struct.pack(">hi", 0, len(topics)) + b"".join(
        struct.pack(">h", len(name)) + name.encode() for name in topics
    )
    assert find_topics(whole) == frozenset(topics)
    assert find_topics(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


def test_negative_numbers_are_not_understood() -> None:
    assert find_topics(struct.pack(">hi", -1, 0)) is None
    assert find_topics(struct.pack(">hi", 0, -1)) is None
    assert find_topics(struct.pack(">hih", 0, 1, -1)) is None


def test_the_topics_of_all_members_count() -> None:
    said = [subscription(0, ["a", "b"]), subscription(1, ["c"])]
    assert find_subscribed_topics("consumer", said) == {"a", "b", "c"}
    assert find_subscribed_topics("consumer", []) == frozenset()


def test_one_member_that_is_not_understood_makes_all_unknown() -> None:
    assert find_subscribed_topics("consumer", [subscription(0, ["a"]), b"?"]) is None
    assert find_subscribed_topics("connect", [subscription(0, ["a"])]) is None
