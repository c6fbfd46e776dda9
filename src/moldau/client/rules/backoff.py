"""How long to wait before trying again. A rule: the attempt and chance go in, seconds come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Chance = Callable[[], float]
"""Gives a number from 0 to 1: `random.random`, or a fixed one in tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubles with each attempt up to a limit (Kafka's `retry.backoff.ms` and its maximum)."""

    first_seconds: float = 0.1
    max_seconds: float = 1.0
    jitter: float = 0.2  # spreads clients that failed together: up to this share more or less

    def delay_seconds(self, attempt: int, chance: Chance) -> float:
        """The pause after the failed attempt number `attempt`, counted from 0."""
        plain = min(self.first_seconds * float(2 ** min(attempt, 30)), self.max_seconds)
        return plain * (1 - self.jitter + 2 * self.jitter * chance())
