"""What the message browser reads: a page, a search, a live tail; and a record to send."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from moldau.client.admin.values import OffsetSpec
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.consumer.simple_consumer import AsyncSimpleConsumer, FetchedRecords
from moldau.client.producer.produce_result import RecordMetadata
from moldau.client.rules.offsets import OffsetRange
from moldau.console.cluster import TIMEOUT_MS, Cluster
from moldau.console.record_view import KeptRecord
from moldau.console.topics import require_topic
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition
from moldau.ops.cluster_view import read_offsets

# Which offsets a page of the message browser reads, and where the next one goes on.
#
# Browsing goes forward from positions, or backward from ends; a page is what several partitions
# have there, merged by time and cut. A partition of which something was cut off goes on where it
# was cut.


MAX_PARTITIONS = 100
"""Read for one page. Of a topic with more, people choose one."""

_RECORDS_AT_ONCE = 1000

Ranges = Mapping[TopicPartition, OffsetRange]
Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a page begins: forward from positions, or backward from them (they are exclusive)."""

    is_backward: bool
    positions: Positions


def choose_partitions(bounds: Ranges) -> tuple[TopicPartition, ...]:
    """Those that have something; the first so many."""
    return tuple(one for one, log in bounds.items() if not log.is_empty)[:MAX_PARTITIONS]


def newest(bounds: Ranges) -> Cursor:
    return Cursor(is_backward=True, positions={one: log[1] for one, log in bounds.items()})


def forward_from(positions: Positions, bounds: Ranges) -> Cursor:
    """From these offsets on, each moved into its log."""
    return Cursor(
        is_backward=False,
        positions={
            one: min(max(positions.get(one, log[0]), log[0]), log[1]) for one, log in bounds.items()
        },
    )


