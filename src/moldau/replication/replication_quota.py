"""Slows down the copying of replicas that a throttle names and that are not in sync (KIP-73).

One for each side: what this broker sends as a leader, what it fetches as a follower. A replica in
sync is never held up, since it would leave the set. A shell over `Throttle`, a value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from moldau.clock import Clock
from moldau.config.option import MAX_LONG
from moldau.config.topic_options import TopicOptions
from moldau.model import BrokerId
from moldau.replication.partition import Partition


class ReplicationQuota:
    """The allowance of one side."""

    pause_seconds: Final = 0.1
    """After which a replica that was held back is looked at again."""

    def __init__(
        self,
        clock: Clock,
        broker_id: BrokerId,
        rate: Callable[[], int],
        throttled: Callable[[TopicOptions], Collection[str]],
    ) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._rate = rate  # bytes per second
        self._throttled = throttled  # the replicas that a topic's options name
        self._throttle = Throttle()

    @property
    def is_exceeded(self) -> bool:
        """Whether anything at all has to wait."""
        rate = self._rate()
        return rate < MAX_LONG and self._throttle.is_exceeded(rate, self._clock.monotonic())

    def holds_back(self, partition: Partition, replica: BrokerId | None = None) -> bool:
        """Whether a replica (this broker's, when none is named) has to wait."""
        rate = self._rate()
        if rate >= MAX_LONG or not self._applies(partition, replica):
            return False
        return self._throttle.is_exceeded(rate, self._clock.monotonic())

    def record(
        self, partition: Partition, size_bytes: int, replica: BrokerId | None = None
    ) -> None:
        rate = self._rate()
        if rate < MAX_LONG and self._applies(partition, replica):
            self._throttle = self._throttle.record(size_bytes, rate, self._clock.monotonic())

    def _applies(self, partition: Partition, replica: BrokerId | None) -> bool:
        """The list of a side names the replicas of that side: on the leader, the leader's."""
        follower = self._broker_id if replica is None else replica
        names = self._throttled(partition.log.options)
        return (
            bool(names)
            and is_throttled(names, partition.topic_partition.partition, self._broker_id)
            and follower not in partition.state.in_sync
        )


# Bytes are written on an account that empties with the rate; while more is on it than one second
# allows, throttled replicas have to wait. What comes at once may be more than that second's share:
# a batch is never cut. A rule: values in, values out.


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
