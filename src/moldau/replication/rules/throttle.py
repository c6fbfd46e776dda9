"""How much of a replication throttle's allowance is left (KIP-73).

Bytes are written on an account that empties with the rate; while more is on it than one second
allows, throttled replicas have to wait. What comes at once may be more than that second's share: a
batch is never cut. A rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from moldau.model import BrokerId

_BURST_SECONDS = 1.0
EVERY_REPLICA = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """An account. `owed_bytes` is what had been moved at `at` and is not worked off."""

    owed_bytes: float = 0.0
    at: float = float("-inf")

    def owed(self, rate: float, now: float) -> float:
        if self.owed_bytes == 0.0 or now <= self.at:
            return self.owed_bytes
        return max(0.0, self.owed_bytes - rate * (now - self.at))

    def is_exceeded(self, rate: float, now: float) -> bool:
        return self.owed(rate, now) > rate * _BURST_SECONDS

    def record(self, size_bytes: int, rate: float, now: float) -> Throttle:
        return replace(self, owed_bytes=self.owed(rate, now) + size_bytes, at=max(now, self.at))


def is_throttled(names: Collection[str], partition: int, broker: BrokerId) -> bool:
    """Whether a list of `partition:broker` pairs, or `*`, names a replica."""
    return EVERY_REPLICA in names or f"{partition}:{broker}" in names
