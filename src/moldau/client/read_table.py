"""A topic as an Arrow table: `moldau.read_table` and `moldau.read_batches`.

Answers for reading what a topic holds now, several partitions at once, in memory that is bounded
as long as the caller streams. No group, no commits, and no waiting for records to come: those are
the consumer's.

A shell: a loop in a thread of its own fetches while the caller's thread decodes.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from moldau.client.admin.partitions import LogAdmin
from moldau.client.blocking_face import LoopThread
from moldau.client.cluster import ClientSettings, ClusterClient, client_settings
from moldau.client.range_fetch import RangeReader, RangeSettings
from moldau.client.rules.offsets import (
    EARLIEST,
    LATEST,
    NOT_FOUND,
    Bound,
    Bounds,
    OffsetRange,
    OffsetSpec,
    bounds_by_partition,
    milliseconds_of,
    resolve_bound,
)
from moldau.config.client_options import AdminOptions
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.arrow.columns import TimestampUnit


DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def read_table(
    topic: str,
    *,
    bootstrap: str | None = None,
    partitions: Collection[int] | None = None,
    start: Bounds = None,
    end: Bounds = None,
    columns: Sequence[str] | None = None,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    read_committed: bool = False,
    timestamp_unit: TimestampUnit = "ms",
    settings: ClientSettings | None = None,
    **options: object,
) -> pa.Table:
    """What a topic holds, as a table: partition after partition, each by offset.

    The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
    timestampType and headers; `columns` chooses among them. `table.to_pandas()` and
    `polars.from_arrow(table)` make frames of it.

    `start` and `end` say what is read of each partition: an offset, a negative number that counts
    back from the end, `"earliest"`, `"latest"` or a datetime, or a dictionary of these by
    partition; `end` is exclusive. A datetime stands for the offset of the first record that is not
    older. Without them, all is read that is there at the time of the call.

    Without `bootstrap`, the environment's MOLDAU_BOOTSTRAP is asked, else 127.0.0.1:9092. Further
    options are Kafka's, as with other clients: `security_protocol="SASL_SSL"` and the like.

    `max_rows` and `max_bytes` (of the table, about) end the reading when so much has come, from
    whichever partitions it came. `read_committed` leaves out the records of transactions that were
    aborted or are not complete.
    """
    from moldau.arrow.raw_batches import to_table

    reading = _Reading(
        topic=topic,
        bootstrap=bootstrap or os.environ.get("MOLDAU_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        partitions=partitions,
        start=start,
        end=end,
        max_rows=max_rows,
        max_bytes=max_bytes,
        read_committed=read_committed,
        settings=_choose_settings(settings, options),
    )
    schema = _choose_schema(columns, timestamp_unit)
    found: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    for partition, batch in reading.pieces(schema):
        found[partition].append(batch)
    in_order = [batch for partition in sorted(found) for batch in found[partition]]
    return to_table(in_order, schema)


def read_batches(
    topic: str,
    *,
    bootstrap: str | None = None,
    partitions: Collection[int] | None = None,
    start: Bounds = None,
    end: Bounds = None,
    columns: Sequence[str] | None = None,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    read_committed: bool = False,
    timestamp_unit: TimestampUnit = "ms",
    settings: ClientSettings | None = None,
    **options: object,
) -> Iterator[pa.RecordBatch]:
    """As `read_table`, piece by piece, for topics that are larger than memory.

    Each piece holds records of one partition, in order; partitions take turns as their records
    arrive. Fetching runs ahead by some megabytes. Leaving the loop ends the reading.
    """
    reading = _Reading(
        topic=topic,
        bootstrap=bootstrap or os.environ.get("MOLDAU_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        partitions=partitions,
        start=start,
        end=end,
        max_rows=max_rows,
        max_bytes=max_bytes,
        read_committed=read_committed,
        settings=_choose_settings(settings, options),
    )
    return _without_partitions(reading.pieces(_choose_schema(columns, timestamp_unit)))


def _choose_settings(
    settings: ClientSettings | None, options: Mapping[str, object]
) -> ClientSettings | None:
    if not options:
        return settings
    if settings is not None:
        raise ConfigurationError("give either settings or options, not both")

    read = AdminOptions.read(options)
    return client_settings(read, timeout_ms=read.default_api_timeout_ms)


def _choose_schema(columns: Sequence[str] | None, timestamp_unit: TimestampUnit) -> pa.Schema:
    from moldau.arrow.columns import choose_schema

    return choose_schema(columns, timestamp_unit)


Piece = tuple[int, "pa.RecordBatch"]
"""Records of one partition, and the partition's number."""


