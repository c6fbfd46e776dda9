"""Fetches ranges of partitions to their ends, wherever the leaders are and move to. A shell.

What is deleted before it could be read is passed over; what compaction has left no trace of, too.
A reader fetches several partitions at once, and ahead of its caller, but not by more than so many
bytes. Unlike a consumer it knows where it ends, and has no positions that anybody could commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from moldau.client.admin.partitions import LogAdmin
from moldau.client.cluster import ClusterClient
from moldau.client.connections import BrokerConnection
from moldau.client.consumer.rules.fetch_buffer import (
    FetchedBatch,
    RawBatch,
    require_crc,
    split_batches,
)
from moldau.client.rules.broker_errors import error_for
from moldau.client.rules.offsets import OffsetRange, OffsetSpec
from moldau.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, UnknownTopicIdError
from moldau.model import TopicPartition
from moldau.wire.apis import FETCH
from moldau.wire.fetch_exchange import (
    FINAL_EPOCH,
    AnsweredPartition,
    FetchAnswer,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest, FetchTopic

_MIB: Final = 1024 * 1024
_LAST_BY_NAME: Final = 12  # from version 13 on topics have ids in place of names (KIP-516)
_NO_ID: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSettings:
    """How to ask."""

    fetch_bytes: int = 4 * _MIB  # enough for an answer to be worth its request
    max_wait_ms: int = 500
    read_committed: bool = False
    skip_deleted: bool = True  # otherwise a position that is gone raises OffsetOutOfRangeError
    stall_seconds: float | None = None  # how long nothing may follow; None: as long as a retry may
    topic_id: UUID | None = None  # another topic of the same name raises UnknownTopicIdError


class Arrived(NamedTuple):
    """Batches of one answer, and the bytes of it that they keep in memory."""

    batches: list[RawBatch]
    size_bytes: int


async def fetch_range(
    client: ClusterClient,
    partition: TopicPartition,
    wanted: OffsetRange,
    settings: RangeSettings,
) -> AsyncGenerator[Arrived, None]:
    """The batches of the range, answer by answer; raises what does not pass by itself."""
    position, end_offset = wanted
    last_progress = client.clock.monotonic()
    stall_seconds = settings.stall_seconds
    if stall_seconds is None:
        stall_seconds = client.settings.timeout_seconds
    while position < end_offset:
        try:
            answer = await fetch_answer(client, partition, position, settings)
        except OffsetOutOfRangeError as error:
            if not settings.skip_deleted:
                raise
            position = await _skip_deleted(client, partition, position, error)
            continue
        aborted = answer.aborted_transactions if settings.read_committed else None
        found = split_batches(answer.records, position, aborted)
        batches = _choose(found.batches, partition, OffsetRange(position, end_offset))
        if batches:
            yield Arrived(batches, len(answer.records))
        if found.next_offset > position:
            position, last_progress = found.next_offset, client.clock.monotonic()
        elif answer.high_watermark >= end_offset:
            return  # compaction has removed the rest
        elif client.clock.monotonic() - last_progress >= stall_seconds:
            raise OffsetOutOfRangeError(
                f"{partition} is to be read to offset {end_offset}, but nothing follows {position}"
            )
        else:  # a new leader that has yet to learn how far it may tell, or one that throttles us
            await client.clock.sleep(client.settings.backoff.max_seconds)


def _choose(
    found: Sequence[FetchedBatch], partition: TopicPartition, wanted: OffsetRange
) -> list[RawBatch]:
    """The batches of an answer that reach into the range, their CRCs checked."""
    start_offset, end_offset = wanted
    batches: list[RawBatch] = []
    for batch in found:
        data, header = batch
        if header.base_offset >= end_offset:
            break
        require_crc(batch, partition)
        next_offset = min(header.next_offset, end_offset)
        batches.append(RawBatch(partition, data, header, start_offset, next_offset))
    return batches


async def fetch_answer(
    client: ClusterClient, partition: TopicPartition, position: int, settings: RangeSettings
) -> AnsweredPartition:
    """One answer, from whoever leads the partition by then; raises the partition's error."""

    async def attempt() -> AnsweredPartition:
        connection = await client.connect_to_leader(partition)
        metadata = client.metadata.current
        topic_id = metadata.require_topic(partition.topic).topic_id
        if topic_id is not None and settings.topic_id not in (None, topic_id):
            raise UnknownTopicIdError(f"topic {partition.topic!r} was deleted and recreated")
        leader_epoch = metadata.require_partition(partition).leader_epoch
        row = FetchPartition(
            partition.partition, leader_epoch, position, _NO_ID, _NO_ID, settings.fetch_bytes
        )
        topic = FetchTopic(partition.topic, topic_id, [row])
        return _require_row(partition, await _exchange(connection, topic, settings))

    return await client.retry(attempt, refresh=(partition.topic,), wait_for_cluster=True)


