"""Which partition of its coordinator's topic a group or a transactional id belongs to: Kafka's
rule, so that clients, tools and folders of a Kafka broker agree with ours. A rule."""

from __future__ import annotations

from functools import lru_cache

_SIGN = 1 << 31
_MASK = (1 << 32) - 1


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32 bits with a sign.

    Remembered: every request to a coordinator asks for it.
    """
    units = memoryview(text.encode("utf-16-be", "surrogatepass"))
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's `Utils.abs` makes zero of the one number that has no positive twin."""
    value = java_hash(key)
    return (0 if value == -_SIGN else abs(value)) % partition_count
