"""Which topics a consumer reads, what becomes of them, and when to ask the cluster. A rule.

    metadata is    because                                  until
    idle           it is fresh                              it is wanted, or as old as it may be
    asked for      it is wanted                             the answer
    pausing        an answer, or a failure, has come        a pause; longer while something fails

Topics that the leader of a group assigns for other members are watched, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from moldau.client.rules.consumer_instructions import ConsumerTurn, Failure, Refresh, TimerKind
from moldau.client.rules.positions import PartitionTable
from moldau.client.rules.subscription import TopicSelection
from moldau.errors import ClusterUnreachableError, TopicAuthorizationError
from moldau.model import TopicPartition


class _Asking(Enum):
    IDLE = "idle"
    ASKED = "asked for"
    PAUSING = "pausing"


class SubscribedTopics:
    """The subscription of one consumer and the topics behind it."""

    def __init__(self, turn: ConsumerTurn, table: PartitionTable, max_age_seconds: float) -> None:
        self.selection = TopicSelection()
        self.names: frozenset[str] = frozenset()  # that match the selection
        self.is_resolved = False  # `names` are those of the selection
        self.is_wanted = False  # metadata is
        self._turn = turn
        self._table = table
        self._max_age_seconds = max_age_seconds
        self._watched: Mapping[str, int] = {}  # how many partitions the group's topics had
        self._asking = _Asking.IDLE
        self._is_known = False  # an answer has come
        self._attempt = 0
        self._age_count = 0  # how often metadata began to age

    def select(self, selection: TopicSelection) -> None:
        self.selection = selection
        self.names = frozenset() if selection.is_pattern else selection.names
        self.is_resolved = not selection.is_pattern
        self._watched = {}
        self.is_wanted = True

    @property
    def is_ready(self) -> bool:
        """Whether it is known what to read."""
        return not self.selection.is_empty and bool(self.names or self._is_known)

    # Partitions

    def partition_count(self, name: str) -> int:
        """0 while the topic is not there, or cannot be described."""
        topic = self._turn.cluster.topics.get(name)
        return 0 if topic is None or topic.error is not None else len(topic.partitions)

    def watch(self, topics: Collection[str]) -> Mapping[str, int]:
        """How many partitions each topic has that exists; from now on the topics are watched."""
        self._watched = {name: self.partition_count(name) for name in topics}
        return {name: count for name, count in self._watched.items() if count}

    @property
    def has_other_partitions(self) -> bool:
        """Whether a watched topic has got more partitions, or is gone."""
        return any(self.partition_count(name) != n for name, n in self._watched.items())

    def find_all_partitions(self) -> frozenset[TopicPartition]:
        """Of the topics that can be described. Others are as they were."""
        there = {
            TopicPartition(name, index)
            for name in self.names
            for index in range(self.partition_count(name))
        }
        unknown = {name for name in self.names if not self.partition_count(name)}
        kept = {one for one in self._table.partitions if one.topic in unknown}
        return frozenset(there | kept)

    # Asking

    def maybe_refresh(self) -> None:
        """Ask for metadata if it is wanted and may be asked for now."""
        if not self.is_wanted or self._asking is not _Asking.IDLE:
            return
        self.is_wanted = False
        self._asking = _Asking.ASKED
        self._turn.instruct(Refresh(self._to_ask_for()))

    def _to_ask_for(self) -> Collection[str] | None:
        if self.selection.is_pattern:
            return None
        assigned = {state.partition.topic for state in self._table}
        return sorted(self.names | assigned | self._watched.keys())

    def refreshed(self, asked: Refresh) -> bool:
        """Fresh metadata has come; whether other topics match the selection now."""
        self._is_known = True
        topics = self._turn.cluster.topics
        wanted = topics if asked.topics is None else asked.topics
        is_complete = all(name in topics and topics[name].error is None for name in wanted)
        self._pause(is_complete=is_complete)
        self._tell_denied()
        names = self.selection.matching(topics.values())
        has_changed = names != self.names
        self.names = names
        self.is_resolved = self.is_resolved or asked.topics is None
        return has_changed

    def _tell_denied(self) -> None:
        """A topic that may not be read is no reason to wait: the program is told, once for each
        answer that says so, as by Java's client."""
        if self.selection.is_pattern or self._turn.failures:
            return
        assigned = {state.partition.topic for state in self._table}
        for name in sorted(self.selection.names | assigned):
            topic = self._turn.cluster.topics.get(name)
            if topic is not None and isinstance(topic.error, TopicAuthorizationError):
                self._turn.raise_later(topic.error)
                return

    def refresh_failed(self, failure: Failure) -> Failure | None:
        """What the program has to know of it."""
        self._pause(is_complete=False)
        # At the beginning the address is likely wrong; later a cluster is worth waiting for.
        is_unreachable = isinstance(failure, ClusterUnreachableError) and not self._is_known
        return failure if is_unreachable else None

    def _pause(self, *, is_complete: bool) -> None:
        self._asking = _Asking.PAUSING
        self._attempt = 0 if is_complete else self._attempt + 1
        self.is_wanted = self.is_wanted or not is_complete
        self._turn.arm(TimerKind.METADATA_PAUSE, 0, self._turn.backoff_seconds(self._attempt))

    def on_pause_over(self) -> None:
        self._asking = _Asking.IDLE
        self._age_count += 1
        if not self.is_wanted:
            self._turn.arm(TimerKind.METADATA_AGE, self._age_count, self._max_age_seconds)

    def on_aged(self, age_count: int) -> None:
        self.is_wanted = self.is_wanted or age_count == self._age_count
