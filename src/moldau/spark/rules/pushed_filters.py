"""Conditions on topic, partition, offset and timestamp that spare reading. A rule.

A condition on topic or partition is decided for a whole partition, one on the offset cuts its
range: Spark need not look at either again. One on the timestamp lets the beginning be skipped, as
the brokers know the first record that is not older; behind it records may be older again, so Spark
still has to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from moldau.spark.rules.offset_ranges import PartitionRange, clip_range

TOPIC, PARTITION, OFFSET, TIMESTAMP = "topic", "partition", "offset", "timestamp"
NEVER_NULL = frozenset({TOPIC, PARTITION, OFFSET, TIMESTAMP, "timestampType"})
_NO_END = 2**63 - 1


class Comparison(Enum):
    """How a column is compared with a value."""

    EQUAL = "="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    ONE_OF = "in"
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"
    CONTAINS = "contains"
    IS_SET = "is not null"


Operand = int | str | tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition on one column. Times are in milliseconds."""

    column: str
    comparison: Comparison
    operand: Operand = None
    negated: bool = False


_BY_FILTER: Final[Mapping[str, Comparison]] = {
    "EqualTo": Comparison.EQUAL,
    "EqualNullSafe": Comparison.EQUAL,
    "GreaterThan": Comparison.GREATER,
    "GreaterThanOrEqual": Comparison.GREATER_OR_EQUAL,
    "LessThan": Comparison.LESS,
    "LessThanOrEqual": Comparison.LESS_OR_EQUAL,
    "In": Comparison.ONE_OF,
    "StringStartsWith": Comparison.STARTS_WITH,
    "StringEndsWith": Comparison.ENDS_WITH,
    "StringContains": Comparison.CONTAINS,
    "IsNotNull": Comparison.IS_SET,
}
"""By the names of Spark's classes: Spark 4.0 does not have them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def find_condition(given: object) -> Condition | None:
    """The condition of a filter of Spark, or None when no rule here has a use for it."""
    negated = type(given).__name__ == "Not"
    plain = getattr(given, "child", None) if negated else given
    comparison = _BY_FILTER.get(type(plain).__name__)
    path: tuple[str, ...] = getattr(plain, "attribute", ())
    if comparison is None or len(path) != 1:
        return None
    try:
        operand = _read_operand(getattr(plain, "value", None))
    except TypeError:
        return None
    return Condition(column=path[0], comparison=comparison, operand=operand, negated=negated)


def _read_operand(value: object) -> Operand:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TypeError("a time without a zone means nothing here")
        return int((value - _EPOCH) // _MILLISECOND)
    return tuple(map(_read_item, value)) if isinstance(value, tuple | list) else _read_item(value)


def _read_item(value: object) -> int | str | None:
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{type(value).__name__} is compared with nothing here")


class FilterEffect(Enum):
    """What a condition is good for."""

    DECIDED = "decided here; Spark need not look again"
    HELPED = "spares reading, but Spark has to look, too"
    NONE = "is of no use here"


def find_effect(condition: Condition) -> FilterEffect:
    """Whether the reader can do something with a condition."""
    if condition.comparison is Comparison.IS_SET:
        is_true = condition.column in NEVER_NULL and not condition.negated
        return FilterEffect.DECIDED if is_true else FilterEffect.NONE
    if condition.column in (TOPIC, PARTITION):
        return FilterEffect.DECIDED if _is_comparable(condition) else FilterEffect.NONE
    if condition.column == OFFSET:
        can_cut = isinstance(condition.operand, int) and _bounds_of(condition) is not None
        return FilterEffect.DECIDED if can_cut else FilterEffect.NONE
    if condition.column == TIMESTAMP and find_earliest_time((condition,)) is not None:
        return FilterEffect.HELPED
    return FilterEffect.NONE


def narrow_ranges(
    ranges: Iterable[PartitionRange], conditions: Iterable[Condition]
) -> list[PartitionRange]:
    """What is left to read of the ranges."""
    found = list(ranges)
    for condition in conditions:
        if find_effect(condition) is FilterEffect.DECIDED:
            found = [left for one in found for left in _narrow_range(one, condition)]
    return found


def find_earliest_time(conditions: Iterable[Condition]) -> int | None:
    """The time before which no record is wanted; None when any may be."""
    lower = (Comparison.EQUAL, Comparison.GREATER, Comparison.GREATER_OR_EQUAL)
    times = [
        one.operand
        for one in conditions
        if one.column == TIMESTAMP
        and one.comparison in lower
        and not one.negated
        and isinstance(one.operand, int)
    ]
    return max(times, default=None)


def _narrow_range(wanted: PartitionRange, condition: Condition) -> list[PartitionRange]:
    if condition.comparison is Comparison.IS_SET:
        return [wanted]
    if condition.column == OFFSET:
        start, end = _bounds_of(condition) or (0, _NO_END)
        left = clip_range(wanted, start_offset=start, end_offset=end)
        return [] if left.is_empty else [left]
    partition = wanted.partition
    value = partition.topic if condition.column == TOPIC else partition.partition
    return [wanted] if _holds(condition, value) else []


def _bounds_of(condition: Condition) -> tuple[int, int] | None:
    """The offsets that a condition leaves, the second exclusive; None when it leaves a hole."""
    value = condition.operand
    if not isinstance(value, int) or condition.negated:
        return None
    match condition.comparison:
        case Comparison.EQUAL:
            return value, value + 1
        case Comparison.GREATER:
            return value + 1, _NO_END
        case Comparison.GREATER_OR_EQUAL:
            return value, _NO_END
        case Comparison.LESS:
            return 0, value
        case Comparison.LESS_OR_EQUAL:
            return 0, value + 1
        case _:
            return None


def _is_comparable(condition: Condition) -> bool:
    """Whether the value has the column's type; against NULL nothing is true, which is Spark's."""
    kind = str if condition.column == TOPIC else int
    if condition.comparison is Comparison.ONE_OF:
        operand = condition.operand
        return isinstance(operand, tuple) and all(isinstance(one, kind) for one in operand)
    return isinstance(condition.operand, kind)


def _holds(condition: Condition, value: int | str) -> bool:
    return _compare(condition.comparison, value, condition.operand) is not condition.negated


def _compare(comparison: Comparison, value: int | str, operand: Operand) -> bool:
    if comparison is Comparison.ONE_OF:
        return isinstance(operand, tuple) and value in operand
    if comparison is Comparison.EQUAL:
        return value == operand
    if isinstance(value, str) and isinstance(operand, str):
        return _compare_texts(comparison, value, operand)
    if isinstance(value, int) and isinstance(operand, int):
        return _compare_ordered(comparison, value - operand)
    return False


def _compare_texts(comparison: Comparison, value: str, operand: str) -> bool:
    match comparison:
        case Comparison.STARTS_WITH:
            return value.startswith(operand)
        case Comparison.ENDS_WITH:
            return value.endswith(operand)
        case Comparison.CONTAINS:
            return operand in value
        case _:
            # Names of topics are ASCII; Spark compares the bytes of UTF-8, which order alike.
            ours, theirs = value.encode(), operand.encode()
            return _compare_ordered(comparison, (ours > theirs) - (ours < theirs))


def _compare_ordered(comparison: Comparison, difference: int) -> bool:
    match comparison:
        case Comparison.GREATER:
            return difference > 0
        case Comparison.GREATER_OR_EQUAL:
            return difference >= 0
        case Comparison.LESS:
            return difference < 0
        case Comparison.LESS_OR_EQUAL:
            return difference <= 0
        case _:
            return False
