"""Regular expressions over topic names, as members of consumer groups subscribe with them. A rule.

Internal topics match as others do, as in Kafka: what a member does with them is its affair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final

from moldau.coordinators.runtime.regular_expressions import compile_regular_expression

REFRESH_MS: Final = 600_000
"""So long an expression stands for the same topics, where clients may not know of all; the default
of Kafka's `group.consumer.regex.refresh.interval.ms`."""

_REMEMBERED = 64


def find_matching(
    regex: str, names: Collection[str], may_see: Callable[[str], bool] | None = None
) -> frozenset[str]:
    """The topics whose whole name matches, and that somebody may know of. Raises
    `InvalidRegularExpressionError`."""
    matching = _pattern(regex).find_in(names)
    return matching if may_see is None else frozenset(filter(may_see, matching))


def check_regex(regex: str) -> None:
    """Raises `InvalidRegularExpressionError` if it is none."""
    compile_regular_expression(regex)


class _Pattern:
    """An expression, and what it was last asked: a broker has thousands of topics, and mostly the
    same ones as the last time."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._asked: frozenset[str] = frozenset()
        self._matching: frozenset[str] = frozenset()

    def find_in(self, names: Collection[str]) -> frozenset[str]:
        asked, matches = self._asked, self._compiled.fullmatch
        new = [one for one in names if one not in asked]
        if new or len(names) != len(asked):
            kept = self._matching.intersection(names)
            self._matching = kept.union(one for one in new if matches(one))
            self._asked = frozenset(names)
        return self._matching


@lru_cache(_REMEMBERED)
def _pattern(regex: str) -> _Pattern:
    return _Pattern(compile_regular_expression(regex))
