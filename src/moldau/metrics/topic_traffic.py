"""Bytes and records that go into and out of topics.

Each partition holds the counters of its topic and adds to them once for each batch or answer. The
number of topics with counters of their own is bounded: those that come later share one set, named
`OTHERS`, so that a cluster with a hundred thousand topics is still one that can be scraped. Which
topics have their own is decided once, so that counters only grow. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MOST_TOPICS: Final = 1000
OTHERS: Final = "_others"
"""What topics beyond the bound are counted as."""


class TopicTraffic:
    """The counters of one topic on this broker."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "label",
        "records_in",
        "records_out",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self, label: str) -> None:
        self.label = label
        self.bytes_in = 0  # appended here as the leader
        self.records_in = 0
        self.bytes_out = 0  # answered to consumers
        self.records_out = 0
        self.replication_bytes_in = 0  # copied from leaders
        self.replication_bytes_out = 0  # answered to followers


class TopicTraffics:
    """The counters of all topics on this broker."""

    def __init__(self, most_topics: int = MOST_TOPICS) -> None:
        self._most_topics = most_topics
        self._by_topic: dict[str, TopicTraffic] = {}
        self._others = TopicTraffic(OTHERS)

    def __iter__(self) -> Iterator[TopicTraffic]:
        yield from tuple(self._by_topic.values())
        if self._others.bytes_in or self._others.bytes_out or self._others.replication_bytes_in:
            yield self._others

    def of(self, topic: str) -> TopicTraffic:
        """The counters of a topic, for as long as there is the topic."""
        found = self._by_topic.get(topic)
        if found is None:
            if len(self._by_topic) >= self._most_topics:
                return self._others
            found = self._by_topic[topic] = TopicTraffic(topic)
        return found

    def label_of(self, topic: str) -> str:
        """How a topic is named in gauges: as in its counters."""
        return topic if topic in self._by_topic else OTHERS

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        self._by_topic.pop(topic, None)
