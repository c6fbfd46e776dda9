"""Whether a failed request is worth another attempt, and how long to wait for it. Rules.

Connections come back and leaders move, so those failures are tried again until the caller's
time is over. An unknown topic is tried a few times only: right after its creation a broker may
not have heard of it, later it is a wrong name. A cluster that does not answer at all is worth
waiting for in the middle of work, not at its beginning, where the address is likely wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moldau.errors import (
    BrokerUnreachableError,
    ClusterUnreachableError,
    ConnectionLostError,
    KafkaError,
    MoldauError,
    NoAnswerError,
    UnknownTopicError,
    UnknownTopicIdError,
)

MAX_UNKNOWN_TOPIC_ATTEMPTS = 4


def may_retry(error: MoldauError, attempt: int, *, wait_for_cluster: bool = False) -> bool:
    """`attempt` counts from 0: the number of attempts before the one that failed."""
    if isinstance(error, ClusterUnreachableError):
        return wait_for_cluster
    if isinstance(error, UnknownTopicError | UnknownTopicIdError):
        return attempt + 1 < MAX_UNKNOWN_TOPIC_ATTEMPTS
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, BrokerUnreachableError | ConnectionLostError | NoAnswerError)


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
