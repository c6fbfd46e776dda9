"""Collects records into batches for `moldau produce` and keeps account of what was taken.

The command's own thread reads input and calls in here; sending happens on a loop thread. How much
may be under way at once is bounded, so input is read no faster than the broker takes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from moldau.client.batch_sender import BatchSender
from moldau.client.loop_thread import LoopThread
from moldau.client.rules.partitioners import Partitioner
from moldau.model import TopicPartition
from moldau.records.record import NewRecord

RECORD_OVERHEAD_BYTES = 16
"""Lengths, timestamp and offset deltas around a small record; an estimate to fill batches by."""

WINDOW_BYTES = 32 * 1024 * 1024


class _UnderWay(NamedTuple):
    partition: int
    record_count: int
    size_bytes: int
    taken: Future[int]


class ProduceSession:
    """Sends records to one topic. Used by one thread."""

    def __init__(
        self,
        loop: LoopThread,
        sender: BatchSender,
        topic: str,
        *,
        partition_count: int,
        available: Sequence[int],
        partitioner: Partitioner,
        fixed_partition: int | None = None,
        batch_bytes: int,
    ) -> None:
        self.counts: Counter[int] = Counter()  # records taken by the broker, by partition
        self.taken_bytes = 0
        self._loop = loop
        self._sender = sender
        self._topic = topic
        self._partition_count = partition_count
        self._available = available
        self._partitioner = partitioner
        self._fixed_partition = fixed_partition
        self._batch_bytes = batch_bytes
        self._open: defaultdict[int, list[NewRecord]] = defaultdict(list)
        self._open_bytes: Counter[int] = Counter()
        self._under_way: deque[_UnderWay] = deque()
        self._under_way_bytes = 0

    @property
    def record_count(self) -> int:
        return self.counts.total()

    def add(self, record: NewRecord, given_partition: int | None = None) -> None:
        """Take one record; its batch is sent when it is full. Raises what earlier batches met."""
        partition = self._choose(record.key, given_partition)
        size = _size_of(record)
        if self._open_bytes[partition] and self._open_bytes[partition] + size > self._batch_bytes:
            self._send(partition)
            self._partitioner.on_batch_full()
            partition = self._choose(record.key, given_partition)
        self._open[partition].append(record)
        self._open_bytes[partition] += size

    def flush(self) -> None:
        """Send what is collected, without waiting for it to be taken."""
        for partition in [one for one, records in self._open.items() if records]:
            self._send(partition)
        self._partitioner.on_batch_full()
        self._reap(wait=False)

    def finish(self) -> None:
        """Send what is collected and wait until all is taken."""
        self.flush()
        while self._under_way:
            self._reap(wait=True)

    def _choose(self, key: bytes | None, given: int | None) -> int:
        if self._fixed_partition is not None:
            return self._fixed_partition
        if given is not None:
            return given
        return self._partitioner.choose(key, self._partition_count, self._available)

    def _send(self, partition: int) -> None:
        records = self._open.pop(partition)
        size = self._open_bytes.pop(partition)
        while self._under_way and self._under_way_bytes + size > WINDOW_BYTES:
            self._reap(wait=True)
        work = self._sender.send(TopicPartition(self._topic, partition), records)
        self._under_way.append(_UnderWay(partition, len(records), size, self._loop.submit(work)))
        self._under_way_bytes += size

    def _reap(self, *, wait: bool) -> None:
        """Account for batches that were taken; `wait` for the oldest if it was not yet."""
        while self._under_way and (wait or self._under_way[0].taken.done()):
            oldest = self._under_way.popleft()
            self._under_way_bytes -= oldest.size_bytes
            oldest.taken.result()
            self.counts[oldest.partition] += oldest.record_count
            self.taken_bytes += oldest.size_bytes
            wait = False


def _size_of(record: NewRecord) -> int:
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size
