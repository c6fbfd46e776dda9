"""What the message browser reads: from where, which offsets, and what it looks for. Rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.read_bounds import OffsetRange
from moldau.errors import ConfigurationError
from moldau.model import TopicPartition

# Which offsets a page of the message browser reads, and where the next one goes on. Rules.
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


# What a person looks for among records. Rules.
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
