"""The options of a table that was made with CREATE TABLE. A rule.

A source is given the table's properties beside its options: what stands behind USING, who owns it,
where it would lie. They are Spark's own and say nothing about topics. The options come with a
prefix, when the table is made once more without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PREFIX: Final = "option."
_RESERVED: Final = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)


def without_table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The options alone, with their names in lower case."""
    lower = {name.lower(): text for name, text in given.items()}
    if "provider" not in lower:
        return lower
    prefixed = {
        name.removeprefix(_PREFIX): text for name, text in lower.items() if name.startswith(_PREFIX)
    }
    plain = {name: text for name, text in lower.items() if not name.startswith(_PREFIX)}
    return {name: text for name, text in {**prefixed, **plain}.items() if name not in _RESERVED}
