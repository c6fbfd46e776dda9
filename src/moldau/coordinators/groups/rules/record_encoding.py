"""What the records of consumer, share and streams groups are made of, in bytes. A rule."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from moldau.coordinators.groups.rules.assigned_partitions import (
    AssignedPartitions,
    AssignmentEpochs,
)
from moldau.errors import InvalidRecordError
from moldau.wire.primitives import (
    COMPACT,
    encode_compact_count,
    encode_compact_string,
    encode_legacy_string,
    encode_uuid,
    encode_varint,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
)

VERSION: Final = struct.pack(">h", 0)
NO_TAGS: Final = b"\0"

_EPOCHS_TAG: Final = 0
_TIMESTAMP_TAG: Final = 0
_NULL: Final = b"\0"

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


# Writing


def encode_key(number: int, *parts: str) -> bytes:
    return _INT16.pack(number) + b"".join(map(encode_legacy_string, parts))


def encode_strings(names: Iterable[str]) -> bytes:
    ordered = sorted(names)
    return encode_compact_count(len(ordered)) + b"".join(map(encode_compact_string, ordered))


def encode_numbers(numbers: Collection[int]) -> bytes:
    return encode_ordered(sorted(numbers))


def encode_ordered(numbers: list[int]) -> bytes:
    return encode_compact_count(len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)


def encode_partitions(
    partitions: AssignedPartitions, epochs: AssignmentEpochs = MappingProxyType({})
) -> bytes:
    """With the epochs of the partitions, in the same order, as far as they are given."""
    parts = [encode_compact_count(len(partitions))]
    for topic_id in sorted(partitions, key=lambda one: one.int):
        numbers = partitions[topic_id]
        tags = NO_TAGS
        if topic_id in epochs:
            ordered = [epochs[topic_id][one] for one in sorted(numbers)]
            tags = encode_tag(_EPOCHS_TAG, encode_ordered(ordered))
        parts += (encode_uuid(topic_id), encode_numbers(numbers), tags)
    return b"".join(parts)


def encode_target_epoch(epoch: int, timestamp_ms: int) -> bytes:
    tags = encode_tag(_TIMESTAMP_TAG, _INT64.pack(timestamp_ms)) if timestamp_ms else NO_TAGS
    return _INT32.pack(epoch) + tags


def encode_tag(number: int, body: bytes) -> bytes:
    """The tagged fields of a structure that has one."""
    return b"\1" + encode_varint(number) + encode_varint(len(body)) + body


# Reading


class RecordReader:
    """Goes through a value of version 0 from front to back."""

    def __init__(self, value: bytes) -> None:
        self.view = memoryview(value)
        self.at = _INT16.size
        version: int = _INT16.unpack_from(value)[0]
        if version != 0:
            raise InvalidRecordError(f"a value of version {version} is not known")

    def partitions(
        self, epochs: dict[UUID, dict[int, int]] | None = None, epoch: int = 0
    ) -> AssignedPartitions:
        """`epochs` gets the epochs of the partitions; `epoch` is that of partitions without."""
        found: dict[UUID, frozenset[int]] = {}
        for _ in range(self.count(18)):
            topic_id, numbers, tags = self.uuid(), self.ordered(), self.tags()
            if topic_id is None or not numbers:
                continue
            found[topic_id] = frozenset(numbers)
            if epochs is not None:
                assigned_in = self.epochs_in(tags, epoch, len(numbers))
                epochs.setdefault(topic_id, {}).update(zip(numbers, assigned_in, strict=True))
        return found

    @staticmethod
    def epochs_in(tags: Mapping[int, bytes], epoch: int, count: int) -> Sequence[int]:
        """As many as there are partitions or tasks; records of older brokers have none."""
        body = tags.get(_EPOCHS_TAG, _NULL)
        if body == _NULL:
            return [epoch] * count
        epochs = RecordReader(VERSION + body).ordered()
        if len(epochs) != count:
            raise InvalidRecordError(f"{len(epochs)} assignment epochs for {count} partitions")
        return epochs

    def target_epoch(self) -> tuple[int, int]:
        """And when the targets were computed: 0 before Kafka 4.3."""
        epoch, tags = self.int32(), self.tags()
        timestamp_ms: int = _INT64.unpack(tags[_TIMESTAMP_TAG])[0] if _TIMESTAMP_TAG in tags else 0
        return epoch, timestamp_ms

    def numbers(self) -> frozenset[int]:
        return frozenset(self.ordered())

    def ordered(self) -> Sequence[int]:
        count = self.count(_INT32.size)
        numbers = struct.unpack_from(f">{count}i", self.view, self.at)
        self.at += count * _INT32.size
        return numbers

    def int8(self) -> int:
        return self._number(_INT8)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _number(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self.view, self.at)[0]
        self.at += form.size
        return value

    def uuid(self) -> UUID | None:
        value, self.at = read_uuid(self.view, self.at)
        return value

    def string(self) -> str | None:
        value, self.at = COMPACT.string(self.view, self.at)
        return value

    def strings(self) -> frozenset[str]:
        return frozenset(self.string() or "" for _ in range(self.count(1)))

    def count(self, min_bytes: int) -> int:
        count, self.at = COMPACT.array_count(self.view, self.at, min_bytes)
        return count

    def tags(self) -> dict[int, bytes]:
        """What tagged fields hold, by their numbers."""
        found = {}
        end = self.at
        for tag, start, end in read_tagged_fields(self.view, self.at):
            found[tag] = bytes(self.view[start:end])
        self.at = end
        return found

    def skip_tags(self) -> None:
        self.at = skip_tagged_fields(self.view, self.at)
