"""What to fetch from whom, and what became of it. A rule.

Each broker has one request under way at a time, and is asked again when what it gave has been
taken: so one answer is on its way while the one before is worked on, and memory holds no more than
two of each broker. Leaders are asked, or the near replica that a leader names (KIP-392). Where to
begin, and what to do when an offset is gone, is not decided here.

    a broker is     because                                   until
    idle            nothing of it is wanted, or what came     the plan finds something
                    was not taken yet
    busy            a request is under way                    `fetched`, `fetch_failed`
    pausing         it failed, or asked for a pause           its timer
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Final
from uuid import UUID

from moldau.client.consumer.rules.fetch_buffer import CompletedFetch, Position, split_batches
from moldau.client.consumer.rules.instructions import ConsumerTurn, Fetch, TimerKind
from moldau.client.consumer.rules.subscription_state import (
    FetchState,
    SubscriptionState,
    TopicPartitionState,
)
from moldau.client.rules.broker_errors import error_for, read_code
from moldau.config.client_options import ConsumerOptions
from moldau.errors import ErrorCode, KafkaError
from moldau.model import NO_BROKER, TopicPartition
from moldau.wire.fetch_exchange import AnsweredPartition, FetchAnswer, TopicKey
from moldau.wire.fetch_frame import FetchPartition

_SHORT_WAIT_MS: Final = 50
"""How long a broker may wait while partitions are left out that will be wanted soon."""

_LEADER_SECONDS: Final = 5.0
"""How long metadata may name an older leader than the one a position comes from."""

_PASSING: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
"""What passes by itself, or with fresh metadata."""


def reads_committed(options: ConsumerOptions) -> bool:
    return options.isolation_level == "read_committed"


class FetchPlan:
    """The fetches of one consumer, and what they brought that nobody has taken yet."""

    def __init__(
        self, turn: ConsumerTurn, subscriptions: SubscriptionState, options: ConsumerOptions
    ) -> None:
        self.is_shared = False  # several streams take fetches, each at its own pace
        self.is_due = False  # something was taken, moved or assigned: look for something to fetch
        self.wants_metadata = False
        self.wants_positions = False  # a partition has to have one before it can be fetched
        self._turn = turn
        self._subscriptions = subscriptions
        self._options = options
        self._ready: dict[TopicPartition, CompletedFetch] = {}  # in the order of arrival
        self._busy: set[int] = set()  # brokers that are busy or pausing
        self._failure_counts: dict[int, int] = {}  # in a row, by broker
        self._backing_off: set[tuple[TopicPartition, int]] = set()  # with the position's epoch
        self._behind: dict[tuple[TopicPartition, int], float] = {}  # metadata is, since then

    # Asking

    def plan_fetches(self) -> None:
        """Ask every idle broker for all that can be fetched from it now."""
        self.is_due = False
        self._forget_moved()
        wanted: dict[int, list[TopicPartitionState]] = {}
        holding: set[int] = set()  # brokers of which something waits to be taken
        for state in self._subscriptions:
            if not state.is_fetchable:
                continue
            broker_id = self._choose_broker(state)
            if broker_id is None or broker_id in self._busy:
                continue
            if state.partition in self._ready:
                holding.add(broker_id)
            elif (state.partition, state.epoch) not in self._backing_off and self._is_valid(state):
                wanted.setdefault(broker_id, []).append(state)
        for broker_id, states in wanted.items():
            if broker_id not in holding or self.is_shared:
                self._request_due(broker_id, states, is_short=broker_id in holding)

    def _request_due(
        self, broker_id: int, states: list[TopicPartitionState], *, is_short: bool
    ) -> None:
        max_wait_ms = self._options.fetch_max_wait_ms
        if is_short:
            max_wait_ms = min(max_wait_ms, _SHORT_WAIT_MS)
        rows = dict(map(self._row, states))
        epochs = {state.partition: state.epoch for state in states}
        self._busy.add(broker_id)
        self._turn.instruct(Fetch(broker_id, rows, epochs, max_wait_ms))

    def _choose_broker(self, state: TopicPartitionState) -> int | None:
        """Whom to ask: a near replica while that is known, else the leader."""
        cluster, index = self._turn.cluster, state.partition.partition
        topic = cluster.topics.get(state.partition.topic)
        if topic is None or index >= len(topic.partitions):
            self.wants_metadata = True  # the topic is missing: no request can name the partition
            return None
        if state.preferred_replica is not None:
            if (
                self._turn.now < state.preferred_until
                and state.preferred_replica in cluster.brokers
            ):
                return state.preferred_replica
            state.preferred_replica = None
        leader_id = topic.partitions[index].leader_id
        if leader_id in cluster.brokers:
            return leader_id
        self.wants_metadata = True
        return None

    def _is_valid(self, state: TopicPartitionState) -> bool:
        """With a newer leader, the position has to be validated before it is fetched; with an
        older one than the position's, the leader is not known yet."""
        topic = self._turn.cluster.topics.get(state.partition.topic)
        if topic is not None and state.partition.partition < len(topic.partitions):
            leader_epoch = topic.partitions[state.partition.partition].leader_epoch
            if self._is_behind(state, leader_epoch):
                self.wants_metadata = True
                return False
            self._subscriptions.leader_changed(state.partition, leader_epoch)
        if state.fetch_state is FetchState.FETCHING:
            return True
        self.wants_positions = True
        return False

    def _is_behind(self, state: TopicPartitionState, leader_epoch: int) -> bool:
        """Whether metadata names a leader from before the record at the position: a deposed one
        would say that there is no such offset, and the consumer would go back for it. Not for
        ever: a topic that was made anew begins its epochs again."""
        if not 0 <= leader_epoch < state.fetch_epoch:
            return False
        since = self._behind.setdefault((state.partition, state.epoch), self._turn.now)
        return self._turn.now < since + _LEADER_SECONDS

    def _forget_moved(self) -> None:
        for partition, epoch in tuple(self._behind):
            state = self._subscriptions.find(partition)
            if state is None or state.epoch != epoch:
                del self._behind[partition, epoch]

    def _row(self, state: TopicPartitionState) -> tuple[tuple[TopicKey, int], FetchPartition]:
        topic = self._turn.cluster.topics[state.partition.topic]
        index = state.partition.partition
        row = FetchPartition(
            partition=index,
            current_leader_epoch=topic.partitions[index].leader_epoch,
            fetch_offset=state.fetch_offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self._options.max_partition_fetch_bytes,
        )
        return (TopicKey(topic.name, topic.topic_id), index), row

    # Taking

    def take_fetches(self, partitions: Container[TopicPartition]) -> list[CompletedFetch]:
        """What has come of these partitions, in order. What is void or paused is not given."""
        taken: list[CompletedFetch] = []
        for completed in tuple(self._ready.values()):
            state = self._subscriptions.find(completed.partition)
            if state is None or state.epoch != completed.epoch:
                del self._ready[completed.partition]
            elif not state.is_paused and completed.partition in partitions:
                del self._ready[completed.partition]
                taken.append(completed)
        self.is_due = self.is_due or bool(taken)
        return taken

    def forget_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what came of these partitions."""
        for partition in partitions:
            self._ready.pop(partition, None)
        self.is_due = True

    # Answers

    def fetch_failed(self, broker_id: int) -> None:
        failures = self._failure_counts.get(broker_id, 0)
        self._failure_counts[broker_id] = failures + 1
        self.wants_metadata = True
        self._turn.arm(TimerKind.BROKER, broker_id, self._turn.backoff_seconds(failures))

    def fetched(self, fetch: Fetch, answer: FetchAnswer) -> None:
        self._failure_counts.pop(fetch.broker_id, None)
        self._take_topics(fetch, answer)
        if answer.throttle_time_ms > 0:
            self._turn.arm(TimerKind.BROKER, fetch.broker_id, answer.throttle_time_ms / 1000)
        else:
            self.on_broker_free(fetch.broker_id)

    def on_broker_free(self, broker_id: int) -> None:
        self._busy.discard(broker_id)
        self.is_due = True

    def on_partition_free(self, key: tuple[TopicPartition, int]) -> None:
        self._backing_off.discard(key)
        self.is_due = True

    def _take_topics(self, fetch: Fetch, answer: FetchAnswer) -> None:
        names: dict[UUID | None, str] = {topic.topic_id: topic.name for topic, _ in fetch.wanted}
        for topic in answer.topics:
            name = topic.name if topic.name is not None else names.get(topic.topic_id)
            for row in topic.partitions:
                partition = TopicPartition(name or "", row.partition)
                state = self._subscriptions.find(partition)
                # What was moved in the meantime, or is not wanted any more, does not count.
                if state is None or state.epoch != fetch.epochs.get(partition):
                    continue
                is_wanted = state.fetch_state is FetchState.FETCHING and not state.is_held
                if is_wanted and partition not in self._ready:
                    self._take_row(fetch.broker_id, state, row)

    def _take_row(self, broker_id: int, state: TopicPartitionState, row: AnsweredPartition) -> None:
        if row.error_code:
            self._take_error(broker_id, state, read_code(row.error_code))
            return
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        state.log_start_offset = max(row.log_start_offset, state.log_start_offset)
        if row.preferred_read_replica != NO_BROKER:
            state.preferred_replica = row.preferred_read_replica
            state.preferred_until = self._turn.now + self._options.metadata_max_age_ms / 1000
        if not row.records:
            return
        try:
            aborted = row.aborted_transactions if reads_committed(self._options) else None
            found = split_batches(row.records, state.fetch_offset, aborted)
        except KafkaError as error:
            self._subscriptions.fail(state, error)
            self._turn.wakes_program = True
            return
        if found.next_offset == state.fetch_offset:
            return
        start, end = Position(state.fetch_offset), Position(found.next_offset, found.leader_epoch)
        self._ready[state.partition] = CompletedFetch(
            state.partition, state.epoch, start, found.batches, end
        )
        self._subscriptions.fetched(state, end)
        self._turn.wakes_program = True

    def _take_error(self, broker_id: int, state: TopicPartitionState, code: ErrorCode) -> None:
        if state.preferred_replica == broker_id:
            state.preferred_replica = None  # the leader knows better
        elif code not in _PASSING:
            self._subscriptions.fail(state, error_for(code, None, str(state.partition)))
            self._turn.wakes_program = True
            return
        self.wants_metadata = True
        key = (state.partition, state.epoch)
        self._backing_off.add(key)
        self._turn.arm(TimerKind.PARTITION, key, self._turn.backoff_seconds(0))
