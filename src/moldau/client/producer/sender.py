"""The sender: the machine of a producer in its turns, and what takes batches to brokers.

`AsyncProducer` runs it on its user's loop, `Producer` on a loop in a thread of its own. Records are
put into batches by any thread (`record_accumulator`); whatever else happens, happens to the machine
(`rules.sender`) on the loop, in a turn. What it wants done then goes to `ProduceRequests`, to
`transaction_coordinator`, to a timer, or to whoever waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple, TypeAlias, assert_never

from kio.schema.errors import ErrorCode

from moldau.client.cluster import ClusterClient, client_settings
from moldau.client.connections import BrokerConnection, PartitionOutages, Response
from moldau.client.producer.produce_result import ProduceResult
from moldau.client.producer.record_accumulator import CustomPartitioner, RecordAccumulator
from moldau.client.producer.rules.built_in_partitioner import PartitionedTopic, choose_partitioner
from moldau.client.producer.rules.record_accumulator import (
    NEVER,
    AskCoordinator,
    AskIdentity,
    AskProducerId,
    Delivered,
    Divided,
    Finish,
    FinishCall,
    FinishFlush,
    GroupOffsets,
    Instruction,
    MakeResult,
    NotDelivered,
    PartitionAnswer,
    ProducerBatch,
    RefreshTopics,
    ReportRefusal,
    ReportSuccess,
    Send,
    TransactionRequest,
)
from moldau.client.producer.rules.sender import ProducerMachine, ProducerSettings, RetryPolicy
from moldau.client.producer.rules.transaction_manager import PreparedTransaction, TransactionCall
from moldau.client.producer.serializers import RecordSerializer
from moldau.client.producer.transaction_coordinator import (
    LAST_PRODUCE_BEFORE_VERSION_2,
    TransactionCoordinatorClient,
    request_producer_id,
)
from moldau.client.rules.broker_errors import error_for, may_retry
from moldau.clock import Clock, SystemClock, Timer
from moldau.config.client_options import ACKS_NONE, ProducerOptions
from moldau.errors import (
    BrokerUnreachableError,
    ClientError,
    ClosedClientError,
    ClusterUnreachableError,
    ConnectionLostError,
    InvariantViolation,
    KafkaError,
    MalformedFrameError,
    MoldauError,
    TransactionAbortedError,
    TransactionStateError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from moldau.net.port import Network
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import PRODUCE
from moldau.wire.produce_frame import (
    Buffer,
    ProduceAnswer,
    encode_produce_request,
    group_by_topic,
    parse_produce_response,
)
from moldau.workers import Workers

_log = logging.getLogger("moldau.producer")

_UNKNOWN_TOPIC_SECONDS = 5.0
"""A topic may be unknown for so long after it was made; later it is a wrong name."""

_SHORTEST_TIMER_SECONDS = 0.0001
"""A timer that was early by a hair is armed for a time in which a clock can be seen to move."""

Schedule: TypeAlias = Callable[[Callable[[], None]], object]
"""Has a function called on the producer's loop soon."""


