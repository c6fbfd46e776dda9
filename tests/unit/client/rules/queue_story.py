"""A queue's machine without any shell: a test says what happens and sees what it wants done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from client.rules.consumer_story import batch
from moldau.client.consumer.rules.consumer_membership import HeartbeatAnswer
from moldau.client.consumer.rules.instructions import Refresh
from moldau.client.queue.rules.in_flight import (
    AcquiredOffsets,
    ArmShareTimer,
    InFlightRecord,
    SendShareAcknowledge,
    SendShareFetch,
    SendShareHeartbeat,
    ShareAnswer,
    ShareInstruction,
    SharePartitionAnswer,
    ShareTimer,
    ShareTimerKind,
)
from moldau.client.queue.rules.share_consumer import ShareConsumerMachine, ShareConsumerSettings
from moldau.client.rules.broker_errors import Backoff
from moldau.client.rules.cluster_metadata import (
    Address,
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from moldau.config.client_options import QueueOptions
from moldau.errors import KafkaError

T = TypeVar("T")
I_ = TypeVar("I_")

TOPIC = UUID(int=7)
ZERO, ONE = (TOPIC, 0), (TOPIC, 1)
LOCK_MS = 30_000


def share_cluster(leaders: Sequence[int] = (1, 1)) -> ClusterMetadata:
    partitions = tuple(
        PartitionMetadata(index=index, leader_id=leader) for index, leader in enumerate(leaders)
    )
    return ClusterMetadata(
        brokers={one: Broker(id=one, address=Address("b", 9000 + one)) for one in (1, 2)},
        topics={"t": TopicMetadata(name="t", topic_id=TOPIC, partitions=partitions)},
    )


def came(
    first_offset: int, count: int, *, deliveries: int = 1, partition: tuple[UUID, int] = ZERO
) -> SharePartitionAnswer:
    """Consecutive records, all of them acquired."""
    return SharePartitionAnswer(
        partition,
        records=batch(first_offset, count),
        acquired=[AcquiredOffsets(first_offset, first_offset + count - 1, deliveries)],
    )


class QueueStory:
    """The machine, the time, and all that it wanted and was not looked at yet."""

    def __init__(self, *, can_renew: bool = True, **options: object) -> None:
        self.now = 1000.0
        self.cluster = share_cluster()
        self.can_renew = can_renew
        self.wanted: list[ShareInstruction] = []
        self.machine = ShareConsumerMachine(
            ShareConsumerSettings(
                group_id="g", topics=frozenset({"t"}), options=QueueOptions.read(options)
            ),
            backoff=Backoff(jitter=0.0),
            chance=lambda: 0.5,
            now=self.now,
        )

    def happen(self, event: Callable[[ShareConsumerMachine], T]) -> T:
        """One turn."""
        self.machine.begin_turn(self.now, self.cluster)
        try:
            return event(self.machine)
        finally:
            self.wanted += self.machine.end_turn()[0]

    def take(self, kind: type[I_]) -> list[I_]:
        """The instructions of this kind that nobody has looked at."""
        found = [one for one in self.wanted if isinstance(one, kind)]
        self.wanted = [one for one in self.wanted if not isinstance(one, kind)]
        return found

    def take_one(self, kind: type[I_]) -> I_:
        found = self.take(kind)
        assert len(found) == 1, (kind, found, self.wanted)
        return found[0]

    def fire(self, kind: ShareTimerKind) -> None:
        """The timers of this kind that are armed are over."""
        armed = list(self.take(ArmShareTimer))
        self.wanted += [one for one in armed if one.timer.kind is not kind]
        for one in armed:
            if one.timer.kind is kind:
                self.now += one.seconds
                self._fire(one.timer)

    def _fire(self, timer: ShareTimer) -> None:
        self.happen(lambda machine: machine.timer_fired(timer))

    def begin(self, *indexes: int) -> None:
        """Somebody waits for records, and the member has got these partitions."""
        self.happen(lambda machine: (machine.start(), machine.wait_for_records(self.now)))
        self.take_one(Refresh)
        self.happen(lambda machine: machine.refreshed())
        beat = self.take_one(SendShareHeartbeat)
        answer = HeartbeatAnswer(1, 5000, {TOPIC: frozenset(indexes or (0,))})
        self.happen(lambda machine: machine.membership.heartbeat_answered(beat.beat, answer))

    def answer(
        self,
        asked: SendShareFetch | SendShareAcknowledge,
        *rows: SharePartitionAnswer,
        lock_ms: int = LOCK_MS,
    ) -> None:
        found = ShareAnswer(rows, lock_ms, self.can_renew)
        self.happen(lambda machine: machine.answered(asked, found))

    def fail(self, asked: SendShareFetch | SendShareAcknowledge, error: KafkaError) -> None:
        self.happen(lambda machine: machine.failed(asked, error))

    def receive(self, first_offset: int, count: int) -> None:
        """The request under way brings records; nobody waits any more."""
        self.machine.stop_waiting()
        self.answer(self.take_one(SendShareFetch), came(first_offset, count))

    def take_records(self, count: int = 1) -> list[InFlightRecord]:
        """As the program does: between turns, and the machine is woken if it wants to be."""
        taken = self.machine.take_ready_records(count, self.now)
        self.maybe_wake()
        return taken

    def maybe_wake(self) -> None:
        if self.machine.is_idle_with_work:
            self.happen(lambda _: None)
