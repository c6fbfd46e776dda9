"""An idempotent producer of a simulated cluster that has several batches under way at once.

Up to five, on one connection, as every producer of Kafka's does by default. A batch that is not
confirmed is sent again, in order, with all behind it that are not confirmed either; none gets
another sequence number. So the broker sees batches again, out of order and behind gaps, and has to
keep each once and in its place (SEQ-1, SEQ-2).

The first batch is sent alone. A broker takes whatever sequence number a producer begins with that
it does not know, as Kafka does; so one that is just about to lead could refuse the first batch and
take the second, and then nobody could place the first any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from moldau.errors import DuplicateSequenceError
from moldau.model import TopicPartition
from moldau.records.batch_builder import build_batch
from moldau.records.compression import Codec
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.simulated_clients import LOST_ITS_PLACE, PRODUCE, Producer, SessionBook
from moldau.testing.simulated_wire import SimulatedWire, UnansweredError
from moldau.wire.produce_client import encode_produce_request, parse_produce_response


class _Batch(NamedTuple):
    values: tuple[bytes, ...]
    data: bytearray


class PipelinedProducer(Producer):
    """Writes with acks=all."""

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        history: ClusterHistory,
        random: Random,
        *,
        partition: TopicPartition,
        acks: int,
        sessions: SessionBook,
        now: Callable[[], float],
        codecs: Sequence[Codec] = (Codec.NONE,),
        most_in_flight: int = 5,
    ) -> None:
        super().__init__(
            name,
            wire,
            history,
            random,
            partition=partition,
            acks=acks,
            sessions=sessions,
            now=now,
            codecs=codecs,
        )
        self._most_in_flight = most_in_flight
        self._is_known = False  # to the partition: a batch of it is in the log

    async def run(self) -> None:
        await self._ask_identity()
        while not self.is_stopping:
            if not self.is_resting:
                await self._deliver_all(self._make_batches())
            await self._wire.clock.sleep(self._random.expovariate(4))

    def _make_batches(self) -> list[_Batch]:
        batches: list[_Batch] = []
        now_ms = self._wire.clock.now_ms()
        in_flight = self._random.randint(1, self._most_in_flight)
        for _ in range(in_flight if self._is_known else 1):
            count = self._random.randint(1, 3)
            values = tuple(f"{self.name}:{self._next + number}".encode() for number in range(count))
            data = build_batch(
                [(now_ms, None, value, ()) for value in values],
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=self._next,
                codec=self._random.choice(self._codecs),
            )
            batches.append(_Batch(values, data))
            self._next += count
        return batches

    async def _deliver_all(self, batches: list[_Batch]) -> None:
        while batches:
            confirmed = await self._send_all(batches)
            batches = [each for each in batches if each not in confirmed]
            self.progress += len(confirmed)
            self._is_known |= bool(confirmed)
            if batches:
                await self._refresh(self._partition.topic)

    async def _send_all(self, batches: Sequence[_Batch]) -> list[_Batch]:
        """Send all without waiting for answers; returns those that are in the log."""
        leader = await self._leader_of(self._partition)
        bodies = [
            encode_produce_request(
                PRODUCE[1],
                self._acks,
                1500,
                [(self._partition.topic, [(self._partition.partition, each.data)])],
            )
            for each in batches
        ]
        sent_at = self._now()
        confirmed: list[_Batch] = []
        answers = self._wire.exchange_all(leader, *PRODUCE, bodies)
        try:
            async for number, exchange in answers:
                answer = parse_produce_response(PRODUCE[1], *exchange).answers[0]
                if answer.error_code == 0:
                    self._accept(leader, answer.base_offset, batches[number].values, sent_at)
                    confirmed.append(batches[number])
                elif answer.error_code == DuplicateSequenceError.code.value:
                    confirmed.append(batches[number])
                elif number == 0 and answer.error_code in LOST_ITS_PLACE:
                    self._report_lost(answer.error_code, batches[number].values)
        except UnansweredError:
            pass
        finally:
            await answers.aclose()
        return confirmed
