"""When a queue's client asks for metadata, and whom it asks for records by it. A rule.

Metadata is asked for at the beginning, when it is old, and when a broker or an assignment says that
it is; then there is a pause before the next time, longer each time while topics are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from typing import NamedTuple

from moldau.client.rules.cluster_metadata import ClusterMetadata
from moldau.client.rules.consumer_instructions import Failure, Refresh
from moldau.client.rules.consumer_membership import PartitionsById
from moldau.client.rules.queue_instructions import QueueTimerKind, QueueTurn, TopicIdPartition
from moldau.errors import ClusterUnreachableError


class QueueMetadata:
    """What is known of the topics, and whether to ask."""

    def __init__(self, turn: QueueTurn, topics: frozenset[str], max_age_seconds: float) -> None:
        self._turn = turn
        self._topics = topics
        self._max_age_seconds = max_age_seconds
        self._is_wanted = True
        self._is_busy = False  # asked for, or the pause after that
        self._is_known = False
        self._attempt = 0
        self._count = 0
        self._missing: set[str] = set()  # topics that are not there, and that was told

    def want(self) -> None:
        self._is_wanted = True

    def maybe_ask(self) -> None:
        if self._is_wanted and not self._is_busy:
            self._is_wanted, self._is_busy = False, True
            self._turn.instruct(Refresh(sorted(self._topics)))

    def refreshed(self) -> None:
        self._is_known = True
        topics = self._turn.cluster.topics
        is_complete = all(name in topics and topics[name].error is None for name in self._topics)
        self._tell_of_missing()
        self._pause(is_complete=is_complete)

    def _tell_of_missing(self) -> None:
        topics = self._turn.cluster.topics
        for name in sorted(self._topics):
            topic = topics.get(name)
            if topic is not None and topic.error is None:
                self._missing.discard(name)
            elif name not in self._missing:
                self._missing.add(name)
                why = "is not there" if topic is None else f"cannot be read ({topic.error})"
                self._turn.log(f"topic {name!r} {why}; waiting for it", is_warning=True)

    def refresh_failed(self, failure: Failure) -> None:
        # At the beginning the address is likely wrong; later a cluster is worth waiting for.
        if isinstance(failure, ClusterUnreachableError) and not self._is_known:
            self._turn.raise_later(failure)
        self._pause(is_complete=False)

    def _pause(self, *, is_complete: bool) -> None:
        self._attempt = 0 if is_complete else self._attempt + 1
        self._is_wanted = self._is_wanted or not is_complete
        seconds = self._turn.backoff_seconds(self._attempt)
        self._turn.arm(QueueTimerKind.METADATA_PAUSE, 0, seconds)

    def on_pause_over(self) -> None:
        self._is_busy = False
        self._count += 1
        self._turn.arm(QueueTimerKind.METADATA_AGE, self._count, self._max_age_seconds)

    def on_old(self, count: object) -> None:
        if count == self._count:
            self._is_wanted = True


class RequestPlan(NamedTuple):
    """Whom to ask for what, and what that was made of."""

    cluster: ClusterMetadata
    assigned: PartitionsById
    wanted: Mapping[int, frozenset[TopicIdPartition]]  # by broker, without those that pause
    leaders: Mapping[TopicIdPartition, int]  # of what is assigned, as far as they are known
    is_complete: bool  # the leaders of all partitions are known

    def is_of(self, partition: TopicIdPartition, broker_id: int) -> bool:
        """Whether records of a partition that a broker has locked for us are still ours to give:
        it is assigned, and no other broker is known to lead it."""
        topic_id, index = partition
        is_assigned = index in self.assigned.get(topic_id, ())
        return is_assigned and self.leaders.get(partition, broker_id) == broker_id


def plan_requests(
    cluster: ClusterMetadata, assigned: PartitionsById, pausing: Set[TopicIdPartition]
) -> RequestPlan:
    wanted: defaultdict[int, set[TopicIdPartition]] = defaultdict(set)
    leaders: dict[TopicIdPartition, int] = {}
    topics = {topic.topic_id: topic for topic in cluster.topics.values() if topic.error is None}
    is_complete = True
    for topic_id, indexes in assigned.items():
        topic = topics.get(topic_id)
        rows = () if topic is None else topic.partitions
        for index in indexes:
            if index >= len(rows) or rows[index].leader_id not in cluster.brokers:
                is_complete = False
                continue
            leaders[topic_id, index] = rows[index].leader_id
            if (topic_id, index) not in pausing:
                wanted[rows[index].leader_id].add((topic_id, index))
    by_broker = {broker_id: frozenset(some) for broker_id, some in wanted.items()}
    return RequestPlan(cluster, assigned, by_broker, leaders, is_complete)