def plan_page(cursor: Cursor, bounds: Ranges, count: int) -> Ranges:
    """What to fetch of each partition; those that have nothing more there are left out."""
    if not cursor.positions:
        return {}
    share = max(1, min(count, _RECORDS_AT_ONCE // len(cursor.positions)))
    planned: dict[TopicPartition, OffsetRange] = {}
    for partition, position in cursor.positions.items():
        start, end = bounds[partition]
        wanted = (
            OffsetRange(max(start, position - share), min(position, end))
            if cursor.is_backward
            else OffsetRange(max(start, position), min(end, position + share))
        )
        if not wanted.is_empty:
            planned[partition] = wanted
    return planned


def merge(found: Sequence[ConsumerRecord], cursor: Cursor, count: int) -> list[ConsumerRecord]:
    """By time; within a partition by offset, whatever its timestamps say."""
    by_partition: dict[int, list[ConsumerRecord]] = {}
    for record in sorted(found, key=lambda one: one.offset, reverse=cursor.is_backward):
        by_partition.setdefault(record.partition, []).append(record)
    merged: list[ConsumerRecord] = []
    heads = dict.fromkeys(by_partition, 0)  # of each, the index of what comes next
    choose = max if cursor.is_backward else min
    while heads and len(merged) < count:
        best = choose(heads, key=lambda one: (by_partition[one][heads[one]].timestamp_ms, -one))
        merged.append(by_partition[best][heads[best]])
        heads[best] += 1
        if heads[best] == len(by_partition[best]):
            del heads[best]
    return merged


def next_cursor(
    cursor: Cursor,
    planned: Ranges,
    found: Sequence[ConsumerRecord],
    shown: Sequence[ConsumerRecord],
) -> Cursor:
    """Behind what was shown; where nothing was found, behind what was read."""
    positions = dict(cursor.positions)
    found_in = {record.partition for record in found}
    for partition, wanted in planned.items():
        if partition.partition not in found_in:
            positions[partition] = wanted[0] if cursor.is_backward else wanted[1]
        offsets = [one.offset for one in shown if one.partition == partition.partition]
        if offsets:
            positions[partition] = min(offsets) if cursor.is_backward else max(offsets) + 1
    return Cursor(is_backward=cursor.is_backward, positions=positions)


def has_more(cursor: Cursor, bounds: Ranges) -> bool:
    return any(
        position > bounds[one][0] if cursor.is_backward else position < bounds[one][1]
        for one, position in cursor.positions.items()
    )


def count_offsets(ranges: Ranges) -> int:
    return sum(max(0, end - start) for start, end in ranges.values())


SEARCH_WINDOW = 20_000
"""Offsets that a search for the newest reads at a time: forward, as logs are read, from window to
window backward."""


def plan_search(left: Ranges, *, newest_first: bool) -> tuple[TopicPartition, OffsetRange] | None:
    """What a search reads next. Forward: partition after partition. For the newest: the partition
    of which most is left, so that all come back from their ends about together."""
    open_ones = {one: log for one, log in left.items() if not log.is_empty}
    if not open_ones:
        return None
    if not newest_first:
        return next(iter(open_ones.items()))
    partition = max(open_ones, key=lambda one: (count_offsets({one: open_ones[one]}), one))
    start, end = open_ones[partition]
    return partition, OffsetRange(max(start, end - SEARCH_WINDOW), end)


def rest_of(cursor: Cursor, bounds: Ranges) -> Ranges:
    """From a cursor that goes forward to the ends: what a search reads."""
    return {one: OffsetRange(at, bounds[one].end_offset) for one, at in cursor.positions.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Browsing:
    """What the controls say. At most one of `offset`, `time` and `is_live`; none is the newest."""

    partition: int | None = None
    offset: int | None = None
    time: str | None = None
    is_live: bool = False
    search: str = ""
    opens: bool = False  # the record at the offset, not only the list from there on

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Browsing:
        """Whatever stands in an address: what is no number counts as nothing."""
        offset = read_number(query.get("offset"))
        return cls(
            partition=read_number(query.get("partition")),
            offset=offset,
            time=query.get("time") if offset is None else None,
            is_live="live" in query and offset is None and "time" not in query,
            search=query.get("search", ""),
            opens="open" in query and offset is not None,
        )

    def path(self, topic: str) -> str:
        query: dict[str, str] = {}
        if self.partition is not None:
            query["partition"] = str(self.partition)
        if self.offset is not None:
            query["offset"] = str(self.offset)
        elif self.time is not None:
            query["time"] = self.time
        elif self.is_live:
            query["live"] = "1"
        if self.search:
            query["search"] = self.search
        if self.opens:
            query["open"] = "1"
        words = urlencode(query, quote_via=quote)
        return f"/topics/{quote(topic, safe='')}" + (f"?{words}" if words else "")


def read_number(text: str | None) -> int | None:
    """A partition or an offset; None for what is none, however long it is."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    return int(text)


_AGO = re.compile(r"(\d+)\s*(s|m|min|h|d)(?:\s+ago)?", re.IGNORECASE)
_MOST_DIGITS = 18  # what the protocol has room for
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970, an ISO 8601 time (in UTC unless it says otherwise), or `10m` ago."""
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None and len(ago[1]) <= _MOST_DIGITS:
        return max(0, now_ms - int(ago[1]) * _SECONDS[ago[2].lower()] * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r:.60} is no time; one looks like 10m, 2h, 2030-01-31T12:00 or 1700000000000"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


# What a person looks for among records.
#
# Keys, values and headers are searched as they were written, byte by byte: of compressed or encoded
# values only what stands in them in plain text is found. Regular expressions are RE2's, whose time
# grows with the length of a value and nothing else: nobody can hold up a console with one.


_MOST_CHARACTERS = 1_000
_PROGRAM_BYTES = 1 << 20
NOT_INSTALLED = "regular expressions need an extra: pip install 'moldau[regex]'"

Finds = Callable[[bytes], bool]
Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A text or a pattern, and where to look. Upper and lower case of ASCII are the same unless
    `match_case` says otherwise."""

    text: str
    in_key: bool = True
    in_value: bool = True
    in_headers: bool = False
    match_case: bool = False
    is_pattern: bool = False

    def compile(self) -> RecordSearch:
        """Raises ConfigurationError when it is no pattern."""
        if len(self.text) > _MOST_CHARACTERS:
            raise ConfigurationError(f"at most {_MOST_CHARACTERS:,} characters can be looked for")
        return RecordSearch(self, self._pattern() if self.is_pattern else self._plain())

    def _plain(self) -> Finds:
        needle = self.text.encode()
        if self.match_case:
            return lambda data: needle in data
        needle = needle.lower()
        return lambda data: needle in data.lower()

    def _pattern(self) -> Finds:
        try:
            import re2  # an extra, and needed by few
        except ImportError:
            raise ConfigurationError(NOT_INSTALLED) from None
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = self.match_case
        options.max_mem = _PROGRAM_BYTES
        try:
            pattern: Any = re2.compile(self.text, options)
        except re2.error as error:
            reason = error.args[0]
            words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise ConfigurationError(f"{self.text!r} is no regular expression: {words}") from None
        return lambda data: pattern.search(data) is not None


class RecordSearch:
    """A search that is ready to be asked."""

    def __init__(self, wanted: Search, finds: Finds) -> None:
        self._wanted = wanted
        self._finds = finds

    def finds(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bool:
        wanted, finds = self._wanted, self._finds
        if wanted.in_key and key is not None and finds(key):
            return True
        if wanted.in_value and value is not None and finds(value):
            return True
        return wanted.in_headers and any(
            finds(name.encode()) or (data is not None and finds(data)) for name, data in headers
        )


# Reads records for people: a page, a search, a live tail. Each has its limits.
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
    starts = await read_offsets(cluster.admin, led, OffsetSpec.EARLIEST)
    ends = await read_offsets(cluster.admin, led, OffsetSpec.LATEST)
    return {
        one: OffsetRange(starts[one], ends[one]) for one in led if one in starts and one in ends
    }


async def find_times(
    cluster: Cluster, partitions: Collection[TopicPartition], timestamp_ms: int, bounds: Ranges
) -> Mapping[TopicPartition, int]:
    """The first offset of each partition that is not older; its end where there is none."""
    found = await read_offsets(cluster.admin, partitions, timestamp_ms)
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
