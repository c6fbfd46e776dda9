"""Reads and prints for `moldau consume` until one of its reasons to stop comes true."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from moldau.cli.consume_start import BeforeEnd, Offsets, Start, find_end, find_start
from moldau.cli.output import note
from moldau.cli.record_format import Formatter
from moldau.client.cluster_client import ClusterClient
from moldau.client.partition_reader import Fetched, PartitionReader
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import OffsetOutOfRangeError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.records.record import Record

_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What to print of which topic. No partitions: all of them."""

    topic: str
    partitions: tuple[int, ...]
    start: Start
    formatter: Formatter
    max_records: int | None
    idle_seconds: float | None
    until_end: bool


async def consume_records(client: ClusterClient, consumption: Consumption) -> None:
    """Print until it is time to stop."""
    found = await client.metadata.refresh((consumption.topic,))
    partitions = _choose_partitions(found.require_topic(consumption.topic), consumption)
    start = await find_start(client, partitions, consumption.start)
    end = await find_end(client, partitions) if consumption.until_end else None
    if end is None and consumption.start == BeforeEnd(0) and sys.stderr.isatty():
        note(f"waiting for new records in {consumption.topic}; --from-beginning shows the old ones")
    reader = PartitionReader(client, start)
    try:
        await _print_all(reader, consumption, end)
    except OffsetOutOfRangeError as error:
        raise await _with_range(client, error, partitions) from error
    finally:
        await reader.close()


def _choose_partitions(topic: TopicMetadata, consumption: Consumption) -> Sequence[TopicPartition]:
    count = len(topic.partitions)
    for index in consumption.partitions:
        if index >= count:
            raise UnknownTopicError(
                f"topic {topic.name!r} has no partition {index}; it has {count}, counted from 0"
            )
    chosen = dict.fromkeys(consumption.partitions) or range(count)
    return [TopicPartition(topic.name, index) for index in chosen]


async def _print_all(
    reader: PartitionReader, consumption: Consumption, end: Offsets | None
) -> None:
    left = consumption.max_records
    patience = _POLL_SECONDS if consumption.idle_seconds is None else consumption.idle_seconds
    while not _drop_finished(reader, end):
        arrived = await reader.read(patience)
        if not arrived and consumption.idle_seconds is not None:
            return
        for fetched in arrived:
            records = _until(fetched, end)[:left]
            _print(fetched.partition, records, consumption.formatter)
            if left is not None:
                left -= len(records)
                if not left:
                    return


def _drop_finished(reader: PartitionReader, end: Offsets | None) -> bool:
    """Stop reading partitions that are at their end; say whether all are."""
    if end is None:
        return False
    for partition, offset in end.items():
        if reader.positions.get(partition, offset) >= offset:
            reader.forget(partition)
    return not reader.positions


def _until(fetched: Fetched, end: Offsets | None) -> list[Record]:
    if end is None or fetched.records[-1].offset < end[fetched.partition]:
        return fetched.records
    return [record for record in fetched.records if record.offset < end[fetched.partition]]


def _print(partition: TopicPartition, records: Sequence[Record], formatter: Formatter) -> None:
    out = sys.stdout.buffer
    out.write(b"".join([formatter(partition, record) for record in records]))
    out.flush()


async def _with_range(
    client: ClusterClient, error: OffsetOutOfRangeError, partitions: Sequence[TopicPartition]
) -> OffsetOutOfRangeError:
    """The error, and which offsets there are instead."""
    from moldau.cli.consume_start import AtBeginning

    earliest = await find_start(client, partitions, AtBeginning())
    latest = await find_end(client, partitions)
    ranges = ", ".join(f"{one} has {earliest[one]} to {latest[one]}" for one in partitions)
    return OffsetOutOfRangeError(f"{error} ({ranges})")
