"""Moves and elections of one partition, and two kinds of producers that must not notice them."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import moldau
from moldau.client.admin.values import ElectionType
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from support.cluster_processes import ClusterProcesses
from support.load import Load
from support.promises import BrokenPromises, OwnLoad, find_broken_promises
from support.waiting import PATIENCE_SECONDS, eventually

MOMENTS = (0.0, 0.02, 0.05, 0.1, 0.15)
"""Pauses between two steps of a move, in seconds: shorter and longer than a way between brokers."""

_DELIVERY_MS = int(3 * PATIENCE_SECONDS * 1000)
"""Longer than all waits of a test together: how long nobody leads is no failure here."""


class Mover:
    """Asks the controller for moves of one partition, at moments that a random source chooses."""

    def __init__(self, cluster: ClusterProcesses, topic: str, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._admin = moldau.Admin(cluster.bootstrap)
        self.topic = topic
        self.key = TopicPartition(topic, 0)
        self.count = 0  # steps that were taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def move(self, *target: int) -> None:
        """Begin to; or turn to there, if it is on another way."""
        self._alter(target)

    def cancel(self) -> None:
        self._alter(None)

    def _alter(self, target: Sequence[int] | None) -> None:
        """A refusal is an answer like any other here: the next step comes soon."""
        with contextlib.suppress(KafkaError, TimeoutError):
            refusal = self._admin.alter_partition_reassignments({self.key: target})[self.key]
            self.count += refusal is None

    def elect_preferred(self) -> KafkaError | None:
        return self._admin.elect_leaders([self.key]).get(self.key)

    def elect_unclean(self) -> KafkaError | None:
        chosen = ElectionType.UNCLEAN
        return self._admin.elect_leaders([self.key], election_type=chosen).get(self.key)

    def pause(self) -> None:
        time.sleep(self._chance.choice(MOMENTS))

    @property
    def is_moving(self) -> bool:
        return bool(self._admin.list_partition_reassignments([self.key]))

    def wait_until_there(self) -> None:
        eventually(lambda: not self.is_moving, lambda: f"arrival; {self._cluster.view(self.topic)}")

    # Whole ways

    def take_away_and_bring_back(self) -> None:
        """A follower goes and comes back before everybody has heard that it went; then it leads."""
        leader = self._cluster.view(self.topic).leader
        away, *stay = self._chance.sample([n for n in self._cluster.brokers if n != leader], 2)
        self.move(leader, *stay)
        self.pause()
        self.move(away, leader, *stay)
        if self._chance.random() < 0.4:
            self.pause()
            self.cancel()
            self.pause()
            self.move(away, leader, *stay)
        self.wait_until_there()
        self.elect_preferred()

    def wander(self) -> None:
        """Anywhere, with any number of replicas, and perhaps somewhere else on the way."""
        numbers = sorted(self._cluster.brokers)
        for _ in range(self._chance.choice((1, 1, 2, 3))):
            self.move(*self._chance.sample(numbers, self._chance.choice((1, 2, 2, 3))))
            self.pause()
        if self._chance.random() < 0.3:
            self.cancel()
        elif self._chance.random() < 0.5:
            self.elect_preferred()

    def go_home(self) -> None:
        """To all brokers, in sync; tried until it is so."""
        numbers = sorted(self._cluster.brokers)

        def is_home() -> bool:
            view = self._cluster.view(self.topic)
            if view.is_whole and list(view.replicas) == numbers:
                return True
            if list(view.replicas) != numbers:
                self.move(*numbers)
            time.sleep(MOMENTS[-1])
            return False

        eventually(is_home, lambda: f"on all brokers: {self._cluster.view(self.topic)}")


class BothProducers:
    """librdkafka's and ours, on all partitions of a topic."""

    def __init__(
        self, cluster: ClusterProcesses, topic: str, partitions: int = 1, tag: str = ""
    ) -> None:
        """`tag` tells their records from those of another pair."""
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        where = (cluster.bootstrap, topic, partitions)
        quick = {"retry_backoff_ms": 50, "retry_backoff_max_ms": 100, "request_timeout_ms": 5_000}
        slow_end = {"message_timeout_ms": _DELIVERY_MS}
        self.theirs = Load(
            *where, most_in_flight=300, linger_ms=5, tag=f"{tag}theirs", **quick, **slow_end
        )
        self.ours = OwnLoad(
            *where,
            most_in_flight=300,
            linger_ms=5,
            tag=f"{tag}ours",
            delivery_timeout_ms=_DELIVERY_MS,
        )

    def __enter__(self) -> Self:
        self.theirs.__enter__()
        self.ours.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.ours.__exit__()
        self.theirs.__exit__()

    @property
    def count(self) -> int:
        return self.theirs.count + self.ours.count

    def wait_until_both_are_served(self) -> None:
        for load in (self.theirs, self.ours):
            load.wait_for_more(100)

    def finish(self) -> None:
        """Everything was kept: both get everything acknowledged, and it is there, once."""
        for load in (self.theirs, self.ours):
            load.finish()
        broken = self.find_broken_promises()
        assert broken == BrokenPromises.none(), f"{broken} of {self.count} acknowledged records"
        self._cluster.assert_replicas_agree(self._topic, self._partitions)

    def find_broken_promises(self) -> BrokenPromises:
        return find_broken_promises(
            self._cluster.bootstrap, self._topic, (self.theirs, self.ours), self._partitions
        )


@contextlib.contextmanager
def both_producers(
    cluster: ClusterProcesses, topic: str, partitions: int = 1
) -> Iterator[BothProducers]:
    """At work before, during and after; everything is checked at the end."""
    with BothProducers(cluster, topic, partitions) as producers:
        producers.wait_until_both_are_served()
        yield producers
        producers.wait_until_both_are_served()
        producers.finish()