class Sender:
    """One producer without its face."""

    def __init__(
        self,
        bootstrap: str,
        options: ProducerOptions,
        serializer: RecordSerializer,
        *,
        make_result: MakeResult[ProduceResult],
        schedule: Schedule,
        partitioner: str | CustomPartitioner,
        network: Network | None,
        clock: Clock | None,
        random: Random | None,
        workers: Workers | None,
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.is_awake = False  # whether a turn will end soon anyway
        self._schedule = schedule
        settings = client_settings(options, timeout_ms=options.max_block_ms)
        self._client = ClusterClient(
            bootstrap, settings, network=network, clock=self.clock, random=random
        )
        self._machine: ProducerMachine[ProduceResult] = ProducerMachine(
            ProducerSettings.of(options),
            RetryPolicy.of(options),
            settings.backoff,
            self._client.random.random,
            make_result=make_result,
            make_partitioner=choose_partitioner(partitioner, self._client.random.randrange),
        )
        self._max_block_seconds = options.max_block_ms / 1000
        self.accumulator = RecordAccumulator(
            self._machine,
            serializer,
            partitioner if callable(partitioner) else None,
            self.clock,
            self.wake,
            max_block_seconds=self._max_block_seconds,
        )
        self.accumulator.refuse_for_now(self._machine.refusal)  # before the first turn, too
        self._tasks = TaskSupervisor(self._on_task_failure)
        self._requests = ProduceRequests(
            self._client, options, workers, self._tasks, self._on_answers
        )
        self._coordinator = TransactionCoordinatorClient(
            self._client,
            options.transaction_timeout_ms,
            has_two_phases=options.transaction_two_phase_commit_enable,
        )
        self._calls: dict[int, asyncio.Future[None]] = {}  # about transactions, that are waited for
        self._outages = PartitionOutages()
        self._learning_topics: dict[str, asyncio.Task[PartitionedTopic[ProduceResult]]] = {}
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._memory_waiters: set[asyncio.Future[None]] = set()
        self._has_failed = False  # by a fault of its own
        self._timer: Timer | None = None
        self._timer_at = NEVER

    # Called by any thread

    def wake(self) -> None:
        """End a turn soon."""
        if not self.is_awake:
            self.is_awake = True
            self._schedule(self._wake_up)

    def stop_lingering(self, result: ProduceResult) -> None:
        """Do not let a batch linger, because somebody waits for it."""
        with self.accumulator.lock:
            is_closed = self._machine.close_batch(result.partition, result)
        if is_closed:
            self.wake()

    # Turns; all that follows is called on the loop

    def _wake_up(self) -> None:
        self.is_awake = False
        self.end_turn()

    @contextmanager
    def _turn(self) -> Iterator[ProducerMachine[ProduceResult]]:
        """Let something happen to the machine, and do what follows from it."""
        with self.accumulator.lock:
            yield self._machine
        self.end_turn()

    def end_turn(self) -> None:
        try:
            now = self.clock.monotonic()
            with self.accumulator.lock:
                turn = self._machine.end_turn(now, self._client.metadata.current)
                self.accumulator.refuse_for_now(self._machine.refusal)
            for instruction in turn.instructions:
                self._perform(instruction, now)
            self._arm(turn.wake_at)
        except Exception as failure:  # noqa: BLE001 nobody else would tell those who wait
            self._on_task_failure("a turn", failure)

    def _perform(self, instruction: Instruction[ProduceResult], now: float) -> None:
        match instruction:
            case Send(broker_id, batches):
                self._requests.send(broker_id, batches)
            case Finish(batch, outcome):
                self._finish(batch, outcome)
            case FinishFlush(flush_id):
                _finish_waiting(self._flushes.get(flush_id))
            case RefreshTopics(topics):
                self._tasks.spawn("metadata of the producer", self._refresh(tuple(topics)))
            case AskIdentity():
                self._tasks.spawn("producer id", self._ask_identity())
            case AskCoordinator(request):
                self._tasks.spawn("the transaction", self._ask_coordinator(request))
            case FinishCall(call_id, failure):
                self._finish_call(call_id, failure)
            case ReportRefusal(partition, error):
                self._outages.on_refusal(partition, error, now)
            case ReportSuccess(partition):
                self._outages.on_success(partition, now)
            case _:
                assert_never(instruction)

    def _finish(
        self,
        batch: ProducerBatch[ProduceResult],
        outcome: Delivered | NotDelivered | Divided[ProduceResult],
    ) -> None:
        if isinstance(outcome, NotDelivered):
            is_wanted = isinstance(outcome.error, TransactionAbortedError)
            _log.log(
                logging.INFO if is_wanted else logging.WARNING,
                "a batch (records: %d) for %s was not delivered: %s",
                len(batch),
                batch.partition,
                outcome.error,
            )
        batch.result.complete(outcome)
        if self._memory_waiters and self.accumulator.has_memory(0):
            self._announce_memory()

    def _on_answers(
        self, broker_id: int, answers: Sequence[Answered], pause_seconds: float
    ) -> None:
        try:
            with self._turn() as machine:
                machine.answered(broker_id, answers, self.clock.monotonic(), pause_seconds)
        except Exception as failure:  # noqa: BLE001 nobody else would tell those who wait
            self._on_task_failure("answers", failure)

    def _arm(self, at: float) -> None:
        """End a turn at that time, or earlier."""
        if self._timer is not None and self._timer_at <= at:
            return
        self._disarm()
        if at != NEVER:
            delay = max(at - self.clock.monotonic(), _SHORTEST_TIMER_SECONDS)
            self._timer = self.clock.call_later(delay, self._on_timer)
            self._timer_at = at

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_at = NEVER

    def _on_timer(self) -> None:
        self._disarm()
        self.end_turn()

    # Asking the cluster

    async def _ask_identity(self) -> None:
        try:
            identity = await request_producer_id(self._client)
        except (KafkaError, ClientError) as error:
            self.fail_all(error)
            return
        with self._turn() as machine:
            machine.identity_given(identity)

    async def _ask_coordinator(self, request: TransactionRequest) -> None:
        try:
            granted = await self._coordinator.send_request(request)
        except (KafkaError, ClientError) as error:
            with self._turn() as machine:
                machine.refused(error, self.clock.monotonic())
            return
        with self._turn() as machine:
            if isinstance(request, AskProducerId) and granted.identity is not None:
                is_new = granted.is_version_2
                self._requests.limit_version(None if is_new else LAST_PRODUCE_BEFORE_VERSION_2)
                machine.initialized(granted.identity, is_version_2=is_new)
            else:
                machine.granted(granted.identity)

    async def _refresh(self, topics: Sequence[str]) -> None:
        try:
            found = await self._client.metadata.refresh(topics, may_create=True)
        except (KafkaError, ClientError):
            known = None
        else:
            known = [found.topics[name] for name in topics if name in found.topics]
        with self._turn() as machine:
            machine.topics_refreshed(known, self.clock.monotonic())

    async def learn_topic(self, topic: str) -> PartitionedTopic[ProduceResult]:
        """Ask for a topic until it is usable; raises what stands in the way after max.block.ms."""
        task = self._learning_topics.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._learn(topic))
            self._learning_topics[topic] = task
            task.add_done_callback(lambda _: self._learning_topics.pop(topic))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # not the one who asks, but the one who was asked
                raise ClosedClientError("the producer is closed") from None
            raise

    async def _learn(self, topic: str) -> PartitionedTopic[ProduceResult]:
        async def read_topic() -> PartitionedTopic[ProduceResult]:
            found = await self._client.metadata.refresh((topic,), may_create=True)
            with self.accumulator.lock:
                return self._machine.learn_topic(found.require_topic(topic))

        try:
            return await self._client.retry(
                read_topic, timeout_seconds=self._max_block_seconds, may_go_on=_may_wait
            )
        except ClusterUnreachableError as error:
            raise ClusterUnreachableError(
                f"{error}; send waits {self._max_block_seconds:g} seconds for one (max.block.ms): "
                "start it, or give the producer another address"
            ) from error

    # Transactions

    @property
    def is_in_transaction(self) -> bool:
        transactions = self._machine.transactions
        return transactions is not None and transactions.is_abortable

    async def begin_transaction(self) -> None:
        """Open one, with a producer id that is asked for before the first."""
        await self.call_about_transaction(TransactionCall.INITIALIZE)
        with self._turn() as machine:
            machine.begin_transaction()

    async def call_about_transaction(self, call: TransactionCall) -> None:
        """Have something done about the transaction, and wait for it; raises how it failed."""
        with self.accumulator.lock:
            call_id = self._machine.begin_call(call)
        await self._wait_for_call(call_id)

    async def prepare_transaction(self) -> PreparedTransaction | None:
        if not self.options.transaction_two_phase_commit_enable:
            raise TransactionStateError(
                "this producer commits its transactions itself; give it "
                "transaction_two_phase_commit_enable=True"
            )
        await self.call_about_transaction(TransactionCall.PREPARE)
        transactions = self._machine.transactions
        return None if transactions is None else transactions.find_prepared()

    async def send_offsets(self, offsets: GroupOffsets) -> None:
        with self.accumulator.lock:
            call_id = self._machine.send_offsets(offsets)
        await self._wait_for_call(call_id)

    async def _wait_for_call(self, call_id: int) -> None:
        done = self._calls[call_id] = asyncio.get_running_loop().create_future()
        self.end_turn()
        try:
            await asyncio.shield(done)
        finally:
            del self._calls[call_id]

    def _finish_call(self, call_id: int, failure: MoldauError | None) -> None:
        done = self._calls.get(call_id)
        if done is None or done.done():
            return
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    # Waiting

    async def wait_for_memory(self, size_bytes: int, deadline: float) -> None:
        """Until there is so much memory, and nothing lingers meanwhile; raises BufferFullError at
        the deadline, or at once if that is wished for."""
        if not self.options.block_on_buffer_full:
            raise self.accumulator.explain_no_memory()
        with self._turn() as machine:
            machine.flusher_count += 1
        timer = self.clock.call_later(
            max(deadline - self.clock.monotonic(), 0.0), self._announce_memory
        )
        try:
            while self.accumulator.refusal is None and not self.accumulator.has_memory(size_bytes):
                if self.clock.monotonic() >= deadline:
                    raise self.accumulator.explain_no_memory()
                announced = asyncio.get_running_loop().create_future()
                self._memory_waiters.add(announced)
                try:
                    await announced
                finally:
                    self._memory_waiters.discard(announced)
        finally:
            timer.cancel()
            with self.accumulator.lock:
                self._machine.flusher_count -= 1

    def _announce_memory(self) -> None:
        for announced in self._memory_waiters:
            _finish_waiting(announced)

    async def flush(self, timeout_seconds: float | None) -> bool:
        """Wait until everything collected so far has come to its end; False if not in time."""
        with self.accumulator.lock:
            flush_id = self._machine.begin_flush()
        if flush_id is None:
            return True
        done = self._flushes[flush_id] = asyncio.get_running_loop().create_future()
        timer = None
        if timeout_seconds is not None:
            timer = self.clock.call_later(timeout_seconds, lambda: _cancel_waiting(done))
        try:
            self.end_turn()
            await asyncio.wait((done,))
        finally:
            if timer is not None:
                timer.cancel()
            del self._flushes[flush_id]
            with self.accumulator.lock:
                self._machine.end_flush(flush_id)
        return not done.cancelled()

    # The end

    async def close(self, timeout_seconds: float | None) -> None:
        """Send what was collected, then end; what is left after the time fails."""
        self.accumulator.refuse(ClosedClientError("the producer is closed"))
        self._announce_memory()
        await self.flush(timeout_seconds)
        self.fail_all(ClosedClientError("the producer was closed before the record was confirmed"))
        self._disarm()
        tasks = tuple(self._learning_topics.values())
        for task in tasks:  # whoever waits for a topic hears of it
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._tasks.close()
        await self._client.close()

    def fail_all(self, error: MoldauError) -> None:
        """Nothing can be sent any more, and everybody who waits hears why."""
        self.accumulator.refuse(error)
        self._announce_memory()
        with self._turn() as machine:
            machine.fail_all(error)

    def _on_task_failure(self, name: str, failure: BaseException) -> None:
        _log.error("the task %r of a producer failed", name, exc_info=failure)
        if self._has_failed:
            return  # in telling those who wait: there is nothing more to be done for them
        self._has_failed = True
        error = InvariantViolation(f"the producer failed: {failure!r}")
        error.__cause__ = failure
        self.fail_all(error)


