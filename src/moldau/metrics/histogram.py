"""A histogram of durations that costs an addition for each of them.

Durations fall into buckets by powers of two, in microseconds: the bucket is the length of the
number in bits, so nothing is searched. Every second bound is shown, from 128 µs to 34 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_BUCKETS: Final = 64
_SHOWN: Final = range(7, 27, 2)
"""Powers of two: 128 µs, 512 µs, … 34 s."""


class Histogram:
    """Durations in seconds."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        # The count at n: durations below 2**n microseconds, and not below half of it.
        self.counts = [0] * _BUCKETS
        self.seconds = 0.0

    def note(self, seconds: float, times: int = 1) -> None:
        self.counts[int(seconds * 1e6).bit_length()] += times
        self.seconds += seconds * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Upper bounds in seconds, each with the number of durations up to it; the last is all."""
        reached, total = 0, 0
        for power in _SHOWN:
            total += sum(self.counts[reached : power + 1])
            reached = power + 1
            yield 2**power / 1e6, total
        yield float("inf"), total + sum(self.counts[reached:])
