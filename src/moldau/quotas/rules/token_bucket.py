"""An account that fills with the rate of a quota and is charged for what was done.

It never holds more than the burst. What was done may cost more than there is (a batch is never
cut): then the account is in debt, and who owes waits until it is paid. So however large single
requests are, what is let through in any time is the rate times that time, plus the burst, plus one
request (QUO-1).

Why not Kafka's average over eleven samples of a second: it lets ten seconds' worth through at once,
and counts them again when they leave the window; over ten seconds a client may get half as much
again as its quota. It also takes eleven numbers for each account, where this takes two. Kafka
itself counts changes of topics in this way (KIP-599). A rule: values in, values out.
"""

from __future__ import annotations

from typing import NamedTuple


class Bucket(NamedTuple):
    """`tokens` were there at `at`; below zero they are owed."""

    tokens: float
    at: float

    def refilled(self, rate: float, burst: float, now: float) -> Bucket:
        """As it is now."""
        if now <= self.at:
            return Bucket(min(burst, self.tokens), self.at)
        return Bucket(min(burst, self.tokens + rate * (now - self.at)), now)

    def charged(self, amount: float) -> Bucket:
        return Bucket(self.tokens - amount, self.at)

    def seconds_of_debt(self, rate: float) -> float:
        """How long it takes until nothing is owed any more."""
        return 0.0 if self.tokens >= 0 else -self.tokens / rate


def is_idle(bucket: Bucket, rate: float, burst: float, now: float) -> bool:
    """Whether it is full again: forgotten, it loses nobody anything."""
    return bucket.refilled(rate, burst, now).tokens >= burst
