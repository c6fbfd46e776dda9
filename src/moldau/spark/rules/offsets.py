"""Offsets by partition: their JSON, the options that name them, and how far a stream is behind.

`{"clicks": {"0": 23, "1": -2}}` is the form in which people give offsets to the source, and the
one that Spark keeps in its checkpoints; both are those of Spark's own Kafka source.

A checkpoint has the ids of the topics as well: `{"clicks": {"0": 23}, "clicks@ID": {}}`. Spark's
own source, and every other reader of the form above, finds a further topic without partitions
there. No topic has such a name: `@` is not allowed in one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition, format_uuid, parse_uuid

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress


Offsets = Mapping[TopicPartition, int]
TopicIds = Mapping[str, UUID]
"""By topic. Brokers before Kafka 2.8 give topics no id; such topics are missing."""

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
"""What these two stand for in the JSON that people write."""

OffsetJson = dict[str, dict[str, int]]

_ID_MARK = "@"


class StreamOffset(NamedTuple):
    """Where a stream is. Offsets mean something in one topic only, not in another of its name."""

    offsets: Offsets
    topic_ids: TopicIds
    """Empty in checkpoints of Spark's own source and of earlier versions of Moldau."""

    def to_json(self) -> OffsetJson:
        """As Spark is to keep it: sorted, since Spark compares offsets by their text."""
        ids = {f"{topic}{_ID_MARK}{format_uuid(one)}" for topic, one in self.topic_ids.items()}
        return {**offsets_to_json(self.offsets), **{name: {} for name in sorted(ids)}}

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        return cls(offsets_from_json(value), find_topic_ids(value))


def find_topic_ids(value: object) -> dict[str, UUID]:
    """The ids in the JSON of a checkpoint."""
    names = value if isinstance(value, dict) else {}
    marked = (name.rpartition(_ID_MARK) for name in names if _ID_MARK in name)
    return {topic: parse_uuid(text) for topic, _, text in marked}


def find_recreated(before: TopicIds, now: TopicIds) -> frozenset[str]:
    """The topics that have another id than before."""
    return frozenset(topic for topic in before.keys() & now.keys() if before[topic] != now[topic])


def without_topics(offsets: Offsets, topics: Collection[str]) -> Offsets:
    return {one: offset for one, offset in offsets.items() if one.topic not in topics}


def offsets_to_json(offsets: Offsets) -> OffsetJson:
    """Offsets without ids, sorted."""
    found: OffsetJson = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def offsets_from_json(value: object, *, lowest: int = 0) -> dict[TopicPartition, int]:
    """The offsets of what Spark or a person gave; ValueError has the end of a message."""
    if not isinstance(value, dict):
        raise ValueError('is not of the form {"topic": {"0": 23}}')
    found: dict[TopicPartition, int] = {}
    for topic, by_number in value.items():
        if not isinstance(by_number, dict):
            raise ValueError(f'names no partitions of {topic}: {{"{topic}": {{"0": 23}}}}')
        for number, offset in by_number.items():
            found[TopicPartition(topic, _read_partition(number))] = _read_number(offset, lowest)
    return found


def parse_offsets(text: str, *, lowest: int = 0) -> dict[TopicPartition, int]:
    """From JSON that a person wrote; ValueError has the end of a message."""
    return offsets_from_json(_parse_json(text), lowest=lowest)


def parse_partitions(text: str) -> frozenset[TopicPartition]:
    """`{"clicks": [0, 1]}`: the partitions that `assign` names."""
    value = _parse_json(text)
    shape = 'is not of the form {"topic": [0, 1]}'
    if not isinstance(value, dict):
        raise ValueError(shape)
    found: set[TopicPartition] = set()
    for topic, numbers in value.items():
        if not isinstance(numbers, list):
            raise ValueError(shape)
        found.update(TopicPartition(topic, _read_partition(number)) for number in numbers)
    if not found:
        raise ValueError("names no partition")
    return frozenset(found)


