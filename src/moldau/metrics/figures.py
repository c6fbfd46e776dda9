"""What a broker counts: requests, connections, traffic of topics, work on logs.

Plain numbers, owned by the event loop. The endpoint reads them (`broker.monitoring.collector`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_BUCKETS: Final = 64
_SHOWN: Final = range(7, 27, 2)
"""Powers of two: 128 µs, 512 µs, … 34 s."""


class Histogram:
    """Durations in seconds; one more costs an addition.

    Durations fall into buckets by powers of two, in microseconds: the bucket is the length of the
    number in bits, so nothing is searched. Every second bound is shown, from 128 µs to 34 s.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        # The count at n: durations below 2**n microseconds, and not below half of it.
        self.counts = [0] * _BUCKETS
        self.seconds = 0.0

    def note(self, seconds: float, times: int = 1) -> None:
        self.counts[int(seconds * 1e6).bit_length()] += times
        self.seconds += seconds * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Upper bounds in seconds, each with the number of durations up to it; the last is all."""
        reached, total = 0, 0
        for power in _SHOWN:
            total += sum(self.counts[reached : power + 1])
            reached = power + 1
            yield 2**power / 1e6, total
        yield float("inf"), total + sum(self.counts[reached:])


TIMED_ONE_OF: Final = 16
"""Of the requests that are answered at once: reading the clock costs more than counting."""

NOT_TIMED: Final = -1.0


class ApiFigures:
    """The requests of one API.

    Of those that are answered at once the first is timed, and then one of `TIMED_ONE_OF`, which
    stands for those before it. Those that have to wait are timed, all of them.
    Invariant: 0 <= left <= span between two requests.
    """

    __slots__ = ("_durations", "_last_seconds", "_span", "api_key", "errors", "left")

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key
        self.left = 1  # until the next one that is timed; the dispatch counts it down
        self._span = 1  # for how many that one stands
        self._last_seconds = 0.0
        self._durations = Histogram()
        self.errors: dict[int, int] = {}  # by Kafka's code; where an answer has several, each

    def note_timed(self, seconds: float) -> None:
        """A request was answered at once, and timed: `left` is 0."""
        self._last_seconds = seconds
        self._durations.note(seconds, self._span)
        self.left = self._span = TIMED_ONE_OF

    def note_waited(self, seconds: float) -> None:
        """A request had to wait."""
        self._durations.note(seconds)

    def durations(self) -> Histogram:
        """Of all so far; those since the last that was timed are taken to be like it."""
        if self._span > self.left:
            self._durations.note(self._last_seconds, self._span - self.left)
            self._span = self.left
        return self._durations

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


class RequestFigures:
    """The requests of a broker, by API key."""

    def __init__(self) -> None:
        self._by_key: dict[int, ApiFigures] = {}

    def of(self, api_key: int) -> ApiFigures:
        """Always the same for an API."""
        return self._by_key.setdefault(api_key, ApiFigures(api_key))

    def __iter__(self) -> Iterator[ApiFigures]:
        """Of the APIs that somebody has asked for."""
        return (one for one in self._by_key.values() if one.durations().count)


class ConnectionFigures:
    """The connections of one listener. Invariant: closed <= accepted."""

    __slots__ = ("accepted", "closed")

    def __init__(self) -> None:
        self.accepted = 0
        self.closed = 0


class StorageFigures:
    """Of all logs of a broker."""

    __slots__ = (
        "cleaned_bytes_after",
        "cleaned_bytes_before",
        "cleaner_runs",
        "cleaner_seconds",
        "deleted_bytes",
        "deleted_segments",
        "flushes",
        "uncleanable",
    )

    def __init__(self) -> None:
        self.flushes = Histogram()
        self.cleaner_runs = 0  # logs compacted
        self.cleaner_seconds = 0.0
        self.cleaned_bytes_before = 0
        self.cleaned_bytes_after = 0
        self.uncleanable = 0  # logs that the cleaner leaves alone, since they are damaged
        self.deleted_segments = 0
        self.deleted_bytes = 0


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
    """The counters of all topics on this broker.

    Each partition holds the counters of its topic and adds to them once for each batch or answer.
    The number of topics with counters of their own is bounded: those that come later share one set,
    named `OTHERS`, so that a cluster with a hundred thousand topics can still be scraped. Which
    topics have their own is decided once, so that counters only grow.
    """

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


class BrokerFigures:
    """Counters of a broker; owned by its event loop."""

    def __init__(self) -> None:
        self.traffics = TopicTraffics()
        self.requests = RequestFigures()
        self.storage = StorageFigures()
        self.loop_delays = Histogram()
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        self.unclean_elections = 0
        self.rebalances = 0
        self.certificates_end_ms: int | None = None  # the first of those in use; None without any
