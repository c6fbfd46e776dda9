"""Offsets by partition, and their JSON: `{"clicks": {"0": 23, "1": -2}}`. A rule.

It is the form in which people give offsets to the source, and the one that Spark keeps in its
checkpoints; both are those of Spark's own Kafka source.

A checkpoint has the ids of the topics as well: `{"clicks": {"0": 23}, "clicks@ID": {}}`. Spark's
own source, and every other reader of the form above, finds a further topic without partitions
there. No topic has such a name: `@` is not allowed in one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from moldau.model import TopicPartition, format_uuid, parse_uuid

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
        return {**to_json(self.offsets), **{name: {} for name in sorted(ids)}}

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        return cls(from_json(value), find_topic_ids(value))


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


def to_json(offsets: Offsets) -> OffsetJson:
    """Offsets without ids, sorted."""
    found: OffsetJson = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def from_json(value: object, *, lowest: int = 0) -> dict[TopicPartition, int]:
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
    return from_json(_parse(text), lowest=lowest)


def parse_partitions(text: str) -> frozenset[TopicPartition]:
    """`{"clicks": [0, 1]}`: the partitions that `assign` names."""
    value = _parse(text)
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


def _parse(text: str) -> object:
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
