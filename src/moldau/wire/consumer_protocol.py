"""What consumers of a group tell each other: subscriptions and assignments (protocol "consumer").

    subscription   version int16, topics [string], user data bytes or null
                   v1: owned partitions [topic string, [int32]]   v2: generation int32
                   v3: rack string or null
    assignment     version int16, [topic string, [int32]], user data bytes or null

The coordinator passes these bytes on unread, so they have to be what every other client reads and
writes: the layout of Kafka's ConsumerProtocol, names sorted as Java sorts them. A newer version
only appends fields, and bytes that follow are ignored. A rule.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.errors import MalformedFrameError
from moldau.model import NO_GENERATION, TopicPartition

PROTOCOL_TYPE: Final = "consumer"
LAST_VERSION: Final = 3

_FIRST_WITH_OWNED: Final = 1
_FIRST_WITH_GENERATION: Final = 2
_FIRST_WITH_RACK: Final = 3

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL_STRING: Final = b"\xff\xff"
_NULL_BYTES: Final = b"\xff\xff\xff\xff"


class Subscription(NamedTuple):
    """What a member wants, and what it has at the time of joining."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION  # of which the owned partitions are
    rack_id: str | None = None


class Assignment(NamedTuple):
    """What a member gets."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = LAST_VERSION) -> bytes:
    parts = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    parts += [_string(topic) for topic in sorted(subscription.topics)]
    parts.append(_nullable_bytes(subscription.user_data))
    if version >= _FIRST_WITH_OWNED:
        parts += encode_partitions(subscription.owned_partitions)
    if version >= _FIRST_WITH_GENERATION:
        parts.append(_INT32.pack(subscription.generation_id))
    if version >= _FIRST_WITH_RACK:
        rack = subscription.rack_id
        parts.append(_NULL_STRING if rack is None else _string(rack))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """Raises MalformedFrameError when the bytes are no subscription."""
    reader = FieldReader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= _FIRST_WITH_OWNED else ()
    generation_id = reader.int32() if version >= _FIRST_WITH_GENERATION else NO_GENERATION
    rack_id = reader.nullable_string() if version >= _FIRST_WITH_RACK else None
    return Subscription(topics, user_data, owned, generation_id, rack_id)


def encode_assignment(assignment: Assignment, version: int = LAST_VERSION) -> bytes:
    parts = [_INT16.pack(version), *encode_partitions(assignment.partitions)]
    parts.append(_nullable_bytes(assignment.user_data))
    return b"".join(parts)


def decode_assignment(data: bytes) -> Assignment:
    """Nothing at all is an empty assignment: leaders leave members out that get none."""
    if not data:
        return Assignment()
    reader = FieldReader(data)
    reader.int16()
    return Assignment(reader.partitions(), reader.nullable_bytes())


def encode_partitions(partitions: Iterable[TopicPartition]) -> list[bytes]:
    """Partitions by topic, both in order."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        by_topic[topic].append(index)
    parts = [_INT32.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        parts += (_string(topic), struct.pack(f">{len(indexes) + 1}i", len(indexes), *indexes))
    return parts


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _nullable_bytes(data: bytes | None) -> bytes:
    return _NULL_BYTES if data is None else _INT32.pack(len(data)) + data


class FieldReader:
    """Reads fields one after the other; raises MalformedFrameError past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left_bytes(self) -> int:
        return len(self._data) - self._position

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self) -> int:
        """The number of elements of an array, none of which is empty."""
        count = self.int32()
        if not 0 <= count <= self.left_bytes:
            raise MalformedFrameError(f"array of {count} elements in {self.left_bytes} bytes")
        return count

    def string(self) -> str:
        found = self.nullable_string()
        if found is None:
            raise MalformedFrameError("null where a string is required")
        return found

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrameError(f"a string is no UTF-8: {error}") from error

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise MalformedFrameError(f"field ends at {end} of {len(self._data)} bytes")
        taken = self._data[self._position : end]
        self._position = end
        return taken
