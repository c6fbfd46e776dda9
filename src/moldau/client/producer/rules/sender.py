"""A producer without its sockets, threads and clocks: events in, instructions out. A rule.

Records are collected into batches, one deque for each partition (`record_accumulator`, which also
has the table of where a batch is). What an answer means is decided by `decide_completion`, and
what may be done about a transaction by `transaction_manager`. Every batch is finished exactly
once, and its memory counts until then.

Each call of a method is an event, and `end_turn` gives the instructions that follow from all
events since the last one, and the time at which to end a turn again, whatever happens. Not safe
for threads: the owner takes turns with a lock. `now` is a monotonic time in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple

from moldau.client.producer.rules.built_in_partitioner import PartitionedTopic, Partitioner
from moldau.client.producer.rules.record_accumulator import (
    NEVER,
    AskCoordinator,
    AskIdentity,
    BatchState,
    Delivered,
    Divided,
    Finish,
    FinishFlush,
    GroupOffsets,
    IncompleteBatches,
    Instruction,
    MakeResult,
    NotDelivered,
    PartitionAnswer,
    PartitionQueue,
    ProducerBatch,
    ProducerIdentity,
    R,
    RefreshTopics,
    ReportRefusal,
    ReportSuccess,
    Send,
)
from moldau.client.producer.rules.transaction_manager import (
    TransactionCall,
    TransactionCalls,
    TransactionManager,
)
from moldau.client.rules.broker_errors import Backoff, Chance
from moldau.client.rules.cluster_metadata import ClusterMetadata, TopicMetadata
from moldau.config.client_options import ACKS_NONE, ProducerOptions
from moldau.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    ClientError,
    ConnectionLostError,
    DeliveryTimeoutError,
    DuplicateSequenceError,
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    InvariantViolation,
    KafkaError,
    LeaderNotAvailableError,
    MoldauError,
    NoAnswerError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    StorageError,
    TopicAuthorizationError,
    TransactionStateError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from moldau.model import TopicPartition
from moldau.records.batch_header import HEADER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """When a batch is full, old, or too old, and how much may be under way."""

    batch_bytes: int
    linger_seconds: float
    delivery_seconds: float
    memory_bytes: int
    request_bytes: int
    most_under_way: int
    """Batches of one partition that may be unanswered at once."""
    most_in_flight: int
    """Requests to one broker that may be unanswered at once."""
    metadata_max_age_seconds: float
    is_idempotent: bool
    transactional_id: str | None = None
    ignores_keys: bool = False

    @classmethod
    def of(cls, options: ProducerOptions) -> ProducerSettings:
        # Without idempotence nothing would keep a later batch from overtaking one sent again.
        may_overlap = options.enable_idempotence or not options.retries or options.acks == ACKS_NONE
        in_flight = options.max_in_flight_requests_per_connection
        return cls(
            batch_bytes=min(options.batch_size, options.max_request_size),
            linger_seconds=options.linger_ms / 1000,
            delivery_seconds=options.delivery_timeout_ms / 1000,
            memory_bytes=options.buffer_memory,
            request_bytes=options.max_request_size,
            most_under_way=in_flight if may_overlap else 1,
            most_in_flight=in_flight,
            metadata_max_age_seconds=options.metadata_max_age_ms / 1000,
            is_idempotent=options.enable_idempotence,
            transactional_id=options.transactional_id,
            ignores_keys=options.partitioner_ignore_keys,
        )


class Turn(NamedTuple, Generic[R]):
    """What follows from the events of a turn."""

    instructions: Sequence[Instruction[R]]
    wake_at: float  # NEVER if nothing happens by itself


class ProducerMachine(Generic[R]):
    """One producer: all of its records that are not confirmed, and what it knows."""

    def __init__(
        self,
        settings: ProducerSettings,
        policy: RetryPolicy,
        backoff: Backoff,
        chance: Chance,
        *,
        make_result: MakeResult[R],
        make_partitioner: Callable[[], Partitioner],
    ) -> None:
        self.settings = settings
        self.topics: dict[str, PartitionedTopic[R]] = {}  # those that are sent to, by name
        self.used_bytes = 0
        self.identity: ProducerIdentity | None = None  # as the cluster gave it
        self.flusher_count = 0  # how many are waiting for everything to be sent
        self._policy = policy
        self._backoff = backoff
        self._chance = chance
        self._make_result = make_result
        self._make_partitioner = make_partitioner
        self._instructions: list[Instruction[R]] = []
        self._queues: dict[TopicPartition, PartitionQueue[R]] = {}
        self._busy: dict[TopicPartition, PartitionQueue[R]] = {}  # those that are not idle
        self._in_flight: dict[int, int] = {}  # requests handed over and not answered, by broker
        self._paused_until: dict[int, float] = {}  # by broker, as they asked for it (KIP-219)
        self._troubled: set[TopicPartition] = set()  # refused, and not confirmed since
        self._is_asking_identity = False
        self.transactions: TransactionManager | None = None
        self._calls: TransactionCalls | None = None  # there are transactions, or there are none
        if settings.transactional_id is not None:
            self.transactions = TransactionManager(settings.transactional_id, backoff, chance)
            self._calls = TransactionCalls(self.transactions)
        self._metadata = MetadataSchedule(settings.metadata_max_age_seconds)
        self._unfinished = IncompleteBatches()

    # Turns

    def end_turn(self, now: float, cluster: ClusterMetadata) -> Turn[R]:
        """Do what is due; tells what to do now, and when to come again."""
        self._expire(now)
        if self._calls is not None:
            self._advance(self._calls)
        wake_at = min(self._send(now, cluster), self._next_expiry())
        if self.transactions is not None:
            wake_at = min(wake_at, self._ask_coordinator(self.transactions, now))
        wake_at = min(wake_at, self._maybe_refresh(now))
        self._instructions += map(FinishFlush, self._unfinished.end_flushes())
        instructions, self._instructions = self._instructions, []
        return Turn(instructions, wake_at)

    # Collecting

    def queue_of(self, partition: TopicPartition) -> PartitionQueue[R]:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def open_batch(self, queue: PartitionQueue[R], now: float) -> ProducerBatch[R]:
        """Begin a batch; the one before it is full."""
        # Busy first: an interrupt (Ctrl-C in `send`) must not leave a batch that nobody looks at.
        self._busy[queue.partition] = queue
        batch = queue.open_batch(self._make_result(queue.partition), now)
        batch.serial = self._unfinished.open()
        return batch

    def close_batch(self, partition: TopicPartition, result: R) -> bool:
        """Let a batch leave before it is full; False when it was closed already."""
        queue = self.queue_of(partition)
        if queue.open is None or queue.open.result is not result:
            return False
        queue.close_batch()
        return True

    # What is left

    @property
    def is_empty(self) -> bool:
        return self._unfinished.is_empty

    def state_of(self, batch: ProducerBatch[R]) -> BatchState:
        queue = self.queue_of(batch.partition)
        if batch.is_abandoned:
            return BatchState.ABANDONED
        if batch.is_finished:
            return BatchState.FINISHED
        if batch in queue.under_way:
            return BatchState.UNDER_WAY
        return BatchState.OPEN if batch is queue.open else BatchState.WAITING

    def begin_flush(self) -> int | None:
        """Let nothing linger until all that was collected has come to its end; None if it has."""
        flush_id = self._unfinished.begin_flush()
        if flush_id is not None:
            self.flusher_count += 1
        return flush_id

    def end_flush(self, flush_id: int) -> None:
        """Nobody waits for it any more."""
        self.flusher_count -= 1
        self._unfinished.forget_flush(flush_id)

    # Sending

    def _send(self, now: float, cluster: ClusterMetadata) -> float:
        """Hand over requests until no more can be; when to look again."""
        needs_flush = self.flusher_count or (self._calls is not None and self._calls.needs_flush)
        linger = 0.0 if needs_flush else self.settings.linger_seconds
        while True:
            requests: dict[int, list[ProducerBatch[R]]] = {}
            sizes: dict[int, int] = {}
            look_again_at = NEVER
            for queue in list(self._busy.values()):
                ready_at = queue.ready_at(linger)
                if ready_at <= now and queue.waiting:
                    ready_at = self._add_to_request(queue, requests, sizes, cluster, now)
                look_again_at = min(look_again_at, ready_at)
            if not requests:
                return look_again_at
            for broker_id, batches in requests.items():
                self._in_flight[broker_id] = self._in_flight.get(broker_id, 0) + 1
                self._instructions.append(Send(broker_id, batches))

    def _add_to_request(
        self,
        queue: PartitionQueue[R],
        requests: dict[int, list[ProducerBatch[R]]],
        sizes: dict[int, int],
        cluster: ClusterMetadata,
        now: float,
    ) -> float:
        """Put the oldest batch into the request for its broker, if it may leave.

        Gives the time from when on it may, as far as that depends on nothing else.
        """
        broker_id = cluster.find_leader(queue.partition)
        if broker_id is None:
            self._on_no_leader(queue, now)
        elif self.transactions is not None and not self.transactions.may_send(queue.partition):
            return NEVER
        elif self.settings.is_idempotent and not self._may_number(queue):
            self._maybe_ask_identity()
        elif now < self._paused_until.get(broker_id, now):
            return self._paused_until[broker_id]
        elif self._in_flight.get(broker_id, 0) < self.settings.most_in_flight and queue.may_send_to(
            broker_id, self.settings.most_under_way
        ):
            size = sizes.get(broker_id, 0) + queue.waiting[0].size_bytes + HEADER_BYTES
            if broker_id not in sizes or size <= self.settings.request_bytes:
                sizes[broker_id] = size
                follows = self.transactions is not None
                batch = queue.drain_batch(broker_id, self.identity, follows=follows)
                requests.setdefault(broker_id, []).append(batch)
                self._busy[queue.partition] = self._busy.pop(queue.partition)  # others first now
        return NEVER

    def _on_no_leader(self, queue: PartitionQueue[R], now: float) -> None:
        error = LeaderNotAvailableError(f"{queue.partition}: no broker leads it at the moment")
        queue.waiting[0].last_error = error
        self._metadata.want(now)
        self._report_refusal(queue.partition, error)

    def _report_refusal(self, partition: TopicPartition, error: KafkaError) -> None:
        self._troubled.add(partition)
        self._instructions.append(ReportRefusal(partition, error))

    # The producer id

    def _may_number(self, queue: PartitionQueue[R]) -> bool:
        return self.identity is not None and queue.may_number(self.identity)

    def _maybe_ask_identity(self) -> None:
        if not self._is_asking_identity:
            self._is_asking_identity = True
            self._instructions.append(AskIdentity())

    def identity_given(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self._is_asking_identity = False

    # Transactions

    @property
    def refusal(self) -> MoldauError | None:
        """Why no record may be sent at the moment; None if it may."""
        return None if self._calls is None else self._calls.find_refusal()

    def begin_call(self, call: TransactionCall) -> int:
        """The program wants something of the transaction; `FinishCall` tells how it went."""
        return self._require_calls().begin_call(call)

    def begin_transaction(self) -> None:
        self._require_calls().transactions.begin_transaction()

    def send_offsets(self, offsets: GroupOffsets) -> int:
        """Have offsets committed with the transaction; gives the call to wait for."""
        return self._require_calls().begin_offsets(offsets)

    def initialized(self, identity: ProducerIdentity, *, is_version_2: bool) -> None:
        self._require_calls().transactions.initialized(identity, is_version_2=is_version_2)
        self.identity = identity

    def granted(self, identity: ProducerIdentity | None = None) -> None:
        """A coordinator did what it was asked for."""
        transactions = self._require_calls().transactions
        transactions.answered(identity)
        self.identity = transactions.identity

    def refused(self, error: KafkaError | ClientError, now: float) -> None:
        """A coordinator refused, or could not be asked."""
        self._require_calls().transactions.refused(error, now)

    def _require_calls(self) -> TransactionCalls:
        if self._calls is None:
            raise TransactionStateError(
                "this producer has no transactions; give it a transactional_id"
            )
        return self._calls

    def _advance(self, calls: TransactionCalls) -> None:
        """End the transaction if that is wanted and nothing is in its way; tell who waits."""
        if calls.drops_waiting:
            error = calls.transactions.explain_aborted()
            for queue in list(self._busy.values()):
                for batch in queue.take_waiting():
                    self._finish(batch, NotDelivered(error), is_news=False)
        is_still = not any(queue.under_way for queue in self._busy.values())
        finished = calls.advance(is_still=is_still, is_empty=self.is_empty)
        if finished is not None:
            self._instructions.append(finished)

    def _ask_coordinator(self, transactions: TransactionManager, now: float) -> float:
        request = transactions.next_request(now)
        if request is not None:
            self._instructions.append(AskCoordinator(request))
        return transactions.wake_at()

    # Topics

    def learn_topic(self, topic: TopicMetadata) -> PartitionedTopic[R]:
        """Take over what was learned of a topic that is sent to, or is going to be.

        A partition once known stays, for the sake of its batches.
        """
        target = self.topics.get(topic.name)
        if target is None:
            target = PartitionedTopic(
                topic.name, self._make_partitioner(), ignores_keys=self.settings.ignores_keys
            )
        target.available = topic.partitions_with_leader()
        if len(topic.partitions) > len(target.queues):
            target.queues = [
                self.queue_of(TopicPartition(topic.name, row.index)) for row in topic.partitions
            ]
        self.topics[topic.name] = target
        return target

    def topics_refreshed(self, topics: Collection[TopicMetadata] | None, now: float) -> None:
        """What came of `RefreshTopics`; None when nobody could be asked."""
        self._metadata.on_answer(now, self._backoff, self._chance)
        if topics is None:
            self._metadata.is_wanted = True
            return
        for topic in topics:
            if topic.error is None and topic.name in self.topics:
                self.learn_topic(topic)
            elif isinstance(topic.error, TopicAuthorizationError):
                self._deny(topic.name, topic.error)

    def _deny(self, name: str, error: KafkaError) -> None:
        """Nobody tells this producer who leads the topic, so what waits for it cannot be sent."""
        for queue in [one for one in self._busy.values() if one.partition.topic == name]:
            denied = queue.take_waiting()
            if any(batch.identity is not None for batch in denied):
                queue.demand_restart()  # an attempt before may have been written
            for batch in denied:
                self._finish(batch, NotDelivered(error))

    def _maybe_refresh(self, now: float) -> float:
        if not self.topics:
            return NEVER
        if self._metadata.is_due(now):
            self._metadata.is_asking = True
            self._instructions.append(RefreshTopics(tuple(self.topics)))
        return self._metadata.next_at()

    # Answers

    def answered(
        self,
        broker_id: int,
        answers: Iterable[tuple[ProducerBatch[R], PartitionAnswer]],
        now: float,
        pause_seconds: float = 0.0,
    ) -> None:
        """A request has come back, whatever became of it."""
        self._in_flight[broker_id] -= 1
        if pause_seconds > 0:
            paused_until = self._paused_until.get(broker_id, now)
            self._paused_until[broker_id] = max(paused_until, now + pause_seconds)
        for batch, answer in answers:
            self._on_answer(batch, answer, now)

    def _on_answer(self, batch: ProducerBatch[R], answer: PartitionAnswer, now: float) -> None:
        queue = self.queue_of(batch.partition)
        is_oldest = queue.is_oldest(batch)
        completion = decide_completion(
            batch, answer.error, is_oldest=is_oldest, policy=self._policy
        )
        batch.last_error = answer.error
        batch.is_in_doubt |= leaves_doubt(answer.error)
        if completion.restart_numbers:
            queue.demand_restart()
        if completion.refresh_metadata:
            self._metadata.want(now)
        if batch.is_abandoned:
            queue.finish(batch, is_confirmed=completion.step is NextStep.CONFIRM)
            self._maybe_idle(queue)
        else:
            self._complete_batch(completion, batch, answer, now)
        if answer.error is None and batch.partition in self._troubled:
            self._troubled.remove(batch.partition)
            self._instructions.append(ReportSuccess(batch.partition))

    def _complete_batch(
        self,
        completion: BatchCompletion,
        batch: ProducerBatch[R],
        answer: PartitionAnswer,
        now: float,
    ) -> None:
        queue = self.queue_of(batch.partition)
        match completion.step:
            case NextStep.RETRY:
                delay = self._backoff.delay_seconds(batch.attempts - 1, self._chance)
                queue.put_back(batch, now + delay)
                if isinstance(answer.error, KafkaError):
                    self._report_refusal(batch.partition, answer.error)
                return
            case NextStep.DIVIDE:
                self._divide(batch)
                return
            case NextStep.CONFIRM:
                outcome: Delivered | NotDelivered = Delivered(
                    answer.base_offset, answer.log_append_time_ms
                )
            case NextStep.REFUSE:
                outcome = NotDelivered(explain_refusal(batch, answer.error), answer.record_faults)
        queue.finish(batch, is_confirmed=completion.step is NextStep.CONFIRM)
        self._finish(batch, outcome)

    def _divide(self, batch: ProducerBatch[R]) -> None:
        """Put the halves of a batch in its place; it counts as finished."""
        halves = self.queue_of(batch.partition).put_back_divided(batch, self._make_result)
        self.used_bytes += sum(half.size_bytes for half in halves)
        self._unfinished.divide(batch.serial, len(halves))
        starts = (half.first_number - batch.first_number for half in halves)
        results = (half.result for half in halves)
        self._finish(batch, Divided(tuple(zip(starts, results, strict=True))))

    # Coming to an end

    def _finish(
        self,
        batch: ProducerBatch[R],
        outcome: Delivered | NotDelivered | Divided[R],
        *,
        is_news: bool = True,
    ) -> None:
        """Its senders are about to know how it ended: forget it and free its memory."""
        if is_news and self.transactions is not None and isinstance(outcome, NotDelivered):
            self.transactions.on_not_delivered(outcome.error)
        batch.is_finished = True
        self.used_bytes -= batch.size_bytes
        self._unfinished.finish(batch.serial)
        self._maybe_idle(self.queue_of(batch.partition))
        self._instructions.append(Finish(batch, outcome))

    def _maybe_idle(self, queue: PartitionQueue[R]) -> None:
        if queue.is_idle:
            self._busy.pop(queue.partition, None)

    def fail_all(self, error: MoldauError) -> None:
        """Give up everything, because nothing can be sent any more."""
        for queue in list(self._busy.values()):
            for batch in queue.take_all():
                self._finish(batch, NotDelivered(error))

    def _expire(self, now: float) -> None:
        """Give up the batches whose time is over."""
        deadline = now - self.settings.delivery_seconds
        for queue in list(self._busy.values()):
            if queue.oldest_created_at() <= deadline:
                for batch in queue.take_expired(deadline):
                    self._finish(
                        batch, NotDelivered(explain_too_late(batch, self.settings.delivery_seconds))
                    )

    def _next_expiry(self) -> float:
        """When the next batch's time is over."""
        oldest = min((queue.oldest_created_at() for queue in self._busy.values()), default=NEVER)
        return oldest + self.settings.delivery_seconds


