"""Which metrics a client is asked for (KIP-714): what the subscriptions that it matches add up to.
A rule.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from uuid import UUID

ALL_METRICS: Final = "*"
_ALL_ON_THE_WIRE: Final = ""
DEFAULT_INTERVAL_MS: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSubscription:
    """One subscription as somebody set it up."""

    name: str
    metrics: tuple[str, ...] = ()
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: Mapping[str, str] = field(default_factory=dict)  # patterns by what they look at

    def fits(self, client: Mapping[str, str]) -> bool:
        return all(
            _compile(pattern).fullmatch(client.get(name, "")) is not None
            for name, pattern in self.match.items()
        )


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMetrics:
    """What one client is told."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]  # empty: none; one empty text: all


def request_metrics(
    subscriptions: Iterable[ClientSubscription], client: Mapping[str, str], instance_id: UUID
) -> RequestedMetrics:
    """All that fits the client: the sum of metrics, the shortest interval.

    The id changes when what is asked for does, and only then.
    """
    fitting = [one for one in subscriptions if one.metrics and one.fits(client)]
    metrics = tuple(sorted({metric for one in fitting for metric in one.metrics}))
    if ALL_METRICS in metrics:
        metrics = (_ALL_ON_THE_WIRE,)
    interval_ms = min((one.interval_ms for one in fitting), default=DEFAULT_INTERVAL_MS)
    text = f"{instance_id}|{interval_ms}|{','.join(metrics)}"
    subscription_id = zlib.crc32(text.encode()) - (1 << 31)
    return RequestedMetrics(
        subscription_id=subscription_id, interval_ms=interval_ms, metrics=metrics
    )
