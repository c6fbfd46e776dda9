"""Whether records are gone that a query was to read. A rule.

Offsets without a record are no loss: compaction removes records that a later one replaces, and
transactions leave markers that nobody is to see. What the log began after, was deleted before it
was read: that is loss. Only the beginning of the log tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.spark.rules.offset_maps import Offsets
from moldau.spark.rules.ranges import BatchRanges, PartitionRange, clip

ADVICE = (
    "Some records may never be seen by this query. If that is acceptable, set the option "
    "failOnDataLoss to false, and reading goes on with what is there"
)


def find_deleted(ranges: Iterable[PartitionRange], earliest: Offsets) -> list[str]:
    """A message about each range of which the beginning is gone."""
    return [
        f"{one.partition} is to be read from offset {one.start_offset}, but its log begins at "
        f"{earliest[one.partition]} by now"
        for one in ranges
        if earliest.get(one.partition, 0) > one.start_offset
    ]


def find_beyond(ranges: Iterable[PartitionRange], latest: Offsets) -> list[str]:
    """A message about each range that goes beyond the end of its log."""
    return [
        f"{one.partition} is to be read up to offset {one.end_offset}, but its log ends at "
        f"{latest[one.partition]}"
        for one in ranges
        if one.partition in latest and latest[one.partition] < one.end_offset
    ]


def find_starts_beyond(starts: Offsets, latest: Offsets) -> list[str]:
    """A message about each partition that is to be read from behind the end of its log."""
    return [
        f"{partition} is to be read from offset {start}, but its log ends at {latest[partition]}"
        for partition, start in starts.items()
        if partition in latest and latest[partition] < start
    ]


def describe_recreated(topics: Iterable[str]) -> list[str]:
    """A message about each topic that is another one than the query has read so far."""
    return [
        f"the topic {topic} was deleted and recreated: records of the old topic that the query had "
        "not read are lost, and the new topic is to be read from its beginning"
        for topic in sorted(topics)
    ]


def find_losses(batch: BatchRanges, earliest: Offsets) -> list[str]:
    """A message about everything that a batch of a streaming query misses."""
    messages = [f"{one} is not there any more" for one in sorted(batch.gone)]
    messages += [
        f"{one} ends before the offset that it was read to: it was deleted and made again, or cut"
        for one in sorted(batch.rewound)
    ]
    messages += [
        f"{one} is new, but its log begins at {earliest[one]} already"
        for one in sorted(batch.added)
        if earliest.get(one, 0) > 0
    ]
    known = (one for one in batch.ranges if one.partition not in batch.added | batch.rewound)
    return messages + find_deleted(known, earliest)


def keep_existing(
    ranges: Iterable[PartitionRange], earliest: Offsets, latest: Offsets
) -> list[PartitionRange]:
    """The ranges without what their logs do not have, as a query that does not fail reads them."""
    clipped = (
        clip(
            one,
            start_offset=earliest.get(one.partition, 0),
            end_offset=latest.get(one.partition, one.end_offset),
        )
        for one in ranges
    )
    return [one for one in clipped if not one.is_empty]
