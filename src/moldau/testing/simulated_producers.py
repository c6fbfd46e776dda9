"""Producers of a simulated cluster: the shipped `AsyncProducer`, mostly with acks=all.

Each has a process of its own, which is frozen now and then, and writes `name:number` records to one
partition, some batches at a time. They do not give up, except in seeds in which the time for
delivery is short: then a record may be missing, and the numbering of the partition begins a new
epoch, but still nothing is there twice or out of order (SEQ-1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from moldau.client.producer.produce_result import RecordMetadata
from moldau.client.producer.producer import AsyncProducer
from moldau.client.producer.sender import Answered, Batch
from moldau.config.client_options import ACKS_LEADER
from moldau.errors import ClientError, DeliveryTimeoutError, KafkaError
from moldau.model import TopicPartition
from moldau.records.compression import Codec
from moldau.testing.client_habits import ClientHabits
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.memory_network import MemoryHost
from moldau.testing.simulated_clients import Client, MakeProcess, SessionBook
from moldau.testing.virtual_loop import ProcessClock
from moldau.workers import InlineWorkers

_LONGEST_FREEZE_SECONDS: Final = 2.5
_FREEZE_SHARE: Final = 0.15  # of the naps
_NAP_SECONDS: Final = 0.5
_FOREVER_MS: Final = 10**7

Row = tuple[bytes | None, bytes | None]
"""Key and value."""


AnyProducer = TypeVar("AnyProducer", bound="SimulatedProducer")


class Sent(NamedTuple):
    row: Row
    at: float
    power_losses: int  # of all machines, before it
    future: asyncio.Future[RecordMetadata]


class SimulatedProducer(Client):
    """Writes to one partition, idempotent and with acks=all; every answer is a promise."""

    def __init__(
        self,
        name: str,
        history: ClusterHistory,
        random: Random,
        *,
        partition: TopicPartition,
        bootstrap: str,
        make_process: MakeProcess,
        habits: ClientHabits,
        sessions: SessionBook,
        now: Callable[[], float],
    ) -> None:
        super().__init__(name, history, random)
        self._partition = partition
        self._bootstrap = bootstrap
        self._make_process = make_process
        self._habits = habits
        self._sessions = sessions
        self._now = now
        self._next = 0
        self._has_given_up = False  # a batch: its numbers may be missing for good

    async def run(self) -> None:
        process, clock, host = self._make_process(self.name)
        task = process.spawn(self._write_on(clock, host))
        try:
            while not task.done() and not self.is_stopping:
                await asyncio.wait((task,), timeout=_NAP_SECONDS)
                if self._random.random() < _FREEZE_SHARE and not self.is_stopping:
                    process.pause()
                    await asyncio.sleep(self._random.uniform(0.1, _LONGEST_FREEZE_SECONDS))
                    process.resume()
            await asyncio.wait((task,))
            task.result()
        except asyncio.CancelledError:
            process.kill()
            raise

    async def write(self, batches: int) -> None:
        """So many batches, and no more."""
        _, clock, host = self._make_process(self.name)
        producer = self._open(clock, host)
        for _ in range(batches):
            await self._deliver(producer, 1)
        await producer.close()

    async def _write_on(self, clock: ProcessClock, host: MemoryHost) -> None:
        producer = self._open(clock, host)
        while not self.is_stopping:
            if not self.is_resting:
                await self._deliver(producer, self._random.randint(1, self._habits.most_in_flight))
            await clock.sleep(self._random.expovariate(5))
        await producer.close()  # not on the way out of a process that was killed

    def _open(self, clock: ProcessClock, host: MemoryHost) -> AsyncProducer:
        random = self._random
        codec: Codec = random.choice(self._habits.codecs)
        return AsyncProducer(
            self._bootstrap,
            network=host,
            clock=clock,
            random=Random(random.random()),  # noqa: S311 of the seed
            workers=InlineWorkers(),
            batch_size=random.choice((0, 30, 16_384)),
            linger_ms=random.choice((0, 0, 5)),
            compression_type=codec.name.lower(),
            delivery_timeout_ms=self._habits.delivery_timeout_ms or _FOREVER_MS,
            max_block_ms=_FOREVER_MS,
            metadata_max_age_ms=3_000,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
            **{"request_timeout_ms": 1_500, **self._guarantees()},
        )

    def _guarantees(self) -> dict[str, Any]:
        return {"max_in_flight_requests_per_connection": self._habits.most_in_flight}

    async def _deliver(self, producer: AsyncProducer, batches: int) -> None:
        sent: list[Sent] = []
        for _ in range(batches):
            sent += [await self._send(producer) for _ in range(self._random.randint(1, 3))]
            if self._random.random() < 0.5:
                await asyncio.sleep(0)
        await asyncio.wait([one.future for one in sent])
        self.progress += 1
        for one in sent:
            self._look_at(one)
        self._look_for_gap(producer)

    async def _send(self, producer: AsyncProducer) -> Sent:
        row = self._draw_row()
        self._next += 1
        topic, number = self._partition
        while True:
            try:
                future = await producer.send(topic, row[1], row[0], partition=number)
            except (KafkaError, ClientError):
                continue  # the topic is not known yet: nothing was sent
            return Sent(row, self._now(), self._history.power_losses, future)

    def _draw_row(self) -> Row:
        return None, f"{self.name}:{self._next}".encode()

    def _look_at(self, sent: Sent) -> None:
        error = sent.future.exception()
        if sent.power_losses != self._history.power_losses:
            self._has_given_up = True  # what was answered before is looked at only now
        elif isinstance(error, DeliveryTimeoutError):
            self._has_given_up = True
        elif error is not None:
            self._history.report("SEQ-1", f"{self.name} is told {error!r} for {sent.row[1]!r}")
        else:
            self._look_at_success(sent)

    def _look_at_success(self, sent: Sent) -> None:
        offset = sent.future.result().offset
        if offset >= 0:
            self._accept(offset, [sent.row])
        else:
            self._history.report(
                "SEQ-2", f"{sent.row[1]!r} was accepted for {self._partition} without an offset"
            )
        if not self._sessions.had_enough_in_sync(self._partition, sent.at):
            self._history.report(
                "ISR-1",
                f"{sent.row[1]!r} was accepted for {self._partition} with acks=all, and too few "
                f"were in sync since {sent.at:.3f}",
            )

    def _accept(self, offset: int, rows: Sequence[Row]) -> None:
        self._history.acknowledge(self._partition, offset, [value or b"" for _, value in rows])

    def _look_for_gap(self, producer: AsyncProducer) -> None:
        """A producer that never gave up begins a new epoch only when a record of it is gone."""
        identity = producer._core._machine.queue_of(self._partition).identity
        if identity is not None and identity.epoch and not self._has_given_up:
            self._has_given_up = True  # told once
            self._history.report(
                "REP-3",
                f"{self.name} had to begin epoch {identity.epoch} before number {self._next} in "
                f"{self._partition}: a batch before it is gone",
            )


class HastyProducer(SimulatedProducer):
    """Writes with acks=1, one request at a time.

    Its answers promise nothing, except that whoever gives them had a session (REP-4): so it listens
    to which broker it sends to, and which one answers.
    """

    def _guarantees(self) -> dict[str, Any]:
        return {
            "acks": ACKS_LEADER,
            "enable_idempotence": False,
            "max_in_flight_requests_per_connection": 1,
        }

    def _open(self, clock: ProcessClock, host: MemoryHost) -> AsyncProducer:
        producer = super()._open(clock, host)
        sending = producer._core._sending
        send, take_answers = sending.send, sending._on_answers
        sent_at: dict[int, float] = {}

        def watched_send(broker_id: int, batches: Sequence[Batch]) -> None:
            sent_at[broker_id] = self._now()
            send(broker_id, batches)

        def watched_answers(broker_id: int, answers: Sequence[Answered], pause: float) -> None:
            if any(answer.error is None for _, answer in answers):
                self._look_at_session(broker_id, sent_at[broker_id])
            take_answers(broker_id, answers, pause)

        sending.send = watched_send  # type: ignore[method-assign]
        sending._on_answers = watched_answers
        return producer

    def _look_at_session(self, broker_id: int, sent_at: float) -> None:
        if not self._sessions.had_session(broker_id, sent_at, self._now()):
            self._history.report(
                "REP-4",
                f"broker {broker_id} accepted records of {self.name} for {self._partition}, and "
                f"had no session since {sent_at:.3f}",
            )

    def _look_at_success(self, sent: Sent) -> None:
        """It may be lost again."""
