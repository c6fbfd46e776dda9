"""Reads and prints for `moldau consume` until one of its reasons to stop comes true.

Alone, from where the command says; or as one member of a group, with commits: what is printed is
committed every few seconds, when partitions move to another member, and at the end, however the
end comes. Records that could not be printed are left for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import stat
import sys
import threading
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

from moldau.cli.offset_target import go_to_start
from moldau.cli.options import security_options
from moldau.cli.output import Progress, note
from moldau.cli.record_format import NULL, Formatter, RecordDecoding, show_json
from moldau.cli.session import CLIENT_ID, command_settings
from moldau.client.admin.client import AsyncAdmin
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord, RawBatch
from moldau.client.queue.jobs import AsyncJob
from moldau.client.queue.queue import AsyncQueue
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.offsets import AtBeginning, BeforeEnd, Start
from moldau.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.records.codec import join_values
from moldau.records.record_batch import payload_of

_POLL_SECONDS = 1.0
_POLL_RECORDS = 5000
_POLL_BYTES = 1 << 20
_ALL_RECORDS = 1 << 62

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What to print of which topics, and as a member of which group, if of any."""

    topics: tuple[str, ...]
    formatter: Formatter
    start: Start  # of a group: where it has not read before
    group_id: str | None = None
    group_protocol: str = "classic"
    isolation_level: str = "read_committed"
    partitions: tuple[int, ...] = ()  # of the only topic; none: all of them
    pattern: str | None = None  # in place of topics: all whose whole name matches
    max_records: int | None = None
    idle_seconds: float | None = None
    until_end: bool = False
    formats_elsewhere: bool = False  # the formatter asks others: not on the loop
    prints_values: bool = False  # and nothing else: then no record is looked at in Python


async def consume_records(bootstrap: str, consumption: Consumption) -> None:
    """Print until it is time to stop; a member of a group then commits and leaves."""
    async with _make_consumer(bootstrap, consumption) as consumer:
        topics = consumption.topics
        if consumption.pattern is not None:
            topics = await _find_topics(bootstrap, consumption.pattern)
        partitions = [
            partition
            for topic in topics
            for partition in _choose_partitions(await consumer.partitions_for(topic), consumption)
        ]
        ends = await _find_ends(consumer, partitions) if consumption.until_end else None
        if consumption.group_id is None:
            await go_to_start(consumer, partitions, consumption.start)
        elif consumption.pattern is not None:
            consumer.subscribe(pattern=consumption.pattern)  # also topics that are yet to come
        else:
            consumer.subscribe(topics)
        if ends is None and sys.stderr.isatty():
            _say_what_is_read(consumption, topics)
        # A group's offsets are those of records, one by one.
        is_plain = consumption.prints_values and consumption.group_id is None
        printing = ValuePrinting if is_plain else Printing
        try:
            await printing(consumer, consumption, ends).run()
        except OffsetOutOfRangeError as error:
            raise await _with_ranges(consumer, error, partitions) from error


def _make_consumer(bootstrap: str, consumption: Consumption) -> AsyncConsumer:
    reset = "earliest" if isinstance(consumption.start, AtBeginning) else "latest"
    return AsyncConsumer(
        bootstrap,
        group=consumption.group_id,
        commit=None if consumption.group_id is None else "after",
        group_protocol=consumption.group_protocol,
        client_id=CLIENT_ID,
        isolation_level=consumption.isolation_level,
        allow_auto_create_topics=False,
        # Without a group the command knows where to read, and an offset that is gone is an error.
        auto_offset_reset="error" if consumption.group_id is None else reset,
        **security_options(),  # type: ignore[arg-type]  # any option's value
    )


def _choose_partitions(topic: TopicMetadata, consumption: Consumption) -> Sequence[TopicPartition]:
    count = len(topic.partitions)
    for index in consumption.partitions:
        if index >= count:
            raise UnknownTopicError(
                f"topic {topic.name!r} has no partition {index}; it has {count}, counted from 0"
            )
    chosen = dict.fromkeys(consumption.partitions) or range(count)
    return [TopicPartition(topic.name, index) for index in chosen]


async def _find_ends(consumer: AsyncConsumer, partitions: Collection[TopicPartition]) -> Offsets:
    """The ends of all partitions that have records; the others are at their end already."""
    earliest = await consumer.beginning_offsets(partitions)
    latest = await consumer.end_offsets(partitions)
    return {one: latest[one] for one in partitions if latest[one] > earliest[one]}