def _parse_json(text: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    return value


def _read_partition(value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise ValueError(f"has {value!r} where the number of a partition belongs")
    return int(text)


def _read_number(value: object, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"has {value!r} where a whole number belongs")
    if value < lowest:
        raise ValueError(f"has {value}, which is less than {lowest}")
    return value


# Where reading begins and ends, as the options say it


class NamedBound(Enum):
    """A bound that is the same for every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecificOffsets:
    """An offset for each partition; -2 is the earliest, -1 the latest."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecificTimestamps:
    """The first record that is not older: one time for each partition, or one for all."""

    times_ms: Offsets | int
    if_none_latest: bool = True
    """Whether the end is meant where every record is older; otherwise that is an error."""


Bound = NamedBound | SpecificOffsets | SpecificTimestamps


def find_timestamps(
    bound: SpecificTimestamps, partitions: Collection[TopicPartition], called: str
) -> dict[TopicPartition, int]:
    """The time of each partition."""
    if isinstance(bound.times_ms, int):
        return dict.fromkeys(partitions, bound.times_ms)
    require_every_partition(bound.times_ms, partitions, called)
    return {partition: bound.times_ms[partition] for partition in partitions}


def require_every_partition(
    given: Collection[TopicPartition], partitions: Collection[TopicPartition], called: str
) -> None:
    """An option that speaks of single partitions has to speak of each, and of no other."""
    missing = sorted(set(partitions) - set(given))
    strange = sorted(set(given) - set(partitions))
    if missing:
        raise ConfigurationError(
            f"{called} names no offset for {_show(missing)}; it must name one for every partition"
        )
    if strange:
        raise ConfigurationError(f"{called} names {_show(strange)}, which is not read")


def resolve_offsets(
    bound: SpecificOffsets, earliest: Offsets, latest: Offsets
) -> dict[TopicPartition, int]:
    """The offsets meant, with -2 and -1 resolved."""
    meant = {EARLIEST_OFFSET: earliest, LATEST_OFFSET: latest}
    return {
        partition: meant[offset][partition] if offset in meant else offset
        for partition, offset in bound.offsets.items()
    }


def resolve_group_offsets(committed: Offsets, earliest: Offsets) -> dict[TopicPartition, int]:
    """Where a group goes on; from the beginning where it has committed nothing."""
    return {partition: committed.get(partition, first) for partition, first in earliest.items()}


def resolve_timestamps(
    found: Offsets, latest: Offsets, bound: SpecificTimestamps, called: str
) -> dict[TopicPartition, int]:
    """What the brokers found for times; `found` has no partition in which all is older."""
    older = sorted(set(latest) - set(found))
    if older and not bound.if_none_latest:
        raise ConfigurationError(
            f"{called}: {_show(older)} has no record at or after the time asked for; with "
            f"startingOffsetsByTimestampStrategy=latest reading begins at the end there"
        )
    return {partition: found.get(partition, end) for partition, end in latest.items()}


def _show(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:5]))
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"


# What Spark's own Kafka source puts under `metrics` in a `StreamingQueryProgress`: Spark asks no
# source in Python for metrics, but they follow from the offsets in the progress


def source_metrics(source: SourceProgress | Mapping[str, object]) -> dict[str, str]:
    """How many offsets a stream is behind, with the names and the form of Spark's own source.

    `source` is one of `query.lastProgress.sources`, or the same as JSON. Empty while Spark has no
    offsets to tell: before the first batch, and with Spark 4.0 and 4.1, which do not ask for the
    latest.
    """
    end, newest = _read_offset(source, "endOffset"), _read_offset(source, "latestOffset")
    latest = newest.offsets
    ends = without_topics(end.offsets, find_recreated(end.topic_ids, newest.topic_ids))
    behind = [max(latest[one] - end, 0) for one, end in ends.items() if one in latest]
    behind += [end for one, end in latest.items() if one not in ends]  # not read from yet
    if not end.offsets or not latest:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind, default=0)),
        "maxOffsetsBehindLatest": str(max(behind, default=0)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind) if behind else 0.0),
    }


def _read_offset(source: SourceProgress | Mapping[str, object], name: str) -> StreamOffset:
    found = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(found, str):
        found = json.loads(found) if found and found != "null" else None
    return StreamOffset.from_json(found or {})
