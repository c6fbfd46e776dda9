"""The order in which Java walks through a HashMap of strings. A rule.

Kafka's sticky assignor goes through its members in that order when it decides who keeps one
partition more. To come to the same result from the same input, whichever client leads the group,
the order is computed here: by bucket, and within a bucket as the entries were put.
"""

from __future__ import annotations

from collections.abc import Iterable

_FIRST_CAPACITY = 16
_UINT32_MASK = 0xFFFFFFFF


def hash_of(text: str) -> int:
    """`String.hashCode`, unsigned: over UTF-16 units."""
    found = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(raw), 2):
        found = (found * 31 + (raw[position] << 8 | raw[position + 1])) & _UINT32_MASK
    return found


def in_hash_order(names: Iterable[str]) -> list[str]:
    """Names as the keys of a `java.util.HashMap` that was filled in the given order."""
    given = list(dict.fromkeys(names))
    capacity = _FIRST_CAPACITY
    while len(given) > capacity * 3 // 4:
        capacity *= 2

    def bucket_of(name: str) -> int:
        found = hash_of(name)
        return (found ^ found >> 16) & (capacity - 1)

    return sorted(given, key=bucket_of)
