"""What the operators of a simulated cluster do, and when: drawn from a seed. A rule.

Operations are what people ask of a healthy cluster (move a partition, elect, add partitions), as
faults (`fault_plan`) are what happens to it. They come in families, one for each subject. Every
family draws from a random source of its own: a family that is added, or draws one number more,
changes neither the faults of a seed nor the operations of the others.

A plan says what is tried, and when. What exactly (which partition, where to) depends on what the
cluster looks like then, and is drawn by the operation itself from the number it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

SHARE_OF_SEEDS: Final = 0.5
"""Of the seeds, in how many somebody operates the cluster at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOperation:
    at_seconds: float
    family: str
    kind: str
    number: int  # the seed of all that the operation chooses

    def __str__(self) -> str:
        return f"{self.at_seconds:8.3f} {self.family}: {self.kind} ({self.number})"


def has_operations(random: Random) -> bool:
    """Whether a seed has operations; each family then decides for itself."""
    return random.random() < SHARE_OF_SEEDS


def draw_operations(
    random: Random,
    family: str,
    weights: Mapping[str, int],
    *,
    share: float,
    fewest: int,
    most: int,
    start_seconds: float,
    end_seconds: float,
) -> list[PlannedOperation]:
    """The operations of one family, in the order of their times; none where the seed has none.

    `share` is how many of the seeds with operations have some of this family. In every second of
    these, operations come close to each other, so that they meet.
    """
    if random.random() >= share:
        return []
    count = random.randint(fewest, most)
    if random.random() < 0.5:
        start_seconds = random.uniform(start_seconds, (start_seconds + end_seconds) / 2)
        end_seconds = min(end_seconds, start_seconds + 0.4 * count)
    times = sorted(random.uniform(start_seconds, end_seconds) for _ in range(count))
    kinds, chances = list(weights), list(weights.values())
    return [
        PlannedOperation(
            at_seconds=at_seconds,
            family=family,
            kind=random.choices(kinds, chances)[0],
            number=random.randrange(1 << 32),
        )
        for at_seconds in times
    ]
