"""The committed offsets of a group, those that are pending in transactions, and which of them
belong to topics that are deleted or subscribed to.

Hard state, changed by applying records alone. `commits` has who may commit, and what is too old.
A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.model import NO_TIMESTAMP

_NOTHING: Mapping[int, CommittedOffset] = MappingProxyType({})


class OffsetTable:
    """By topic, then by partition; a topic without committed offsets is not in it."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._by_topic.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._by_topic)

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        return self._by_topic.get(topic, _NOTHING)

    def find(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_topic(topic).get(partition)

    def apply(self, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        if committed is not None:
            self._by_topic.setdefault(topic, {})[partition] = committed
            return
        partitions = self._by_topic.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._by_topic[topic]


class WithOffsets:
    """A group of any kind, as far as its offsets go. They outlive its kind."""

    offsets: OffsetTable
    pending_offsets: PendingOffsets

    def take_offsets(self, former: WithOffsets) -> None:
        """Go on with those of the group that had this id before."""
        self.offsets = former.offsets
        self.pending_offsets = former.pending_offsets


# The offsets that producers commit for a group in transactions that are still open (TXP-5).
#
# They become the group's with the commit of their transaction, or go with its abort. What was
# committed later than such an offset, in another transaction or in none, stays when the transaction
# ends: of two commits the one that is later in the log counts, whenever it was decided.
#
# Hard state: changed by applying records, in the order of the log. A rule.


class _Pending(NamedTuple):
    order: int
    committed: CommittedOffset | None
    """None when a later commit has taken its place; the partition stays undecided."""


class PendingOffsets:
    """By producer id, then by topic and partition; a producer without offsets is not in it."""

    __slots__ = ("_by_producer", "_next_order")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[str, int], _Pending]] = {}
        self._next_order = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """The partitions of which some offset is undecided, each once."""
        yield from dict.fromkeys(key for of in self._by_producer.values() for key in of)

    def of_partition(self, topic: str, partition: int) -> list[CommittedOffset]:
        """The undecided offsets of a partition that may still become the group's."""
        found = (of.get((topic, partition)) for of in self._by_producer.values())
        return [one.committed for one in found if one is not None and one.committed is not None]

    def holds(self, topic: str, partition: int) -> bool:
        """Whether a transaction that is still open may change the offset of a partition."""
        return any((topic, partition) in of for of in self._by_producer.values())

    def add(self, producer_id: int, topic: str, partition: int, committed: CommittedOffset) -> None:
        pending = _Pending(self._next_order, committed)
        self._next_order += 1
        self._by_producer.setdefault(producer_id, {})[topic, partition] = pending

    def supersede(self, topic: str, partition: int) -> None:
        """Another offset was committed, later than all that is here."""
        self._supersede(topic, partition, self._next_order)

    def discard(self, topic: str, partition: int) -> None:
        """The offset was deleted, and what is undecided with it."""
        for producer_id, offsets in tuple(self._by_producer.items()):
            offsets.pop((topic, partition), None)
            if not offsets:
                del self._by_producer[producer_id]

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[str, int, CommittedOffset]]:
        """The transaction of a producer has ended: what becomes the group's."""
        ended = self._by_producer.pop(producer_id, {})
        if not is_commit:
            return []
        decided = []
        for (topic, partition), (order, committed) in ended.items():
            if committed is not None:
                decided.append((topic, partition, committed))
                self._supersede(topic, partition, order)
        return decided

    def _supersede(self, topic: str, partition: int, before: int) -> None:
        key = topic, partition
        for offsets in self._by_producer.values():
            pending = offsets.get(key)
            if pending is not None and pending.order < before:
                offsets[key] = pending._replace(committed=None)


# Which committed offsets belong to a topic that was deleted (GRP-10). A rule.
#
# An offset with the id of the topic that has the name now belongs to that topic. The others belong
# to a former topic of the name, except those that were committed by name after the present topic
# was created: the coordinator's image was old when it handled the commit, and gave it the former
# id.
#
# An offset without an id was written by an older broker, or the client set a time of its own. It
# belongs to a former topic if a topic of the name was deleted after the commit.
#
# An offset is deleted only if the deletion of its topic is known. Until then it is kept and not
# shown: the image may be old, or the topic comes back (DEL-1). So is an offset that was committed
# after the deletion, while the image has no topic of the name: the next topic may exist already.
# Times are the store's, those of commits as well: the clocks of brokers may differ by more than the
# time between a deletion and the next commit (`MetadataPublisher.store_now_ms`).


def is_current(topic: str, committed: CommittedOffset, image: MetadataImage) -> bool:
    """Whether the offset belongs to the topic of this name, or to one that may come back."""
    live, topic_id = image.topics.get(topic), committed.topic_id
    if live is None:
        return not image.was_deleted(topic, topic_id, committed.commit_timestamp_ms)
    if topic_id == live.topic_id:
        return True
    if committed.names_topic_id:
        return False
    if live.created_ms != NO_TIMESTAMP and committed.commit_timestamp_ms >= live.created_ms:
        return True
    return topic_id is None and not image.was_deleted(topic, None, committed.commit_timestamp_ms)


def is_deleted(topic: str, committed: CommittedOffset, image: MetadataImage) -> bool:
    """Whether the offset goes with its topic."""
    deleted_ms = image.find_deletion_ms(topic, committed.topic_id)
    if deleted_ms is None or is_current(topic, committed, image):
        return False
    live = image.topics.get(topic)
    is_sure = committed.names_topic_id or (live is not None and live.created_ms != NO_TIMESTAMP)
    return is_sure or committed.commit_timestamp_ms <= deleted_ms


# The topics that consumers have subscribed to, read from what they say to each other.
#
# The metadata of the `consumer` protocol is the clients' own affair, but its beginning has been the
# same in all versions: a version, then the names of the topics. Kafka reads that much, to keep the
# offsets of subscribed topics from expiring and from being deleted. A rule.
#
#     version int16, topics [string int16], ...


CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of one member; None where the bytes are not what the protocol says."""
    topics = set()
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            topics.add(str(name, "utf-8"))
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def find_subscribed_topics(
    protocol_type: str, subscriptions: Iterable[bytes]
) -> frozenset[str] | None:
    """The topics of all members together; None when that is not known."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for subscription in subscriptions:
        found = find_topics(subscription)
        if found is None:
            return None
        topics |= found
    return frozenset(topics)
