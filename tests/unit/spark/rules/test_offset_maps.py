"""Offsets as JSON: what people write, and what Spark keeps."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.spark.rules.offset_maps import (
    StreamOffset,
    find_recreated,
    from_json,
    parse_offsets,
    parse_partitions,
    to_json,
    without_topics,
)

PARTITIONS = st.builds(
    TopicPartition, st.text("ab-._1", min_size=1, max_size=5), st.integers(0, 99)
)


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)))
def test_offsets_come_back_from_their_json(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


IDS = st.dictionaries(st.text("ab-._1", min_size=1, max_size=5), st.uuids())


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)), IDS)
def test_ids_come_back_with_offsets_and_readers_of_offsets_alone_are_not_disturbed(
    offsets: dict[TopicPartition, int], ids: dict[str, UUID]
) -> None:
    kept = json.loads(json.dumps(StreamOffset(offsets, ids).to_json()))
    assert StreamOffset.from_json(kept) == (offsets, ids)
    assert from_json(kept) == offsets
    # The form that Spark's own source parses: topics, partitions, numbers.
    numbers = {
        topic: {int(part): int(end) for part, end in row.items()} for topic, row in kept.items()
    }
    assert sum(map(len, numbers.values())) == len(offsets)


def test_a_checkpoint_of_sparks_own_source_has_no_ids() -> None:
    assert StreamOffset.from_json({"clicks": {"0": 3}}) == ({TopicPartition("clicks", 0): 3}, {})


def test_a_topic_is_recreated_when_both_ids_are_known_and_differ() -> None:
    one, other = UUID(int=1), UUID(int=2)
    before = {"same": one, "changed": one, "gone": one}
    assert find_recreated(before, {"same": one, "changed": other, "new": one}) == {"changed"}
    offsets = {TopicPartition("same", 0): 3, TopicPartition("changed", 0): 4}
    assert without_topics(offsets, {"changed"}) == {TopicPartition("same", 0): 3}


@given(st.dictionaries(PARTITIONS, st.integers(0, 99), max_size=6), st.randoms())
def test_the_same_offsets_have_the_same_text_in_whatever_order_they_came(
    offsets: dict[TopicPartition, int], random: object
) -> None:
    items = list(offsets.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(items))) == json.dumps(to_json(offsets))


def test_minus_two_and_minus_one_are_read_where_they_are_allowed() -> None:
    text = '{"clicks": {"0": -2, "1": -1}}'
    assert parse_offsets(text, lowest=-2) == {
        TopicPartition("clicks", 0): -2,
        TopicPartition("clicks", 1): -1,
    }
    with pytest.raises(ValueError, match="less than 0"):
        parse_offsets(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", 'is not of the form {"topic"'),
        ('{"clicks": 3}', "names no partitions of clicks"),
        ('{"clicks": {"one": 3}}', "'one' where the number of a partition belongs"),
        ('{"clicks": {"-1": 3}}', "'-1' where the number of a partition belongs"),
        ('{"clicks": {"0": "3"}}', "'3' where a whole number belongs"),
        ('{"clicks": {"0": true}}', "True where a whole number belongs"),
    ],
)
def test_a_text_that_is_no_offsets_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 the message is compared below
        parse_offsets(text)
    assert message in str(caught.value)


def test_partitions_are_read_from_lists_of_numbers() -> None:
    found = parse_partitions('{"clicks": [0, 2], "views": [1]}')
    assert found == {
        TopicPartition("clicks", 0),
        TopicPartition("clicks", 2),
        TopicPartition("views", 1),
    }


@pytest.mark.parametrize("text", ["{}", '{"clicks": []}', '{"clicks": 0}', "[]", '{"a": [true]}'])
def test_partitions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"partition|form"):
        parse_partitions(text)