async def _find_topics(bootstrap: str, pattern: str) -> tuple[str, ...]:
    async with AsyncAdmin(bootstrap, command_settings()) as admin:
        there = await admin.list_topics()
    found = tuple(
        name
        for name, topic in sorted(there.items())
        if re.fullmatch(pattern, name) and not topic.is_internal
    )
    if not found:
        raise UnknownTopicError(f"there is no topic whose name matches {pattern!r}")
    return found


def _say_what_is_read(consumption: Consumption, topics: Sequence[str]) -> None:
    topic = ", ".join(topics)
    if consumption.group_id is not None:
        note(f"reading {topic} as a member of {consumption.group_id}")
    elif consumption.start == BeforeEnd(0):
        note(f"waiting for new records in {topic}; --from-beginning shows the old ones")


async def _with_ranges(
    consumer: AsyncConsumer, error: OffsetOutOfRangeError, partitions: Sequence[TopicPartition]
) -> OffsetOutOfRangeError:
    """The error, and which offsets there are instead."""
    earliest = await consumer.beginning_offsets(partitions)
    latest = await consumer.end_offsets(partitions)
    ranges = ", ".join(f"{one} has {earliest[one]} to {latest[one]}" for one in partitions)
    return OffsetOutOfRangeError(f"{error} ({ranges})")


