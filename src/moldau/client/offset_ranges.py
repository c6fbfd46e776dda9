"""Asks the cluster which offsets are meant by the bounds that a person gave.

The rules are in `rules/read_bounds`; this is the shell that gets their numbers. Where a log ends is
what it was when this was asked: its high watermark, or for committed records its last stable
offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import partial

from moldau.client.admin_logs import LogAdmin
from moldau.client.cluster_client import ClusterClient
from moldau.client.offset_values import OffsetSpec
from moldau.client.rules.read_bounds import (
    EARLIEST,
    LATEST,
    NOT_FOUND,
    Bound,
    Bounds,
    OffsetRange,
    bounds_by_partition,
    milliseconds_of,
    place,
)
from moldau.errors import KafkaError
from moldau.model import TopicPartition


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
    ask = partial(_ask, client, topic, read_committed=read_committed)
    earliest = await ask(dict.fromkeys(numbers, OffsetSpec.EARLIEST))
    latest = await ask(dict.fromkeys(numbers, OffsetSpec.LATEST))
    found_starts = await ask(_times(starts))
    found_ends = await ask(_times(ends))
    ranges = {}
    for number in numbers:
        log = OffsetRange(earliest[number], latest[number])
        ranges[TopicPartition(topic, number)] = OffsetRange(
            place(starts[number], log, found_starts.get(number, NOT_FOUND)),
            place(ends[number], log, found_ends.get(number, NOT_FOUND)),
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


async def _ask(
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