async def _exchange(
    connection: BrokerConnection, topic: FetchTopic, settings: RangeSettings
) -> FetchAnswer:
    version = connection.choose_version(
        FETCH, at_most=_LAST_BY_NAME if topic.topic_id is None else None
    )
    request = FetchRequest(
        replica_id=_NO_ID,
        replica_epoch=_NO_ID,
        max_wait_ms=settings.max_wait_ms,
        min_bytes=1,
        max_bytes=settings.fetch_bytes,
        isolation_level=int(settings.read_committed),
        session_id=0,
        session_epoch=FINAL_EPOCH,
        topics=[topic],
        forgotten_topics=[],
        rack_id="",
        cluster_id=None,
    )
    body = encode_fetch_request(version, request)
    extra_seconds = settings.max_wait_ms / 1000
    raw = await connection.exchange(FETCH, version, (body,), extra_seconds=extra_seconds)
    return parse_fetch_answer(version, raw.frame, raw.position)


def _require_row(partition: TopicPartition, answer: FetchAnswer) -> AnsweredPartition:
    rows = [row for topic in answer.topics for row in topic.partitions]
    code = answer.error_code or (rows[0].error_code if rows else 0)
    if code:
        raise error_for(_to_error_code(code), None, str(partition))
    # A broker that slows its clients down answers without the partition.
    return rows[0] if rows else _silence(partition)


def _silence(partition: TopicPartition) -> AnsweredPartition:
    return AnsweredPartition(partition.partition, 0, -1, -1, -1, (), -1, memoryview(b""))


def _to_error_code(number: int) -> ErrorCode:
    """Newer brokers may have codes that are not known here."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error


async def _skip_deleted(
    client: ClusterClient, partition: TopicPartition, position: int, error: OffsetOutOfRangeError
) -> int:
    """Where the log begins now, if that is why the position is gone."""
    answers = await LogAdmin(client).list_offsets({partition: OffsetSpec.EARLIEST})
    answer = answers[partition]
    if isinstance(answer, KafkaError):
        raise answer
    if answer.offset <= position:
        raise error
    return answer.offset


# Several ranges at once


BUFFERED_BYTES = 16 * 1024 * 1024
"""How far the workers run ahead: when so much waits to be taken, they wait, too."""
_WORKERS = 4


class RangeReader:
    """Use `take` until it gives nothing, then `close`."""

    def __init__(
        self,
        client: ClusterClient,
        ranges: Mapping[TopicPartition, OffsetRange],
        settings: RangeSettings | None = None,
        *,
        buffered_bytes: int = BUFFERED_BYTES,
    ) -> None:
        self._client = client
        self._settings = settings or RangeSettings()
        self._buffered_limit = buffered_bytes
        self._waiting = deque(
            (one, wanted) for one, wanted in ranges.items() if not wanted.is_empty
        )
        self._workers: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None  # of the first worker that failed
        self._arrived: deque[Arrived] = deque()
        self._arrived_bytes = 0
        self._news = asyncio.Event()  # something arrived, or a worker ended
        self._room = asyncio.Event()  # something was taken

    async def take_batches(self) -> Sequence[RawBatch]:
        """The next batches of some partition, each partition's in order; none when all is read.

        Raises what a worker failed with, after what arrived before that.
        """
        while True:
            self._start_workers()
            if self._arrived:
                return self._take_first()
            if self._failure is not None:
                raise self._failure
            if not self._workers:
                return ()
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        self._waiting.clear()
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _take_first(self) -> Sequence[RawBatch]:
        first = self._arrived.popleft()
        self._arrived_bytes -= first.size_bytes
        self._room.set()
        return first.batches

    def _start_workers(self) -> None:
        while self._waiting and len(self._workers) < _WORKERS:
            partition, wanted = self._waiting.popleft()
            work = self._read(partition, wanted)
            worker = asyncio.get_running_loop().create_task(work, name=f"read {partition}")
            worker.add_done_callback(self._on_end)
            self._workers.add(worker)

    def _on_end(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._news.set()
        if not worker.cancelled() and worker.exception() is not None:
            self._failure = self._failure or worker.exception()
            self._waiting.clear()

    async def _read(self, partition: TopicPartition, wanted: OffsetRange) -> None:
        async with aclosing(
            fetch_range(self._client, partition, wanted, self._settings)
        ) as answers:
            async for arrived in answers:
                self._arrived.append(arrived)
                self._arrived_bytes += arrived.size_bytes
                self._news.set()
                while self._arrived_bytes >= self._buffered_limit:
                    self._room.clear()
                    await self._room.wait()
