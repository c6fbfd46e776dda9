"""What a consumer wants to read: topics by name, topics by pattern, or partitions by hand. A rule.

The three exclude each other, as in Kafka. A pattern has to match a whole name. Topics that match
`deny`, and the cluster's own topics, are left out of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from moldau.client.rules.arguments import require_kind, require_names
from moldau.errors import ConfigurationError, InvalidTopicError
from moldau.model import find_topic_name_fault


class Topic(Protocol):
    """A topic of the cluster, as far as a pattern looks at it."""

    @property
    def name(self) -> str: ...

    @property
    def is_internal(self) -> bool: ...

    @property
    def error(self) -> Exception | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Names, or patterns of names; nothing at all when partitions are assigned by hand."""

    names: frozenset[str] = frozenset()
    allow: re.Pattern[str] | None = None
    deny: re.Pattern[str] | None = None
    with_internal: bool = False

    @property
    def is_pattern(self) -> bool:
        return self.allow is not None

    @property
    def is_empty(self) -> bool:
        return self.allow is None and not self.names

    def matching(self, topics: Iterable[Topic]) -> frozenset[str]:
        """The topics to read, out of those that there are."""
        if self.allow is None:
            return self.names
        return frozenset(topic.name for topic in topics if self._matches(topic))

    def _matches(self, topic: Topic) -> bool:
        if self.allow is None or topic.error is not None:
            return False
        if topic.is_internal and not self.with_internal:
            return False
        if self.deny is not None and self.deny.fullmatch(topic.name):
            return False
        return self.allow.fullmatch(topic.name) is not None


Pattern = str | re.Pattern[str]


def subscribe_to(
    topics: str | Collection[str] | None,
    pattern: Pattern | None,
    deny: Pattern | None,
    *,
    with_internal: bool,
) -> TopicSelection:
    """Names or a pattern, not both; raises ConfigurationError."""
    if (topics is None) == (pattern is None):
        raise ConfigurationError("subscribe to topics by their names, or to a pattern of names")
    if topics is not None and deny is not None:
        raise ConfigurationError("deny goes with a pattern; of a list of names, leave some out")
    if topics is not None:
        names = frozenset((topics,) if isinstance(topics, str) else require_names(topics))
        _require_legal(names)
        return TopicSelection(names=names)
    return TopicSelection(allow=_compile(pattern), deny=_compile(deny), with_internal=with_internal)


def _require_legal(names: Iterable[str]) -> None:
    for name in sorted(names):
        fault = find_topic_name_fault(name)
        if fault is not None:
            raise InvalidTopicError(fault)


def _compile(pattern: Pattern | None) -> re.Pattern[str] | None:
    if pattern is None or isinstance(pattern, re.Pattern):
        return pattern
    require_kind(pattern, str, "pattern", "a regular expression, like 'clicks-.*'")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{pattern!r} is no regular expression: {error}") from error