def _without_partitions(pieces: Generator[Piece, None, None]) -> Iterator[pa.RecordBatch]:
    with closing(pieces):
        for _, batch in pieces:
            yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The arguments of one call, whichever of the two functions it was."""

    topic: str
    bootstrap: str
    partitions: Collection[int] | None
    start: Bounds
    end: Bounds
    max_rows: int | None
    max_bytes: int | None
    read_committed: bool
    settings: ClientSettings | None

    def __post_init__(self) -> None:
        for name, limit in (("max_rows", self.max_rows), ("max_bytes", self.max_bytes)):
            if limit is not None and limit < 1:
                raise ConfigurationError(f"{name} is {limit}; it must be at least 1")

    def pieces(self, schema: pa.Schema) -> Generator[Piece, None, None]:
        """What is read, as far as the limits allow."""
        rows_left = sys.maxsize if self.max_rows is None else self.max_rows
        bytes_left = sys.maxsize if self.max_bytes is None else self.max_bytes
        with closing(self._read_all(schema)) as pieces:
            for partition, batch in pieces:
                yield partition, batch.slice(0, rows_left)
                rows_left -= batch.num_rows
                bytes_left -= batch.nbytes
                if rows_left <= 0 or bytes_left <= 0:
                    return

    def _read_all(self, schema: pa.Schema) -> Generator[Piece, None, None]:
        from moldau.arrow.raw_batches import to_record_batches

        with ExitStack() as stack:
            loop = stack.enter_context(LoopThread("moldau-reader"))
            client = ClusterClient(self.bootstrap, self.settings)
            stack.callback(lambda: loop.run(client.close()))
            reader = loop.run(self._make_reader(client))
            stack.callback(lambda: loop.run(reader.close()))
            while batches := loop.run(reader.take_batches()):
                partition = batches[0].partition.partition
                for batch in to_record_batches(batches, schema):
                    yield partition, batch

    async def _make_reader(self, client: ClusterClient) -> RangeReader:
        ranges = await find_ranges(
            client,
            self.topic,
            self.partitions,
            self.start,
            self.end,
            read_committed=self.read_committed,
        )
        return RangeReader(client, ranges, RangeSettings(read_committed=self.read_committed))


# Where a log ends is what it was when this was asked: its high watermark, or for committed records
# its last stable offset.


async def find_ranges(
    client: ClusterClient,
    topic: str,
    partitions: Collection[int] | None,
    start: Bounds,
    end: Bounds,
    *,
    read_committed: bool,
) -> Mapping[TopicPartition, OffsetRange]:
    """The range of each partition, in order; raises UnknownTopicError and ConfigurationError."""
    numbers = await _find_partitions(client, topic, partitions)
    starts = bounds_by_partition(start, numbers, EARLIEST, "start")
    ends = bounds_by_partition(end, numbers, LATEST, "end")
    ask = partial(_list_offsets, client, topic, read_committed=read_committed)
    earliest = await ask(dict.fromkeys(numbers, OffsetSpec.EARLIEST))
    latest = await ask(dict.fromkeys(numbers, OffsetSpec.LATEST))
    found_starts = await ask(_times(starts))
    found_ends = await ask(_times(ends))
    ranges = {}
    for number in numbers:
        log = OffsetRange(earliest[number], latest[number])
        ranges[TopicPartition(topic, number)] = OffsetRange(
            resolve_bound(starts[number], log, found_starts.get(number, NOT_FOUND)),
            resolve_bound(ends[number], log, found_ends.get(number, NOT_FOUND)),
        )
    return ranges


async def _find_partitions(
    client: ClusterClient, topic: str, wanted: Collection[int] | None
) -> list[int]:
    metadata = await client.wait_until_topic_is_ready(topic)
    if wanted is None:
        return [partition.index for partition in metadata.partitions]
    for number in wanted:
        client.metadata.current.require_partition(TopicPartition(topic, number))
    return sorted(set(wanted))


def _times(bounds: Mapping[int, Bound]) -> dict[int, int]:
    return {
        number: milliseconds_of(bound)
        for number, bound in bounds.items()
        if isinstance(bound, datetime)
    }


async def _list_offsets(
    client: ClusterClient, topic: str, wanted: Mapping[int, int], *, read_committed: bool
) -> dict[int, int]:
    """Offsets by partition, for an OffsetSpec or a time; raises what a partition answers."""
    if not wanted:
        return {}
    answers = await LogAdmin(client).list_offsets(
        {TopicPartition(topic, number): time for number, time in wanted.items()},
        read_committed=read_committed,
    )
    offsets = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        offsets[partition.partition] = answer.offset
    return offsets