def _finish_waiting(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _cancel_waiting(waiting: asyncio.Future[None]) -> None:
    waiting.cancel()


def _may_wait(error: MoldauError, attempt: int, waited_seconds: float) -> bool:
    """A topic that is being made is unknown for a while; the number of attempts says nothing."""
    if isinstance(error, UnknownTopicError):
        return waited_seconds <= _UNKNOWN_TOPIC_SECONDS
    return may_retry(error, 0, wait_for_cluster=True)


# `ProduceRequests` has a link to each broker: requests leave in the order in which they were handed
# over, and every one comes back exactly once through `on_answers`. What an answer means is the
# machine's decision. One task for each link sends; answers arrive by callback.


_FIRST_WITH_ZSTD = 7
_CONFIRMED = PartitionAnswer()

Batch: TypeAlias = ProducerBatch[Any]
Answered: TypeAlias = tuple[Batch, PartitionAnswer]
OnAnswers: TypeAlias = Callable[[int, Sequence[Answered], float], None]
"""Of the broker, its answers, and the seconds for which it wants to be left alone (KIP-219)."""


class ProduceRequests:
    """The links of one producer."""

    def __init__(
        self,
        client: ClusterClient,
        options: ProducerOptions,
        workers: Workers | None,
        tasks: TaskSupervisor,
        on_answers: OnAnswers,
    ) -> None:
        self._client = client
        self._exchange = ProduceExchange(options)
        self._workers = workers if self._exchange.compresses else None
        self._tasks = tasks
        self._on_answers = on_answers
        self._links: dict[int, BrokerLink] = {}

    def limit_version(self, last_version: int | None) -> None:
        """Send no later version from now on."""
        self._exchange.last_version = last_version

    def send(self, broker_id: int, batches: Sequence[Batch]) -> None:
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = BrokerLink(
                broker_id, self._client, self._exchange, self._workers, self._on_answers
            )
            self._tasks.spawn(f"batches to broker {broker_id}", link.run())
        link.send(batches)


class BrokerLink:
    """A producer's line to one broker."""

    def __init__(
        self,
        broker_id: int,
        client: ClusterClient,
        exchange: ProduceExchange,
        workers: Workers | None,
        on_answers: OnAnswers,
    ) -> None:
        self._broker_id = broker_id
        self._client = client
        self._exchange = exchange
        self._workers = workers
        self._on_answers = on_answers
        self._outbox: deque[Sequence[Batch]] = deque()
        self._has_work = asyncio.Event()

    def send(self, batches: Sequence[Batch]) -> None:
        self._outbox.append(batches)
        self._has_work.set()

    async def run(self) -> None:
        """Send what is handed over, until cancelled."""
        while True:
            await self._has_work.wait()
            while self._outbox:
                await self._send(self._outbox[0])
            self._has_work.clear()

    async def _send(self, batches: Sequence[Batch]) -> None:
        try:
            arrived, version = await self._post(batches)
        except (KafkaError, ClientError) as error:
            self._return_all(error)
            return
        self._outbox.popleft()
        if arrived is None:
            self._give_back([(batch, _CONFIRMED) for batch in batches])
            return
        arrived.add_done_callback(lambda future: self._on_arrival(future, version, batches))

    async def _post(self, batches: Sequence[Batch]) -> tuple[asyncio.Future[Response] | None, int]:
        connection = await self._client.connect_to_broker(self._broker_id)
        version = self._exchange.choose_version(connection)
        if self._workers is not None:
            await self._workers.run(lambda: self._exchange.encode_batches(batches))
        else:
            self._exchange.encode_batches(batches)
        body = self._exchange.request_body(version, batches)
        if self._exchange.acks == ACKS_NONE:
            await connection.send_without_answer(PRODUCE, version, body)
            return None, version
        return await connection.post(PRODUCE, version, body), version

    def _return_all(self, error: KafkaError | ClientError) -> None:
        """The first request failed; those behind it never left, and must not overtake it."""
        first, *others = self._outbox
        self._outbox.clear()
        self._give_back(same_answer(first, error))
        for batches in others:
            self._give_back(same_answer(batches, BrokerUnreachableError(str(error))))

    def _on_arrival(
        self, arrived: asyncio.Future[Response], version: int, batches: Sequence[Batch]
    ) -> None:
        if arrived.cancelled():
            self._give_back(same_answer(batches, ClientError("the producer is closed")))
            return
        failure = arrived.exception()
        if failure is not None:
            known = failure if isinstance(failure, MoldauError) else ClientError(repr(failure))
            self._give_back(same_answer(batches, known))
            return
        answers, throttle_time_ms = self._exchange.read(version, arrived.result(), batches)
        self._on_answers(self._broker_id, answers, throttle_time_ms / 1000)

    def _give_back(self, answers: Sequence[Answered]) -> None:
        self._on_answers(self._broker_id, answers, 0.0)


class Exchanged(NamedTuple):
    """What a response says about the batches of its request."""

    answers: Sequence[Answered]
    throttle_time_ms: int = 0


class ProduceExchange:
    """Batches into a Produce request, and its response into answers for the batches."""

    def __init__(self, options: ProducerOptions) -> None:
        self.acks = options.acks
        self._timeout_ms = options.request_timeout_ms
        self._codec = Codec.parse(options.compression_type)
        self._level = options.compression_level
        self._transactional_id = options.transactional_id
        self.last_version: int | None = None  # that may be sent; None for the last that is known

    @property
    def compresses(self) -> bool:
        return self._codec is not Codec.NONE

    def choose_version(self, connection: BrokerConnection) -> int:
        version = connection.choose_version(PRODUCE, at_most=self.last_version)
        if self._codec is Codec.ZSTD and version < _FIRST_WITH_ZSTD:
            raise UnsupportedVersionError(f"{connection.address} is too old for zstd batches")
        return version

    def encode_batches(self, batches: Iterable[Batch]) -> None:
        """Bring batches into the form in which they are sent, each once."""
        for batch in batches:
            if batch.encoded is None:
                batch.encoded = self._encode(batch)

    def _encode(self, batch: Batch) -> bytearray:
        identity, sequence = batch.identity, batch.base_sequence
        return build_batch(
            batch.rows,
            codec=self._codec,
            level=self._level,
            producer_id=NO_PRODUCER_ID if identity is None else identity.id,
            producer_epoch=NO_PRODUCER_EPOCH if identity is None else identity.epoch,
            base_sequence=NO_SEQUENCE if sequence is None else sequence,
            transactional=self._transactional_id is not None,
        )

    def request_body(self, version: int, batches: Sequence[Batch]) -> list[Buffer]:
        """A request with these batches, which are encoded."""
        topics = group_by_topic((*batch.partition, batch.encoded or b"") for batch in batches)
        return encode_produce_request(
            version, self.acks, self._timeout_ms, topics, self._transactional_id
        )

    def read(self, version: int, answer: Response, batches: Sequence[Batch]) -> Exchanged:
        """What the response says; of a batch that it does not mention the answer is lost."""
        try:
            answers, throttle_time_ms = parse_produce_response(
                version, answer.frame, answer.position
            )
        except MalformedFrameError as error:
            lost = ConnectionLostError(f"the answer cannot be read: {error}")
            return Exchanged(same_answer(batches, lost))
        told = {(row.topic, row.partition): row for row in answers}
        return Exchanged(
            [(batch, _answer_for(batch, told.get(batch.partition))) for batch in batches],
            throttle_time_ms,
        )


def same_answer(batches: Iterable[Batch], error: MoldauError) -> Sequence[Answered]:
    """The answer of a request that failed as a whole."""
    answer = PartitionAnswer(error)
    return [(batch, answer) for batch in batches]


def _answer_for(batch: Batch, row: ProduceAnswer | None) -> PartitionAnswer:
    if row is None:
        return PartitionAnswer(
            ConnectionLostError(f"the answer does not say what became of {batch.partition}")
        )
    if not row.error_code:
        return PartitionAnswer(None, row.base_offset, row.log_append_time_ms)
    return PartitionAnswer(_error_of(row, batch), record_faults=row.record_errors)


def _error_of(row: ProduceAnswer, batch: Batch) -> KafkaError:
    try:
        code = ErrorCode(row.error_code)
    except ValueError:  # newer than this client
        code = ErrorCode.unknown_server_error
    return error_for(code, row.error_message, str(batch.partition))
