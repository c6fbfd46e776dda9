"""The loop side of a producer: takes batches to the leaders and brings the answers back.

Answers for links to brokers, timers, the producer id, and for telling everybody who waits. What is
sent when, and what an answer means, is decided by `rules.batch_delivery`. A shell, owned by one
loop; the lock that it takes is the intake's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from moldau.client.batch_promises import BatchPromise
from moldau.client.broker_link import BrokerLink
from moldau.client.cluster_client import ClusterClient
from moldau.client.intake import Intake
from moldau.client.outages import NO_LEADER, PartitionOutages
from moldau.client.produce_exchange import Answered, ProduceExchange
from moldau.client.producer_identity import ask_identity
from moldau.client.producer_topics import ProducerTopics
from moldau.client.rules.accumulator import SendPlan
from moldau.client.rules.batch_delivery import BatchDelivery, Finished, NotDelivered
from moldau.client.rules.partition_queue import NEVER
from moldau.clock import Timer
from moldau.config.client_options import ProducerOptions
from moldau.errors import ClientError, InvariantViolation, KafkaError, MoldauError
from moldau.tasks import TaskSupervisor
from moldau.workers import Workers

_log = logging.getLogger(__name__)


class Sender:
    """Sends for one producer from `begin` to `close`."""

    def __init__(
        self,
        client: ClusterClient,
        delivery: BatchDelivery[BatchPromise],
        intake: Intake[BatchPromise],
        topics: ProducerTopics[BatchPromise],
        options: ProducerOptions,
        workers: Workers | None,
    ) -> None:
        self._client = client
        self._delivery = delivery
        self._accumulator = delivery.accumulator
        self._intake = intake
        self._topics = topics
        self._exchange = ProduceExchange(options)
        self._options = options
        self._workers = workers
        self._links: dict[int, BrokerLink] = {}
        self._tasks = TaskSupervisor(self._on_task_failure)
        self._timer: Timer | None = None
        self._timer_at = NEVER
        self._is_asking_identity = False
        self._outages = PartitionOutages()
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []  # waiting, by serial number

    def begin(self) -> None:
        """Called once, on the loop."""
        self._topics.on_news = self.pump
        self._tasks.spawn("metadata of the producer", self._topics.run())

    async def close(self) -> None:
        self._disarm()
        await self._topics.close()
        await self._tasks.close()
        await self._client.close()

    # Sending

    def pump(self) -> None:
        """Do what is due now. Called on the loop whenever anything has changed."""
        try:
            self._pump()
        except Exception as failure:  # noqa: BLE001 nobody else would tell those who wait
            self._on_task_failure("sending", failure)

    def _pump(self) -> None:
        now = self._client.clock.monotonic()
        with self._intake.lock:
            finished = self._delivery.expire(now)
            plan = self._plan(now)
            next_expiry = self._accumulator.next_expiry()
        self._tell(finished)
        if plan.leaderless:
            self._topics.want_refresh()
            for partition in plan.leaderless:
                self._outages.on_refusal(partition, NO_LEADER, now)
        if plan.needs_identity:
            self._want_identity()
        self._arm(min(plan.look_again_at, next_expiry))

    def _plan(self, now: float) -> SendPlan[BatchPromise]:
        """Hand over requests until no more can be; the last plan says what is missing."""
        while True:
            plan = self._delivery.plan(now, self._topics.find_leader, self._has_slot)
            if not plan.requests:
                return plan
            for broker_id, batches in plan.requests.items():
                self._link(broker_id).send(batches)

    def _has_slot(self, broker_id: int) -> bool:
        return self._link(broker_id).has_slot

    def _link(self, broker_id: int) -> BrokerLink:
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = BrokerLink(
                broker_id,
                self._client,
                self._exchange,
                self._workers,
                most_in_flight=self._options.max_in_flight_requests_per_connection,
                on_answers=self._on_answers,
            )
            self._tasks.spawn(f"batches to broker {broker_id}", link.run())
        return link

    def _on_answers(self, answers: Sequence[Answered]) -> None:
        try:
            self._take_answers(answers)
        except Exception as failure:  # noqa: BLE001 nobody else would tell those who wait
            self._on_task_failure("answers", failure)
        self.pump()

    def _take_answers(self, answers: Sequence[Answered]) -> None:
        now = self._client.clock.monotonic()
        finished: list[Finished[BatchPromise]] = []
        with self._intake.lock:
            for batch, answer in answers:
                result = self._delivery.on_answer(batch, answer, now)
                finished += result.finished
                if result.refresh_metadata:
                    self._topics.want_refresh()
                if isinstance(answer.error, KafkaError) and not result.finished:
                    self._outages.on_refusal(batch.partition, answer.error, now)
                elif answer.error is None and self._outages:
                    self._outages.on_success(batch.partition, now)
        self._tell(finished)

    # Telling

    def _tell(self, finished: Sequence[Finished[BatchPromise]]) -> None:
        if not finished:
            return
        for batch, outcome in finished:
            if isinstance(outcome, NotDelivered):
                _log.warning(
                    "a batch (records: %d) for %s was not delivered: %s",
                    len(batch),
                    batch.partition,
                    outcome.error,
                )
            batch.promise.keep(outcome)
        self._intake.maybe_announce_room()
        self._end_flushes()

    async def flush(self, timeout_seconds: float | None) -> bool:
        """Wait until everything collected so far has come to its end; False if not in time."""
        with self._intake.lock:
            serial = self._accumulator.last_serial
            if self._accumulator.is_finished_up_to(serial):
                return True
            self._accumulator.hurry_count += 1
        try:
            self.pump()
            return await self._wait_until_finished(serial, timeout_seconds)
        finally:
            with self._intake.lock:
                self._accumulator.hurry_count -= 1

    async def _wait_until_finished(self, serial: int, timeout_seconds: float | None) -> bool:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append((serial, done))
        timer = None
        if timeout_seconds is not None:
            timer = self._client.clock.call_later(timeout_seconds, lambda: _cancel(done))
        try:
            self._end_flushes()
            await asyncio.wait((done,))
        finally:
            if timer is not None:
                timer.cancel()
            self._flushes.remove((serial, done))
        return not done.cancelled()

    def _end_flushes(self) -> None:
        if not self._flushes:
            return
        with self._intake.lock:  # other threads go on sending meanwhile
            for serial, done in self._flushes:
                if not done.done() and self._accumulator.is_finished_up_to(serial):
                    done.set_result(None)

    # Time

    def _arm(self, at: float) -> None:
        """Pump again at that time, or earlier."""
        if self._timer is not None and self._timer_at <= at:
            return
        self._disarm()
        if at != NEVER:
            delay = max(at - self._client.clock.monotonic(), 0.0)
            self._timer = self._client.clock.call_later(delay, self._on_timer)
            self._timer_at = at

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_at = NEVER

    def _on_timer(self) -> None:
        self._disarm()
        self.pump()

    # The producer id

    def _want_identity(self) -> None:
        if not self._is_asking_identity:
            self._is_asking_identity = True
            self._tasks.spawn("producer id", self._get_identity())

    async def _get_identity(self) -> None:
        try:
            identity = await ask_identity(self._client)
        except (KafkaError, ClientError) as error:
            self.fail(error)
            return
        finally:
            self._is_asking_identity = False
        with self._intake.lock:
            self._accumulator.identity = identity
        self.pump()

    # The end

    def fail(self, error: MoldauError) -> None:
        """Nothing can be sent any more, and everybody who waits hears why."""
        self._intake.refuse(error)
        with self._intake.lock:
            finished = self._delivery.fail_all(error)
        self._tell(finished)

    def _on_task_failure(self, name: str, failure: BaseException) -> None:
        _log.error("the task %r of a producer failed", name, exc_info=failure)
        error = InvariantViolation(f"the producer failed: {failure!r}")
        error.__cause__ = failure
        self.fail(error)


def _cancel(future: asyncio.Future[None]) -> None:
    future.cancel()
