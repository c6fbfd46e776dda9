"""Clients of topics from which records may go: keyed ones, and ones that are trimmed. Shells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, cast

from moldau.model import TopicPartition
from moldau.records.batch_header import walk_headers
from moldau.records.batch_reader import records_of
from moldau.testing.cleanup_history import CleanupHistory
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.simulated_clients import Consumer, WireClient
from moldau.testing.simulated_producers import Row, SimulatedProducer
from moldau.testing.simulated_wire import SimulatedWire, UnansweredError

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.response import DeleteRecordsResponse

_DELETE_RECORDS: Final = (21, 2)
_KEYS: Final = 5
_TOMBSTONES: Final = 0.15  # of the records

StartOf = Callable[[int, TopicPartition], int | None]
"""Where the log of a partition begins at a broker; None when that is not known."""


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


class KeyedConsumer(Consumer):
    """Reads a compacted partition: what it sees may go, but is what was acknowledged."""

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        cleanup: CleanupHistory,
        random: Random,
        *,
        partition: TopicPartition,
    ) -> None:
        super().__init__(name, wire, cleanup.history, random, partition=partition)
        self._cleanup = cleanup

    def _take(self, records: memoryview) -> None:
        for start, header in walk_headers(records):
            batch = records[start : start + header.size_bytes]
            if len(batch) < header.size_bytes:
                return
            for record in () if header.is_control else records_of(batch, header):
                if record.offset >= self.position and record.key is not None:
                    value = None if record.value is None else bytes(record.value)
                    self._cleanup.see(self._partition, record.offset, bytes(record.key), value)
            self.position = max(self.position, header.next_offset)
            self.progress += 1


class TrimmedConsumer(Consumer):
    """Reads a partition whose beginning goes away: then it goes on where the log begins."""

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        history: ClusterHistory,
        random: Random,
        *,
        partition: TopicPartition,
        start_of: StartOf,
    ) -> None:
        super().__init__(name, wire, history, random, partition=partition)
        self._start_of = start_of

    def _miss(self, leader: int, epoch: int) -> None:
        start = self._start_of(leader, self._partition)
        if start is None:
            return  # it is no leader any more
        if start <= self.position:
            super()._miss(leader, epoch)
        self.position = max(self.position, start)


class Trimmer(WireClient):
    """Asks for DeleteRecords now and then, at most up to what was promised."""

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        cleanup: CleanupHistory,
        random: Random,
        *,
        partition: TopicPartition,
    ) -> None:
        super().__init__(name, wire, cleanup.history, random)
        self.progress = 1  # nobody waits for it
        self._cleanup = cleanup
        self._partition = partition

    async def run(self) -> None:
        while not self.is_stopping:
            if not self.is_resting:
                await self._trim()
            await self._wire.clock.sleep(self._random.expovariate(0.7))

    async def _trim(self) -> None:
        before = self._random.randint(0, self._history.promised_end(self._partition))
        self._cleanup.ask_deletion(self._partition, before)
        row = {"partition_index": self._partition.partition, "offset": before}
        topics = [{"name": self._partition.topic, "partitions": [row]}]
        leader = await self._leader_of(self._partition)
        try:
            answer = await self._wire.call(
                leader, *_DELETE_RECORDS, {"topics": topics, "timeout": 1000}
            )
        except UnansweredError:
            await self._refresh(self._partition.topic)
            return
        told = cast("DeleteRecordsResponse", answer).topics[0].partitions[0]
        if told.error_code.value:
            await self._refresh(self._partition.topic)
