"""Topics whose settings nobody knows: served, but nothing in them is deleted or compacted. A rule.

Settings are lost when a folder of Kafka's is taken over (they were kept in its controllers), and
when a node that held them is damaged. The defaults would be a guess, and a wrong one deletes what
nobody can bring back: a compacted topic under `cleanup.policy=delete` is empty after a week.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

SUSPENDED = "cleanup.suspended"

UNKNOWN_TOPIC_SETTINGS: Mapping[str, str] = MappingProxyType({SUSPENDED: "true"})
UNKNOWN_BROKER_SETTINGS: Mapping[str, str] = MappingProxyType({"log.cleanup.suspended": "true"})
"""What counts in the place of settings that cannot be read."""

CONFIRMING = frozenset({"cleanup.policy", "retention.ms", "retention.bytes"})
"""Who sets one of these has thought about what may be deleted."""


def with_confirmation(settings: Mapping[str, str], named: Collection[str]) -> Mapping[str, str]:
    """A topic's settings after those that are `named` were changed."""
    if SUSPENDED in named or not CONFIRMING.intersection(named):
        return settings
    return {name: value for name, value in settings.items() if name != SUSPENDED}
