"""Reads records for people: a page, a search, a live tail; and sends one. A shell."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from moldau.client.admin_values import OffsetSpec
from moldau.client.producer_values import RecordMetadata
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.read_bounds import OffsetRange
from moldau.client.simple_consumer import AsyncSimpleConsumer, FetchedRecords
from moldau.console.data.cluster import TIMEOUT_MS, Cluster
from moldau.console.data.topics import find_offsets, require_topic
from moldau.console.rules.browsing import (
    Cursor,
    Ranges,
    RecordSearch,
    Search,
    count_offsets,
    has_more,
    merge,
    next_cursor,
    plan_page,
    plan_search,
)
from moldau.console.rules.record_view import KeptRecord
from moldau.errors import KafkaError
from moldau.model import TopicPartition

# Reads records for people: a page, a search, a live tail. Each has its limits. A shell.
#
# Pages and searches fetch from leaders with the simple consumer, which knows where it is after
# every answer; a tail is a consumer without a group. Nothing is committed anywhere.


PAGE_SECONDS: Final = 10.0
SEARCH_RECORDS: Final = 1_000_000
"""So many records a search looks at before it asks whether to go on."""
SEARCH_HITS: Final = 100
TAIL_RECORDS: Final = 100

_PAGE_FETCH_BYTES: Final = 64 * 1024
_SEARCH_FETCH_BYTES: Final = 1024 * 1024
_EMPTY_PAGES: Final = 5
"""Compaction leaves stretches without records: so many are passed over for one page."""
_TAIL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """Records of a page, and the cursor behind it."""

    records: Sequence[KeptRecord]
    cursor: Cursor
    has_more: bool


@dataclass(slots=True, kw_only=True)
class SearchProgress:
    """How far a search is; `left` is where it goes on if it stops before the end."""

    scanned: int = 0
    total: int = 0
    hits: list[KeptRecord] = field(default_factory=list)
    is_done: bool = False
    left: Ranges = field(default_factory=dict)


async def find_bounds(cluster: Cluster, topic: str, partition: int | None) -> Ranges:
    """Beginning and end of each partition that has a leader, or of one."""
    found = await require_topic(cluster, topic)
    led = [
        TopicPartition(topic, number)
        for number in found.partitions_with_leader()
        if partition is None or number == partition
    ]
    starts = await find_offsets(cluster, led, OffsetSpec.EARLIEST)
    ends = await find_offsets(cluster, led, OffsetSpec.LATEST)
    return {
        one: OffsetRange(starts[one], ends[one]) for one in led if one in starts and one in ends
    }


async def find_times(
    cluster: Cluster, partitions: Collection[TopicPartition], timestamp_ms: int, bounds: Ranges
) -> Mapping[TopicPartition, int]:
    """The first offset of each partition that is not older; its end where there is none."""
    found = await find_offsets(cluster, partitions, timestamp_ms)
    return {
        one: bounds[one].end_offset if found.get(one, -1) < 0 else found[one] for one in partitions
    }


async def read_page(
    cluster: Cluster, cursor: Cursor, bounds: Ranges, count: int, *, read_committed: bool
) -> RecordPage:
    async with asyncio.timeout(PAGE_SECONDS), _Fetcher(cluster, read_committed) as fetcher:
        for _ in range(_EMPTY_PAGES):
            planned = plan_page(cursor, bounds, count)
            found = await fetcher.read(planned)
            shown = merge(found, cursor, count)
            cursor = next_cursor(cursor, planned, found, shown)
            if shown or not planned:
                break
        more = has_more(cursor, bounds)
    return RecordPage(records=await cluster.decoder.keep_all(shown), cursor=cursor, has_more=more)


async def search(
    cluster: Cluster, wanted: Search, ranges: Ranges, *, read_committed: bool, newest_first: bool
) -> AsyncGenerator[SearchProgress, None]:
    """The progress is the same object each time. It ends when all is read, when there are enough
    hits, or after so many records."""
    wants = wanted.compile()
    progress = SearchProgress(total=count_offsets(ranges), left=dict(ranges))
    async with _Fetcher(cluster, read_committed) as fetcher:
        while (planned := plan_search(progress.left, newest_first=newest_first)) is not None:
            partition, window = planned
            walk = _backward if newest_first else _forward
            most = SEARCH_HITS - len(progress.hits)
            async for step in walk(fetcher, wants, partition, window, most):
                progress.hits += await cluster.decoder.keep_all(step.hits)
                before, left = progress.left[partition], step.left
                if newest_first:  # what is left begins where it did
                    left = OffsetRange(before.start_offset, left.end_offset)
                progress.scanned += count_offsets({partition: before})
                progress.scanned -= count_offsets({partition: left})
                progress.left = {**progress.left, partition: left}
                if len(progress.hits) >= SEARCH_HITS or progress.scanned >= SEARCH_RECORDS:
                    yield progress
                    return
                yield progress
    progress.is_done = True
    yield progress


@dataclass(frozen=True, slots=True)
class _Step:
    """Hits of a part of a window, and what of the window is not searched yet."""

    hits: Sequence[ConsumerRecord]
    left: OffsetRange


async def _forward(
    fetcher: _Fetcher,
    wants: RecordSearch,
    partition: TopicPartition,
    window: OffsetRange,
    most: int,
) -> AsyncGenerator[_Step, None]:
    position, end_offset = window
    while position < end_offset:
        answer = _require(
            (await fetcher.fetch({partition: position}, _SEARCH_FETCH_BYTES))[partition]
        )
        if answer.next_offset <= position:
            position = end_offset  # nothing follows: compaction has removed the rest
        else:
            position = min(answer.next_offset, end_offset)
        hits: list[ConsumerRecord] = []
        for record in answer.records:
            if record.offset < end_offset and wants.finds(record.key, record.value, record.headers):
                hits.append(record)
                if len(hits) >= most:
                    position = record.offset + 1
                    break
        most -= len(hits)
        yield _Step(hits, OffsetRange(position, end_offset))
        if most <= 0:
            return


async def _backward(
    fetcher: _Fetcher,
    wants: RecordSearch,
    partition: TopicPartition,
    window: OffsetRange,
    most: int,
) -> AsyncGenerator[_Step, None]:
    """The whole window, read forward; of more hits than are wanted the last."""
    hits: deque[ConsumerRecord] = deque(maxlen=most + 1)
    async with aclosing(_forward(fetcher, wants, partition, window, sys.maxsize)) as steps:
        async for step in steps:
            hits.extend(step.hits)
    start = window.start_offset
    if len(hits) > most:
        hits.popleft()
        yield _Step(list(reversed(hits)), OffsetRange(start, hits[0].offset))
    else:
        yield _Step(list(reversed(hits)), OffsetRange(start, start))


@dataclass(frozen=True, slots=True)
class TailTurn:
    """What came since the last turn: how many, and those that are shown."""

    seen: int
    records: Sequence[KeptRecord]


async def tail(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    wanted: Search | None,
    *,
    read_committed: bool,
) -> AsyncGenerator[TailTurn, None]:
    """What comes from now on, until nobody asks for more; nothing, every second, when none comes.
    Of a flood the last so many records of each turn."""
    wants = None if wanted is None else wanted.compile()
    async with cluster.tailing_consumer(read_committed=read_committed) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_end()
        while True:
            found = await consumer.poll(_TAIL_SECONDS)
            chosen = [
                one
                for one in found
                if wants is None or wants.finds(one.key, one.value, one.headers)
            ]
            shown = await cluster.decoder.keep_all(chosen[-TAIL_RECORDS:])
            yield TailTurn(len(found), shown)


class _Fetcher:
    """Connections to the leaders of some partitions, for one page or one search."""

    def __init__(self, cluster: Cluster, read_committed: bool) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._consumers: dict[int, AsyncSimpleConsumer] = {}
        self._leaders: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> _Fetcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        for consumer in self._consumers.values():
            await consumer.close()

    async def read(self, ranges: Ranges) -> list[ConsumerRecord]:
        """All records of the ranges. Answers may be cut: what is left is asked for again, in an
        order that lets the one that was cut come first, which brings at least one batch."""
        left = dict(ranges)
        found: list[ConsumerRecord] = []
        while left:
            answers = await self.fetch({one: at[0] for one, at in left.items()}, _PAGE_FETCH_BYTES)
            is_stuck = True
            for partition, answer in answers.items():
                position, end_offset = left.pop(partition)
                fetched = _require(answer)
                found += [one for one in fetched.records if one.offset < end_offset]
                is_stuck = is_stuck and fetched.next_offset <= position
                if fetched.next_offset < end_offset:
                    left[partition] = OffsetRange(max(position, fetched.next_offset), end_offset)
            if is_stuck:
                break  # nothing more comes: the rest is gone, or not committed yet
        return found

    async def fetch(
        self, offsets: Mapping[TopicPartition, int], max_bytes: int
    ) -> Mapping[TopicPartition, FetchedRecords | KafkaError]:
        """Of every leader at the same time; asks who leads when that is not known."""
        if not offsets.keys() <= self._leaders.keys():
            await self._find_leaders({one.topic for one in offsets})
        groups: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, offset in offsets.items():
            groups[self._leaders[partition]][partition] = offset
        found = await asyncio.gather(
            *[
                self._consumers[leader].fetch_many(group, max_bytes=max_bytes)
                for leader, group in groups.items()
            ]
        )
        return {one: answer for answers in found for one, answer in answers.items()}

    async def _find_leaders(self, topics: Collection[str]) -> None:
        cluster = await self._cluster.admin.describe_cluster()
        addresses = {broker.id: broker.address for broker in cluster.brokers}
        for name in topics:
            topic = await require_topic(self._cluster, name)
            for one in topic.partitions:
                if one.leader_id not in addresses:
                    continue
                self._leaders[TopicPartition(name, one.index)] = one.leader_id
                if one.leader_id not in self._consumers:
                    self._consumers[one.leader_id] = self._cluster.simple_consumer(
                        addresses[one.leader_id], read_committed=self._read_committed
                    )


def _require(answer: FetchedRecords | KafkaError) -> FetchedRecords:
    if isinstance(answer, KafkaError):
        raise answer
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingText:
    """What a person typed; None is a null. Partition None: as the partitioner says."""

    topic: str
    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str]] = ()
    partition: int | None = None


async def send_record(cluster: Cluster, record: OutgoingText) -> RecordMetadata:
    """Where it is, once it is in the log."""
    cluster.require_writable()
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        producer = await cluster.producer()
        sent = await producer.send(
            record.topic,
            None if record.value is None else record.value.encode(),
            None if record.key is None else record.key.encode(),
            partition=record.partition,
            headers=[(name, value.encode()) for name, value in record.headers],
        )
        await producer.flush()
        return await sent
