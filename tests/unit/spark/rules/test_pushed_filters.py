"""Conditions that spare reading, held against what they say about single records."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.spark.rules.offset_ranges import PartitionRange
from moldau.spark.rules.pushed_filters import (
    Comparison,
    Condition,
    FilterEffect,
    find_earliest_time,
    find_effect,
    narrow_ranges,
)

ORDERED: dict[Comparison, Callable[[object, object], bool]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
}
RANGES = [
    PartitionRange(TopicPartition(topic, number), 3, 9)
    for topic in ("clicks", "views")
    for number in (0, 1)
]


def places(ranges: list[PartitionRange]) -> set[tuple[str, int, int]]:
    return {
        (*one.partition, offset)
        for one in ranges
        for offset in range(one.start_offset, one.end_offset)
    }


@given(
    st.sampled_from(["partition", "offset"]),
    st.sampled_from(list(ORDERED)),
    st.integers(-1, 12),
    st.booleans(),
)
def test_what_is_decided_here_is_what_spark_would_have_decided(
    column: str, comparison: Comparison, operand: int, negated: bool
) -> None:
    condition = Condition(column=column, comparison=comparison, operand=operand, negated=negated)
    index = 1 if column == "partition" else 2
    expected = {
        place
        for place in places(RANGES)
        if ORDERED[comparison](place[index], operand) is not negated
    }
    found = places(narrow_ranges(RANGES, [condition]))
    if find_effect(condition) is FilterEffect.DECIDED:
        assert found == expected
    else:
        assert found == places(RANGES)


@pytest.mark.parametrize(
    ("comparison", "operand", "kept"),
    [
        (Comparison.EQUAL, "views", {"views"}),
        (Comparison.ONE_OF, ("views", "likes"), {"views"}),
        (Comparison.STARTS_WITH, "cl", {"clicks"}),
        (Comparison.ENDS_WITH, "s", {"clicks", "views"}),
        (Comparison.CONTAINS, "ick", {"clicks"}),
        (Comparison.GREATER, "clicks", {"views"}),
    ],
)
def test_a_condition_on_the_topic_leaves_its_partitions(
    comparison: Comparison, operand: str | tuple[str, ...], kept: set[str]
) -> None:
    plain = Condition(column="topic", comparison=comparison, operand=operand)
    negated = Condition(column="topic", comparison=comparison, operand=operand, negated=True)
    assert find_effect(plain) is find_effect(negated) is FilterEffect.DECIDED
    assert {one.partition.topic for one in narrow_ranges(RANGES, [plain])} == kept
    left = {one.partition.topic for one in narrow_ranges(RANGES, [negated])}
    assert left == {"clicks", "views"} - kept


def test_a_hole_in_the_offsets_is_left_to_spark() -> None:
    hole = Condition(column="offset", comparison=Comparison.EQUAL, operand=5, negated=True)
    some = Condition(column="offset", comparison=Comparison.ONE_OF, operand=(4, 7))
    assert find_effect(hole) is find_effect(some) is FilterEffect.NONE


def test_comparing_with_null_is_left_to_spark() -> None:
    null = Condition(column="topic", comparison=Comparison.EQUAL, operand=None)
    with_null = Condition(column="partition", comparison=Comparison.ONE_OF, operand=(1, None))
    assert find_effect(null) is find_effect(with_null) is FilterEffect.NONE


def test_a_time_helps_and_spark_has_to_look_again() -> None:
    since = Condition(column="timestamp", comparison=Comparison.GREATER, operand=100)
    until = Condition(column="timestamp", comparison=Comparison.LESS, operand=300)
    assert find_effect(since) is FilterEffect.HELPED
    assert find_effect(until) is FilterEffect.NONE
    assert find_earliest_time([since, until]) == 100
    assert find_earliest_time([until]) is None


def test_not_older_than_a_time_says_nothing_when_it_is_turned_round() -> None:
    older = Condition(column="timestamp", comparison=Comparison.GREATER, operand=9, negated=True)
    assert find_effect(older) is FilterEffect.NONE


def test_columns_that_are_never_null_are_known_not_to_be() -> None:
    assert (
        find_effect(Condition(column="offset", comparison=Comparison.IS_SET))
        is FilterEffect.DECIDED
    )
    assert find_effect(Condition(column="value", comparison=Comparison.IS_SET)) is FilterEffect.NONE
    assert (
        narrow_ranges(RANGES, [Condition(column="topic", comparison=Comparison.IS_SET)]) == RANGES
    )