class MetadataSchedule:
    """When a producer asks for the metadata of its topics: when something that it knew has turned
    out wrong, and when it is old; one request at a time, with a growing pause in between."""

    def __init__(self, max_age_seconds: float) -> None:
        self.is_wanted = False
        self.is_asking = False
        self._max_age_seconds = max_age_seconds
        self._known_at: float | None = None  # the last answer; None until there is something to age
        self._not_before = 0.0
        self._attempt = 0  # how often it was wanted again before the pause was over

    def want(self, now: float) -> None:
        if not self.is_wanted and now >= self._not_before:
            self._attempt = 0
        self.is_wanted = True

    def is_due(self, now: float) -> bool:
        if self._known_at is None:
            self._known_at = now
        if now >= self._known_at + self._max_age_seconds:
            self.is_wanted = True
        return self.is_wanted and not self.is_asking and now >= self._not_before

    def next_at(self) -> float:
        if self.is_asking or self._known_at is None:
            return NEVER
        return self._not_before if self.is_wanted else self._known_at + self._max_age_seconds

    def on_answer(self, now: float, backoff: Backoff, chance: Chance) -> None:
        self.is_wanted = self.is_asking = False
        self._known_at = now
        self._not_before = now + backoff.delay_seconds(self._attempt, chance)
        self._attempt += 1


