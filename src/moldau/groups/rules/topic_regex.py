"""Regular expressions over topic names, as members of consumer groups subscribe with them. A rule.

Internal topics match no expression: whoever wants them names them.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.model.topic_names import INTERNAL_TOPICS
from moldau.shards.regular_expressions import compile_regular_expression


def find_matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name matches. Raises `InvalidRegularExpressionError`."""
    pattern = compile_regular_expression(regex)
    return frozenset(
        name for name in names if name not in INTERNAL_TOPICS and pattern.fullmatch(name)
    )
