"""Spark's filters as conditions of `rules.pushed_filters`. A translation, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from moldau.spark.rules.pushed_filters import Comparison, Condition, Operand

_COMPARISONS: Final[Mapping[type[Filter], Comparison]] = {
    EqualTo: Comparison.EQUAL,
    EqualNullSafe: Comparison.EQUAL,
    GreaterThan: Comparison.GREATER,
    GreaterThanOrEqual: Comparison.GREATER_OR_EQUAL,
    LessThan: Comparison.LESS,
    LessThanOrEqual: Comparison.LESS_OR_EQUAL,
    In: Comparison.ONE_OF,
    StringStartsWith: Comparison.STARTS_WITH,
    StringEndsWith: Comparison.ENDS_WITH,
    StringContains: Comparison.CONTAINS,
    IsNotNull: Comparison.IS_SET,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def find_condition(given: Filter) -> Condition | None:
    """What a filter says, or None when it says something that the rules have no word for."""
    negated = isinstance(given, Not)
    plain = given.child if isinstance(given, Not) else given
    comparison = _COMPARISONS.get(type(plain))
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
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    if isinstance(value, tuple | list):
        return tuple(_read_item(one) for one in value)
    raise TypeError(f"{type(value).__name__} is compared with nothing here")


def _read_item(value: object) -> int | str | None:
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{type(value).__name__} is compared with nothing here")