# What a broker's answer means for a batch: confirmed, once more, in halves, or refused. Failures
# that may pass (a leader that moved, a broker that is gone, too few replicas) are worth another
# attempt. With idempotence so is a batch that is out of order: either one before it comes again
# first, or its numbers begin anew. A batch that the broker has already is confirmed, though its
# offset may be unknown.


_NOT_REACHED = (BrokerUnreachableError, ConnectionLostError, NoAnswerError)
_STALE_METADATA = (
    *_NOT_REACHED,
    FencedLeaderEpochError,
    LeaderNotAvailableError,
    NotLeaderError,
    ReplicaNotAvailableError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownTopicError,
    UnknownTopicIdError,
)
_LOST_COUNT = (InvalidProducerEpochError, OutOfOrderSequenceError, UnknownProducerIdError)
_WRONG_EPOCH = (InvalidProducerEpochError,)
_TOO_LARGE = (BatchTooLargeError, RecordListTooLargeError)
_IN_DOUBT = (
    ConnectionLostError,
    NoAnswerError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
    StorageError,
)


class NextStep(Enum):
    """What becomes of the batch."""

    CONFIRM = 1
    RETRY = 2
    DIVIDE = 3
    REFUSE = 4


class BatchCompletion(NamedTuple):
    """What becomes of the batch, and what has to happen beside it."""

    step: NextStep
    refresh_metadata: bool = False
    restart_numbers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How stubborn a producer is."""

    retries: int
    is_idempotent: bool
    is_transactional: bool = False
    """Whether a number that is missing ends the transaction, instead of beginning an epoch."""
    retries_lost_requests: bool = True
    """Whether a request is sent again of which nobody knows if it came through (not for acks=0)."""

    @classmethod
    def of(cls, options: ProducerOptions) -> RetryPolicy:
        return cls(
            retries=options.retries,
            is_idempotent=options.enable_idempotence,
            is_transactional=options.transactional_id is not None,
            retries_lost_requests=options.acks != ACKS_NONE,
        )


def decide_completion(
    batch: ProducerBatch[Any], error: MoldauError | None, *, is_oldest: bool, policy: RetryPolicy
) -> BatchCompletion:
    """`is_oldest` when every batch before it has come to its end; no error is a confirmation."""
    if error is None or isinstance(error, DuplicateSequenceError):
        return BatchCompletion(NextStep.CONFIRM)
    if isinstance(error, _TOO_LARGE) and len(batch) > 1 and not batch.is_in_doubt:
        # One in doubt is not divided: the broker would not recognise its halves.
        return BatchCompletion(NextStep.DIVIDE)
    refresh = isinstance(error, _STALE_METADATA)
    if policy.is_idempotent and isinstance(error, _LOST_COUNT):
        may_retry = batch.attempts <= policy.retries
        if policy.is_transactional:
            passes = may_retry and not is_oldest and not isinstance(error, _WRONG_EPOCH)
            return BatchCompletion(NextStep.RETRY if passes else NextStep.REFUSE)
        return BatchCompletion(
            NextStep.RETRY if may_retry else NextStep.REFUSE, restart_numbers=is_oldest
        )
    if batch.attempts <= policy.retries and _may_pass(error, policy):
        return BatchCompletion(NextStep.RETRY, refresh_metadata=refresh)
    return BatchCompletion(NextStep.REFUSE, refresh_metadata=refresh)


def leaves_doubt(error: MoldauError | None) -> bool:
    """Whether the batch may have been written in spite of this error."""
    return isinstance(error, _IN_DOUBT)


def _may_pass(error: MoldauError, policy: RetryPolicy) -> bool:
    if isinstance(error, ConnectionLostError | NoAnswerError):
        return policy.retries_lost_requests
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, _NOT_REACHED)


def explain_refusal(batch: ProducerBatch[Any], error: MoldauError | None) -> MoldauError:
    """What the senders of a batch are told that was refused for good."""
    if error is None:
        return InvariantViolation(f"{batch} was refused for no reason")
    if isinstance(error, BatchTooLargeError) and len(batch) == 1:
        return BatchTooLargeError(
            f"a record of about {batch.size_bytes} bytes for {batch.partition} is more than the "
            f"broker takes; see max.message.bytes of the topic ({error})"
        )
    return error


def explain_too_late(batch: ProducerBatch[Any], seconds: float) -> DeliveryTimeoutError:
    """What they are told when the time for delivery is over."""
    records = "1 record" if len(batch) == 1 else f"{len(batch)} records"
    in_doubt = batch.is_in_doubt or batch.is_abandoned
    doubt = "; it is not known whether they were written" if in_doubt else ""
    reason = f" (last failure: {batch.last_error})" if batch.last_error is not None else ""
    error = DeliveryTimeoutError(
        f"{records} for {batch.partition} were not confirmed within {seconds:g} seconds"
        f"{doubt}{reason}"
    )
    error.__cause__ = batch.last_error
    return error
