"""A producer's line to one broker: requests leave in the order in which they were handed over.

Answers for connecting, encoding, sending and collecting the answers, and for how many requests are
unanswered. Every batch that is handed over comes back exactly once through `on_answers`. What that
means is `rules.batch_delivery`'s decision. A shell: one task sends; answers arrive by callback.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import Answer
from moldau.client.produce_exchange import Answered, Batch, ProduceExchange, same_answer
from moldau.client.rules.batch_delivery import PartitionAnswer
from moldau.config.client_options import ACKS_NONE
from moldau.errors import BrokerUnreachableError, ClientError, KafkaError, MoldauError
from moldau.wire.apis import PRODUCE
from moldau.workers import Workers

_CONFIRMED = PartitionAnswer()


class BrokerLink:
    """One broker. `send` may be called while `has_slot`."""

    def __init__(
        self,
        broker_id: int,
        client: ClusterClient,
        exchange: ProduceExchange,
        workers: Workers | None,
        *,
        most_in_flight: int,
        on_answers: Callable[[Sequence[Answered]], None],
    ) -> None:
        self._broker_id = broker_id
        self._client = client
        self._exchange = exchange
        self._workers = workers
        self._most_in_flight = most_in_flight
        self._on_answers = on_answers
        self._in_flight = 0  # requests handed over and not back yet
        self._pause_count = 0  # pauses the broker asked for that are not over (KIP-219)
        self._outbox: deque[Sequence[Batch]] = deque()
        self._has_work = asyncio.Event()

    @property
    def has_slot(self) -> bool:
        return self._in_flight < self._most_in_flight and not self._pause_count

    def send(self, batches: Sequence[Batch]) -> None:
        self._in_flight += 1
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
            self._settle([(batch, _CONFIRMED) for batch in batches])
            return
        arrived.add_done_callback(lambda future: self._on_arrival(future, version, batches))

    async def _post(self, batches: Sequence[Batch]) -> tuple[asyncio.Future[Answer] | None, int]:
        connection = await self._client.connect_to_broker(self._broker_id)
        version = self._exchange.choose_version(connection)
        if self._workers is not None and self._exchange.compresses:
            await self._workers.run(lambda: self._exchange.encode_batches(batches))
        else:
            self._exchange.encode_batches(batches)
        body = self._exchange.request_body(version, batches)
        if self._exchange.acks == ACKS_NONE:
            await connection.tell(PRODUCE, version, body)
            return None, version
        return await connection.post(PRODUCE, version, body), version

    def _return_all(self, error: KafkaError | ClientError) -> None:
        """The first request failed; those behind it never left, and must not overtake it."""
        first, *others = self._outbox
        self._outbox.clear()
        self._settle(same_answer(first, error))
        for batches in others:
            self._settle(same_answer(batches, BrokerUnreachableError(str(error))))

    def _on_arrival(
        self, arrived: asyncio.Future[Answer], version: int, batches: Sequence[Batch]
    ) -> None:
        if arrived.cancelled():
            self._settle(same_answer(batches, ClientError("the producer is closed")))
            return
        failure = arrived.exception()
        if failure is not None:
            known = failure if isinstance(failure, MoldauError) else ClientError(repr(failure))
            self._settle(same_answer(batches, known))
            return
        answers, throttle_time_ms = self._exchange.read(version, arrived.result(), batches)
        if throttle_time_ms > 0:
            self._pause(throttle_time_ms / 1000)
        self._settle(answers)

    def _pause(self, seconds: float) -> None:
        # Counted, not compared with the time: a timer that is early by a hair would find the pause
        # not over yet, and nobody would look again.
        self._pause_count += 1
        self._client.clock.call_later(seconds, self._on_pause_over)

    def _on_pause_over(self) -> None:
        self._pause_count -= 1
        self._on_answers(())

    def _settle(self, answers: Sequence[Answered]) -> None:
        self._in_flight -= 1
        self._on_answers(answers)
