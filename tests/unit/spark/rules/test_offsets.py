"""Offsets as JSON: what people write, and what Spark keeps."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.spark import source_metrics
from moldau.spark.rules.offsets import (
    SpecificOffsets,
    SpecificTimestamps,
    StreamOffset,
    find_recreated,
    find_timestamps,
    offsets_from_json,
    offsets_to_json,
    parse_offsets,
    parse_partitions,
    require_every_partition,
    resolve_group_offsets,
    resolve_offsets,
    resolve_timestamps,
    without_topics,
)

PARTITIONS = st.builds(
    TopicPartition, st.text("ab-._1", min_size=1, max_size=5), st.integers(0, 99)
)


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)))
def test_offsets_come_back_from_their_json(offsets: dict[TopicPartition, int]) -> None:
    assert offsets_from_json(json.loads(json.dumps(offsets_to_json(offsets)))) == offsets


IDS = st.dictionaries(st.text("ab-._1", min_size=1, max_size=5), st.uuids())


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)), IDS)
def test_ids_come_back_with_offsets_and_readers_of_offsets_alone_are_not_disturbed(
    offsets: dict[TopicPartition, int], ids: dict[str, UUID]
) -> None:
    kept = json.loads(json.dumps(StreamOffset(offsets, ids).to_json()))
    assert StreamOffset.from_json(kept) == (offsets, ids)
    assert offsets_from_json(kept) == offsets
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
    assert json.dumps(offsets_to_json(dict(items))) == json.dumps(offsets_to_json(offsets))


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


ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
EARLIEST, LATEST = {ZERO: 5, ONE: 0}, {ZERO: 50, ONE: 70}


def test_minus_two_is_the_beginning_and_minus_one_the_end() -> None:
    assert resolve_offsets(SpecificOffsets(offsets={ZERO: -2, ONE: -1}), EARLIEST, LATEST) == {
        ZERO: 5,
        ONE: 70,
    }


def test_an_offset_is_taken_as_it_is_wherever_the_log_begins() -> None:
    assert resolve_offsets(SpecificOffsets(offsets={ZERO: 3, ONE: 99}), EARLIEST, LATEST) == {
        ZERO: 3,
        ONE: 99,
    }


def test_a_group_goes_on_where_it_was_and_from_the_beginning_elsewhere() -> None:
    assert resolve_group_offsets({ONE: 12}, EARLIEST) == {ZERO: 5, ONE: 12}


def test_one_time_is_for_every_partition() -> None:
    assert find_timestamps(SpecificTimestamps(times_ms=7), [ZERO, ONE], "startingTimestamp") == {
        ZERO: 7,
        ONE: 7,
    }


def test_a_partition_without_a_time_is_named() -> None:
    with pytest.raises(ConfigurationError, match="names no offset for clicks-1"):
        find_timestamps(
            SpecificTimestamps(times_ms={ZERO: 7}), [ZERO, ONE], "startingOffsetsByTimestamp"
        )


def test_a_partition_that_is_not_read_is_named() -> None:
    with pytest.raises(ConfigurationError, match="names clicks-1, which is not read"):
        require_every_partition([ZERO, ONE], [ZERO], "startingOffsets")


def test_where_all_is_older_reading_begins_at_the_end_if_that_is_wanted() -> None:
    bound = SpecificTimestamps(times_ms=7, if_none_latest=True)
    assert resolve_timestamps({ZERO: 9}, LATEST, bound, "startingTimestamp") == {ZERO: 9, ONE: 70}


def test_where_all_is_older_it_is_an_error_otherwise() -> None:
    bound = SpecificTimestamps(times_ms=7, if_none_latest=False)
    with pytest.raises(ConfigurationError, match="clicks-1 has no record at or after"):
        resolve_timestamps({ZERO: 9}, LATEST, bound, "startingTimestamp")


def progress(end: object, latest: object) -> dict[str, object]:
    return {"description": "…", "endOffset": end, "latestOffset": latest}


def test_the_metrics_are_those_of_sparks_own_source() -> None:
    found = source_metrics(
        progress({"clicks": {"0": 10, "1": 5}}, {"clicks": {"0": 10, "1": 9}, "new": {"0": 2}})
    )
    assert found == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "2.0",
    }


def test_nothing_of_a_recreated_topic_has_been_read() -> None:
    place = TopicPartition("clicks", 0)
    end = StreamOffset({place: 10}, {"clicks": UUID(int=1)}).to_json()
    latest = StreamOffset({place: 12}, {"clicks": UUID(int=2)}).to_json()
    assert source_metrics(progress(end, latest))["maxOffsetsBehindLatest"] == "12"


def test_offsets_are_taken_as_text_too() -> None:
    offsets = json.dumps({"clicks": {"0": 3}})
    assert source_metrics(progress(offsets, offsets))["maxOffsetsBehindLatest"] == "0"


def test_a_query_that_has_read_nothing_has_none() -> None:
    assert source_metrics(progress(None, {"clicks": {"0": 3}})) == {}
    assert source_metrics(progress({"clicks": {"0": 3}}, "null")) == {}