class Printing:
    """Prints what a consumer gives; `ends` is where to stop, if anywhere."""

    def __init__(
        self, consumer: AsyncConsumer, consumption: Consumption, ends: Offsets | None
    ) -> None:
        self._consumer = consumer
        self._consumption = consumption
        self._ends = ends
        self._left = consumption.max_records
        self._output = RecordOutput()
        self._count = self._size_bytes = 0
        has_end = consumption.until_end or consumption.max_records is not None
        # Where the records are seen, they are progress enough.
        self._progress = None if sys.stdout.isatty() else Progress(has_end=has_end)

    async def run(self) -> None:
        try:
            async with self._output.while_it_is_read():
                await self._print_all()
        finally:
            if self._progress is not None:
                self._progress.clear()

    async def _print_all(self) -> None:
        idle_seconds = self._consumption.idle_seconds
        timeout_seconds = _POLL_SECONDS if idle_seconds is None else idle_seconds
        while self._left != 0 and not await self._is_at_end():
            limit = min(self._left or _POLL_RECORDS, _POLL_RECORDS)
            records = await self._consumer.poll(timeout_seconds, limit)
            if not records and idle_seconds is not None:
                return
            await self._print(await self._cut(records))

    async def _is_at_end(self) -> bool:
        """Whether all partitions have been read to their ends.

        A member of a group without partitions looks at the group: others may be at work for it.
        """
        if self._ends is None:
            return False
        assigned = self._consumer.assignment
        if assigned:
            return all(
                [await self._consumer.position(one) >= self._end_of(one) for one in assigned]
            )
        committed = await self._consumer.committed(self._ends)
        return all(
            found is not None and found.offset >= self._ends[one]
            for one, found in committed.items()
        )

    def _end_of(self, partition: TopicPartition) -> int:
        return (self._ends or {}).get(partition, 0)

    async def _cut(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """What is before the ends. What is behind stays for whoever reads the topic next."""
        if self._ends is None:
            return records
        passed = {
            one: self._end_of(one)
            for one in self._consumer.assignment - self._consumer.paused
            if await self._consumer.position(one) > self._end_of(one)
        }
        if not passed:
            return records
        for partition, end_offset in passed.items():
            # None where only markers came, or where all records had been deleted: the log begins
            # behind the end then, and the position is right.
            behind = [
                record.offset
                for record in records
                if record[:2] == partition and record.offset >= end_offset
            ]
            if behind:
                self._consumer.seek(partition, min(behind))
            self._consumer.pause(partition)
        return [one for one in records if one.offset < passed.get(one[:2], one.offset + 1)]  # type: ignore[call-overload]

    async def _print(self, records: Sequence[ConsumerRecord]) -> None:
        if records:
            await self._write(await self._format(records), len(records))

    async def _format(self, records: Sequence[ConsumerRecord]) -> bytes:
        formatter = self._consumption.formatter
        if self._consumption.formats_elsewhere:
            return await asyncio.to_thread(formatter, records)
        return formatter(records)

    async def _write(self, text: bytes, record_count: int) -> None:
        await self._output.write(text)
        self._count += record_count
        self._size_bytes += len(text)
        if self._progress is not None:
            self._progress.show(self._count, self._size_bytes)
        if self._left is not None:
            self._left -= record_count


class ValuePrinting(Printing):
    """Prints values by the batch, as lines, without a group: for topics of millions of records."""

    async def _print_all(self) -> None:
        idle_seconds = self._consumption.idle_seconds
        timeout_seconds = _POLL_SECONDS if idle_seconds is None else idle_seconds
        while self._left != 0 and not await self._is_at_end():
            batches = await self._consumer.poll_batches(timeout_seconds, _POLL_BYTES)
            if not batches and idle_seconds is not None:
                return
            await self._write_values(batches)
            await self._pause_at_ends()

    async def _write_values(self, batches: Sequence[RawBatch]) -> None:
        left = _ALL_RECORDS if self._left is None else self._left
        pieces: list[bytearray] = []
        record_count = 0
        for batch in batches:
            end_offset = batch.next_offset
            if self._ends is not None:
                end_offset = min(end_offset, self._end_of(batch.partition))
            lines, count = join_values(
                payload_of(batch.data, batch.header),
                batch.header.record_count,
                batch.header.base_offset,
                batch.from_offset,
                end_offset,
                left - record_count,
                NULL,
            )
            pieces.append(lines)
            record_count += count
        if record_count:
            await self._write(b"".join(pieces), record_count)

    async def _pause_at_ends(self) -> None:
        """What is behind the ends need not be fetched."""
        if self._ends is None:
            return
        for one in self._consumer.assignment - self._consumer.paused:
            if await self._consumer.position(one) >= self._end_of(one):
                self._consumer.pause(one)


# Takes and prints for `moldau consume --queue` until one of its reasons to stop comes true.
#
# A record is accepted when it is printed, and the command ends when the broker knows that. What was
# taken and could not be printed is released, and so is everything with `--release`: at the end, or
# it would come again at once.


_TAKE_RECORDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConsumption:
    """What to print of which share group's records."""

    topic: str
    group_id: str
    formatter: Formatter
    as_json: bool  # with the delivery count, which other formats have no place for
    max_records: int | None = None
    idle_seconds: float | None = None
    releases: bool = False
    decoding: RecordDecoding | None = None  # then it is the formatter; asks others: not on the loop


async def consume_queue(bootstrap: str, consumption: QueueConsumption) -> None:
    """Print until it is time to stop; then tell the broker all, and leave the group."""
    async with AsyncAdmin(bootstrap, command_settings()) as admin:
        found = (await admin.describe_topics([consumption.topic]))[consumption.topic]
        if isinstance(found, KafkaError):
            raise found
    async with AsyncQueue(
        bootstrap,
        group=consumption.group_id,
        topic=consumption.topic,
        client_id=CLIENT_ID,
        max_poll_records=min(consumption.max_records or _TAKE_RECORDS, _TAKE_RECORDS),
        **security_options(),  # type: ignore[arg-type]  # any option's value
    ) as queue:
        if sys.stderr.isatty():
            note(f"taking records of {consumption.topic} for share group {consumption.group_id}")
        await _Taking(queue, consumption).run()


class _Taking:
    def __init__(self, queue: AsyncQueue, consumption: QueueConsumption) -> None:
        self._queue = queue
        self._consumption = consumption
        self._output = RecordOutput()
        self._count = self._size_bytes = 0
        has_end = consumption.max_records is not None
        self._progress = None if sys.stdout.isatty() else Progress(has_end=has_end)

    async def run(self) -> None:
        try:
            async with self._output.while_it_is_read():
                await self._take_all()
        finally:
            if self._progress is not None:
                self._progress.clear()

    async def _take_all(self) -> None:
        """With `--release` jobs are left to the end of the queue, which releases them."""
        consumption = self._consumption
        while consumption.max_records is None or self._count < consumption.max_records:
            limit = _TAKE_RECORDS
            if consumption.max_records is not None:
                limit = min(limit, consumption.max_records - self._count)
            jobs = await self._queue.take_batch(limit, consumption.idle_seconds)
            if not jobs:
                self._explain_nothing()
                return
            jobs.keep()  # whoever reads what is printed may take their time
            await self._print(jobs)
            if not consumption.releases:
                for job in jobs:
                    await job.accept()

    def _explain_nothing(self) -> None:
        """A new share group begins at the end of its topic, which looks like an empty topic."""
        if self._count == 0 and self._consumption.idle_seconds is not None:
            group = self._consumption.group_id
            note(
                f"nothing came for share group {group} within {self._consumption.idle_seconds:g} s "
                "(joining counts, too); a new group takes what is there already after `moldau "
                f"configs alter --group {group} --set share.auto.offset.reset=earliest`"
            )

    async def _print(self, jobs: Sequence[AsyncJob]) -> None:
        if self._consumption.decoding is None:
            text = self._format(jobs)
        else:
            text = await asyncio.to_thread(self._format, jobs)
        await self._output.write(text)
        self._count += len(jobs)
        self._size_bytes += len(text)
        if self._progress is not None:
            self._progress.show(self._count, self._size_bytes)

    def _format(self, jobs: Sequence[AsyncJob]) -> bytes:
        if not self._consumption.as_json:
            return self._consumption.formatter([job.record for job in jobs])
        decoding = self._consumption.decoding
        show = show_json if decoding is None else decoding.show_json
        return b"".join([show(job.record, delivery_count=job.delivery_count) for job in jobs])


_LAST_SECONDS = 1.0
"""How long a command that is to end waits for whoever reads what it prints."""


class RecordOutput:
    """stdout. A pipe or a terminal may keep a writer waiting, so that a thread writes to those: the
    consumer goes on meanwhile, as a member of its group, and hears of Ctrl-C.

    The thread is a daemon, and uses the descriptor alone: a command can end while it waits.
    """

    def __init__(self) -> None:
        self._descriptor = _find_descriptor_that_waits()
        self._pieces: SimpleQueue[tuple[bytes, Future[None]]] = SimpleQueue()
        if self._descriptor is not None:
            writer = threading.Thread(
                target=self._write_pieces, args=(self._descriptor,), name="stdout", daemon=True
            )
            writer.start()

    async def write(self, data: bytes) -> None:
        """Over when all is written."""
        if self._descriptor is None:
            out = sys.stdout.buffer
            out.write(data)
            out.flush()
        else:
            written: Future[None] = Future()
            self._pieces.put((data, written))
            try:
                await asyncio.wrap_future(written)
            except asyncio.CancelledError:
                await self._finish_soon(written)

    async def _finish_soon(self, written: Future[None]) -> None:
        """The command is to end. What is printed by now, or in a moment, counts as printed: the
        next one to wait is cancelled then."""
        late = asyncio.wrap_future(written)
        late.add_done_callback(_ignore_failure)
        await asyncio.wait([late], timeout=_LAST_SECONDS)
        if not late.done() or late.cancelled() or late.exception() is not None:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
            task.cancel()

    @contextlib.asynccontextmanager
    async def while_it_is_read(self) -> AsyncIterator[None]:
        """What is done within ends with BrokenPipeError when the reader of a pipe has gone, though
        there is nothing to write that would tell: `head -1` has enough after the first record."""
        task = asyncio.current_task()
        if self._descriptor is None or os.isatty(self._descriptor) or task is None:
            yield
            return
        loop = asyncio.get_running_loop()
        is_over = has_gone = False

        def end() -> None:
            nonlocal has_gone
            if not is_over:
                has_gone = True
                task.cancel()

        def watch(descriptor: int) -> None:
            poll = select.poll()
            poll.register(descriptor, 0)  # errors are told in any case
            if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll()):
                with contextlib.suppress(RuntimeError):  # the command has ended meanwhile
                    loop.call_soon_threadsafe(end)

        threading.Thread(target=watch, args=(self._descriptor,), daemon=True).start()
        try:
            yield
            if has_gone:
                await asyncio.sleep(0)  # what was cancelled hears of it here, at the latest
        except asyncio.CancelledError:
            if has_gone and not task.uncancel():
                raise BrokenPipeError from None
            raise
        finally:
            is_over = True

    def _write_pieces(self, descriptor: int) -> None:
        while True:
            data, written = self._pieces.get()
            if not written.set_running_or_notify_cancel():
                continue
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(descriptor, left) :]
            except OSError as error:  # the reader has gone
                written.set_exception(error)
            else:
                written.set_result(None)


def _ignore_failure(written: asyncio.Future[None]) -> None:
    """Nobody waits for it any more."""
    if not written.cancelled():
        written.exception()


def _find_descriptor_that_waits() -> int | None:
    """That of stdout, unless it is a file, or nothing of the system's."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return None
    mode = os.fstat(descriptor).st_mode
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    return descriptor if waits else None
