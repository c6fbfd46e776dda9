"""Clients of topics from which records may go: keyed ones, and ones that are trimmed. Shells."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from moldau.client.admin.client import AsyncAdmin
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.clock import Clock
from moldau.errors import ClientError, KafkaError
from moldau.model import TopicPartition
from moldau.testing.cleanup_history import CleanupHistory
from moldau.testing.simulated_clients import Client, SimulatedReader
from moldau.testing.simulated_producers import Row, SimulatedProducer

_KEYS: Final = 5
_TOMBSTONES: Final = 0.15  # of the records

FindStart = Callable[[TopicPartition], int | None]
"""Where the log of a partition begins at its leader; None when that is not known."""


class KeyedProducer(SimulatedProducer):
    """Writes records and tombstones of few keys."""

    cleanup: CleanupHistory  # set by whoever makes it

    def _draw_row(self) -> Row:
        key = b"key-%d" % self._random.randrange(_KEYS)
        if self._random.random() < _TOMBSTONES:
            return key, None
        return key, super()._draw_row()[1]

    def _accept(self, offset: int, rows: Sequence[Row]) -> None:
        super()._accept(offset, rows)
        keyed = [(key or b"", value) for key, value in rows]
        self.cleanup.acknowledge(self._partition, offset, keyed)


class KeyedReader(SimulatedReader):
    """Reads a compacted partition: what it sees may go, but is what was acknowledged."""

    cleanup: CleanupHistory  # set by whoever makes it

    def _take(self, record: ConsumerRecord) -> None:
        if record.key is not None:
            value = None if record.value is None else bytes(record.value)
            self.cleanup.see(self._partition, record.offset, bytes(record.key), value)


class TrimmedReader(SimulatedReader):
    """Reads a partition whose beginning goes away: then it goes on where the log begins."""

    find_start: FindStart  # set by whoever makes it

    def _miss(self, consumer: AsyncConsumer, error: Exception) -> None:
        start = self.find_start(self._partition)
        if start is not None and start <= self.position:
            super()._miss(consumer, error)
        else:
            consumer.seek_to_beginning(self._partition)


class Trimmer(Client):
    """Asks for DeleteRecords now and then, at most up to what was promised."""

    def __init__(
        self,
        name: str,
        admin: AsyncAdmin,
        cleanup: CleanupHistory,
        random: Random,
        *,
        partition: TopicPartition,
        clock: Clock,
    ) -> None:
        super().__init__(name, cleanup.history, random)
        self.progress = 1  # nobody waits for it
        self._admin = admin
        self._clock = clock
        self._cleanup = cleanup
        self._partition = partition

    async def run(self) -> None:
        while not self.is_stopping:
            if not self.is_resting:
                await self._trim()
            await self._clock.sleep(self._random.expovariate(0.7))

    async def _trim(self) -> None:
        before = self._random.randint(0, self._history.promised_end(self._partition))
        self._cleanup.ask_deletion(self._partition, before)
        with contextlib.suppress(KafkaError, ClientError):
            await self._admin.delete_records({self._partition: before}, timeout_ms=1000)
