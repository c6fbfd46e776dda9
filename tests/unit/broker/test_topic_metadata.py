"""Topics that are encoded once say what the plain encoder says, whatever changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.api import answered_class, encode_element
from moldau.broker.handlers.metadata import API
from moldau.broker.topic_metadata import (
    PARTITIONS_AT_ONCE,
    WORDINGS_KEPT,
    EncodedTopics,
    Wording,
    bare_topic_values,
    partition_values,
)
from moldau.cluster.rules.metadata_image import (
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.model import BrokerId, LeaderEpoch, TopicId

VERSIONS = tuple(range(API.first, API.last + 1))
NAMES = ("clicks", "orders", "__consumer_offsets", "visits")

broker_ids = st.integers(1, 4).map(BrokerId)
some_brokers = st.lists(broker_ids, unique=True, max_size=4).map(tuple)
partition_states = st.builds(
    PartitionState,
    leader=st.sampled_from([BrokerId(-1), BrokerId(1), BrokerId(2), BrokerId(4)]),
    leader_epoch=st.integers(0, 9).map(LeaderEpoch),
    isr=some_brokers,
    replicas=some_brokers,
)
topics = st.builds(
    TopicState,
    name=st.sampled_from(NAMES),
    topic_id=st.integers(0, 9).map(lambda number: TopicId(UUID(int=number))),
    partitions=st.lists(partition_states, max_size=3).map(tuple),
)
changes = st.one_of(
    st.tuples(st.just("topics"), st.lists(topics, max_size=3)),
    st.tuples(st.just("removed"), st.sampled_from(NAMES)),
    st.tuples(st.just("brokers"), some_brokers),
    st.tuples(st.just("controller"), broker_ids),
)


def _changed(image: MetadataImage, kind: str, what: object) -> MetadataImage:
    match kind, what:
        case "topics", list(found):
            return image.with_topics(found)
        case "removed", str(name):
            return image.with_topics((), removed=[name])
        case "brokers", tuple(alive):
            return _with_alive(image, *alive)
        case _:
            return image.with_controller(BrokerId(1))


def _with_alive(image: MetadataImage, *alive: int) -> MetadataImage:
    return image.with_brokers(BrokerState(id=BrokerId(one), endpoints=()) for one in alive)


def _plain(image: MetadataImage, version: int) -> list[bytes]:
    """Without anything that is kept."""
    topic_class = answered_class(API, version, "topics")
    return [
        encode_element(topic_class, _topic_values(topic, image), API)
        for topic in image.topics.values()
    ]


def _topic_values(topic: TopicState, image: MetadataImage) -> dict[str, object]:
    rows = [
        partition_values(number, state, image.brokers)
        for number, state in enumerate(topic.partitions)
    ]
    return {**bare_topic_values(topic.name, topic.topic_id), "partitions": rows}


async def _encode(encoded: EncodedTopics, image: MetadataImage, version: int) -> list[bytes]:
    return await encoded.encode(image.topics.values(), image, Wording(API, version))


def _ask(encoded: EncodedTopics, image: MetadataImage, version: int) -> list[bytes]:
    return asyncio.run(_encode(encoded, image, version))


def _topic(name: str, number: int, partitions: int = 2) -> TopicState:
    state = PartitionState(
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(3),
        isr=(BrokerId(1), BrokerId(2)),
        replicas=(BrokerId(1), BrokerId(2)),
    )
    return TopicState(
        name=name, topic_id=TopicId(UUID(int=number)), partitions=(state,) * partitions
    )


@pytest.fixture
def image() -> MetadataImage:
    alive = _with_alive(MetadataImage(cluster_id="c"), 1, 2)
    return alive.with_topics(_topic(name, number + 1) for number, name in enumerate(NAMES))


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(changes, st.sampled_from(VERSIONS)), max_size=12))
def test_what_is_kept_is_what_the_plain_encoder_gives(
    steps: Sequence[tuple[tuple[str, object], int]],
) -> None:
    encoded = EncodedTopics()
    image = MetadataImage(cluster_id="c")
    for (kind, what), version in steps:
        image = _changed(image, kind, what)
        for _ in range(2):
            assert _ask(encoded, image, version) == _plain(image, version)
        assert len(encoded._wordings) <= WORDINGS_KEPT
        for kept in encoded._wordings.values():
            assert all(image.topics.get(name) is entry.state for name, entry in kept.items())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_encoded_once_in_each_version(version: int, image: MetadataImage) -> None:
    encoded = EncodedTopics()
    first = _ask(encoded, image, version)
    assert first == _plain(image, version)
    again = _ask(encoded, image.with_controller(BrokerId(2)), version)
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_a_change_costs_the_topics_that_it_is_about(image: MetadataImage) -> None:
    encoded = EncodedTopics()
    before = _ask(encoded, image, 12)
    changed = image.with_topics([_topic("orders", 2, partitions=3)])
    after = _ask(encoded, changed, 12)
    assert after == _plain(changed, 12)
    assert [one is other for one, other in zip(before, after, strict=True)] == [
        name != "orders" for name in image.topics
    ]


def test_a_broker_that_comes_or_goes_changes_what_is_said_of_every_topic(
    image: MetadataImage,
) -> None:
    encoded = EncodedTopics()
    _ask(encoded, image, 12)
    for alive in ((2,), (1, 2), (1, 2, 3), ()):
        image = _with_alive(image, *alive)
        assert _ask(encoded, image, 12) == _plain(image, 12)


def test_versions_that_were_not_asked_for_lately_are_forgotten(image: MetadataImage) -> None:
    encoded = EncodedTopics()
    for version in (*VERSIONS, 0, 1, 12, 0):
        _ask(encoded, image, version)
    assert [wording.version for wording in encoded._wordings] == [13, 1, 12, 0]


def test_an_answer_under_way_is_of_its_own_image_and_harms_no_later_one(
    image: MetadataImage,
) -> None:
    large = image.with_topics([_topic("large", 9, partitions=3 * PARTITIONS_AT_ONCE)])
    without = _with_alive(large, 2)
    smaller = without.with_topics([replace(large.topics["large"], partitions=())])

    async def story() -> None:
        encoded = EncodedTopics()
        images = (large, without, smaller)
        asked = []
        for one in images:
            asked.append(asyncio.ensure_future(_encode(encoded, one, 12)))
            await asyncio.sleep(0)  # its first slice is encoded
        assert not asked[0].done()
        for one, answer in zip(images, asked, strict=True):
            assert await answer == _plain(one, 12)
        assert await _encode(encoded, smaller, 12) == _plain(smaller, 12)

    asyncio.run(story())


def test_what_an_answer_under_way_encodes_late_is_not_kept_for_the_next_image(
    image: MetadataImage,
) -> None:
    large = image.with_topics([_topic("large", 9, partitions=3 * PARTITIONS_AT_ONCE)])
    without = _with_alive(large, 2)

    async def story() -> None:
        encoded = EncodedTopics()
        answer = asyncio.ensure_future(_encode(encoded, large, 12))
        await asyncio.sleep(0)  # its first slice is encoded
        await encoded.encode([without.topics["clicks"]], without, Wording(API, 12))
        assert await answer == _plain(large, 12)
        assert await _encode(encoded, without, 12) == _plain(without, 12)

    asyncio.run(story())
