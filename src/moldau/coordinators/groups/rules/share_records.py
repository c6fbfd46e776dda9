"""What `__consumer_offsets` says about share groups (KIP-932), as values and in bytes: Kafka's
own formats.

Epochs, members and assignments are as those of consumer groups, under keys of their own. Beside
them stands in which partitions the share coordinators keep a state for the group.

    key, after its int16 number:
      10       group string, member string      what a member wants
      11       group string                     the group's epoch
      12       group string                     the epoch of the targets
      13       group string, member string      a member's target
      14       group string, member string      what a member has
      15       group string                     where a state is kept for the group

    value, after its int16 version 0; lengths are compact and tagged fields come last:
      10       rack id nullable string, client id, client host strings, topics [string]
      11       epoch int32, hash int64
      12       epoch int32; tag 0: timestamp int64
      13       [topic id uuid, partitions [int32]]
      14       epoch int32, previous epoch int32, state int8, assigned as in 13
      15       initializing, initialized [topic id uuid, name string, partitions [int32]],
               deleting [topic id uuid, name string]; our own tag in a topic that is
               initializing: [partition int32, start offset int64], which Kafka passes over

A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.consumer_records import (
    ConsumerSubscription,
    GroupEpoch,
    GroupEpochRecord,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.coordinators.groups.rules.record_encoding import (
    NO_TAGS,
    VERSION,
    RecordReader,
    encode_key,
    encode_numbers,
    encode_partitions,
    encode_strings,
    encode_tag,
    encode_target_epoch,
)
from moldau.wire.primitives import (
    encode_compact_count,
    encode_compact_string,
    encode_uuid,
    read_legacy_string,
)


class ShareEpochRecord(GroupEpochRecord):
    """A new epoch of a share group, or its end (None)."""

    __slots__ = ()


class ShareSubscriptionRecord(MemberSubscriptionRecord):
    """A member of a share group comes or wants something else, or has gone (None)."""

    __slots__ = ()


class ShareTargetEpochRecord(TargetEpochRecord):
    """The targets of all members are those of this epoch of the share group."""

    __slots__ = ()


class ShareTargetRecord(TargetAssignmentRecord):
    """What a member of a share group is to get."""

    __slots__ = ()


class ShareAssignmentRecord(MemberAssignmentRecord):
    """What a member of a share group has."""

    __slots__ = ()


_NO_STARTS: Final[Mapping[int, int]] = MappingProxyType({})


class KeptTopic(NamedTuple):
    """Partitions of a topic, for which a state is kept or about to be."""

    name: str
    partitions: frozenset[int]
    # Of partitions that are initializing: the offsets at which they begin, however often share
    # coordinators have to be asked. The others begin by `share.auto.offset.reset`.
    starts: Mapping[int, int] = _NO_STARTS


_NO_TOPICS: Final[Mapping[UUID, KeptTopic]] = MappingProxyType({})
_NO_NAMES: Final[Mapping[UUID, str]] = MappingProxyType({})


class StateTopics(NamedTuple):
    """Where share coordinators keep a state for the group, by the ids of topics.

    Invariants: no partition is both initializing and initialized (SHG-2); only one that is
    initializing has an offset at which it begins.
    """

    initializing: Mapping[UUID, KeptTopic] = _NO_TOPICS
    initialized: Mapping[UUID, KeptTopic] = _NO_TOPICS
    deleting: Mapping[UUID, str] = _NO_NAMES  # their names

    def has_initialized(self, topic_id: UUID, partition: int) -> bool:
        topic = self.initialized.get(topic_id)
        return topic is not None and partition in topic.partitions

    @property
    def everything(self) -> AssignedPartitions:
        """Wherever there may be a state."""
        found: dict[UUID, frozenset[int]] = {}
        for topics in (self.initializing, self.initialized):
            for topic_id, topic in topics.items():
                found[topic_id] = found.get(topic_id, frozenset()) | topic.partitions
        return found


class StateTopicsRecord(NamedTuple):
    """Where a state is kept for the group, or nowhere any more (None)."""

    group_id: str
    value: StateTopics | None


ShareGroupRecord: TypeAlias = (
    ShareEpochRecord
    | ShareSubscriptionRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareAssignmentRecord
    | StateTopicsRecord
)

SHARE_RECORDS: Final = (
    ShareEpochRecord,
    ShareSubscriptionRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    ShareAssignmentRecord,
    StateTopicsRecord,
)


T = TypeVar("T")

_SUBSCRIPTION: Final = 10
_GROUP_EPOCH: Final = 11
_TARGET_EPOCH: Final = 12
_TARGET: Final = 13
_ASSIGNMENT: Final = 14
_STATE_TOPICS: Final = 15

SHARE_KEYS: Final = frozenset(range(_SUBSCRIPTION, _STATE_TOPICS + 1))
"""The numbers of keys that are read here."""

_OF_GROUPS: Final = (_GROUP_EPOCH, _TARGET_EPOCH, _STATE_TOPICS)

_STARTS_TAG: Final = 10_000
"""Far from the numbers that Kafka may give to its own."""

_INT16 = struct.Struct(">h")
_EPOCH_AND_HASH = struct.Struct(">iq")
_EPOCHS_AND_STATE = struct.Struct(">iib")
_START = struct.Struct(">iq")


# Writing


def encode_share_group(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    match record:
        case ShareSubscriptionRecord(group_id, member_id, wanted):
            key = encode_key(_SUBSCRIPTION, group_id, member_id)
            return key, None if wanted is None else _subscription(wanted)
        case ShareEpochRecord(group_id, epoch):
            key = encode_key(_GROUP_EPOCH, group_id)
            return key, None if epoch is None else VERSION + _EPOCH_AND_HASH.pack(*epoch) + NO_TAGS
        case ShareTargetEpochRecord(group_id, target_epoch, timestamp_ms):
            key = encode_key(_TARGET_EPOCH, group_id)
            if target_epoch is None:
                return key, None
            return key, VERSION + encode_target_epoch(target_epoch, timestamp_ms)
        case ShareTargetRecord(group_id, member_id, target):
            key = encode_key(_TARGET, group_id, member_id)
            return key, None if target is None else VERSION + encode_partitions(target) + NO_TAGS
        case ShareAssignmentRecord(group_id, member_id, assignment):
            key = encode_key(_ASSIGNMENT, group_id, member_id)
            return key, None if assignment is None else _assignment(assignment)
        case StateTopicsRecord(group_id, topics):
            key = encode_key(_STATE_TOPICS, group_id)
            return key, None if topics is None else _state_topics(topics)


def _subscription(wanted: ConsumerSubscription) -> bytes:
    parts = (
        VERSION,
        encode_compact_string(wanted.rack_id),
        encode_compact_string(wanted.client_id),
        encode_compact_string(wanted.client_host),
        encode_strings(wanted.topics),
        NO_TAGS,
    )
    return b"".join(parts)


def _assignment(assignment: MemberAssignment) -> bytes:
    return (
        VERSION
        + _EPOCHS_AND_STATE.pack(assignment.epoch, assignment.previous_epoch, assignment.state)
        + encode_partitions(assignment.assigned)
        + NO_TAGS
    )


def _state_topics(topics: StateTopics) -> bytes:
    parts = [
        VERSION,
        _topics(topics.initializing),
        _topics(topics.initialized),
        encode_compact_count(len(topics.deleting)),
    ]
    for topic_id in sorted(topics.deleting, key=_by_number):
        name = encode_compact_string(topics.deleting[topic_id])
        parts += (encode_uuid(topic_id), name, NO_TAGS)
    return b"".join(parts) + NO_TAGS


def _topics(topics: Mapping[UUID, KeptTopic]) -> bytes:
    parts = [encode_compact_count(len(topics))]
    for topic_id in sorted(topics, key=_by_number):
        name, partitions, starts = topics[topic_id]
        parts += (
            encode_uuid(topic_id),
            encode_compact_string(name),
            encode_numbers(partitions),
            _starts(starts),
        )
    return b"".join(parts)


def _starts(starts: Mapping[int, int]) -> bytes:
    if not starts:
        return NO_TAGS
    content = b"".join(_START.pack(*one) for one in sorted(starts.items()))
    return encode_tag(_STARTS_TAG, content)


def _by_number(topic_id: UUID) -> int:
    return topic_id.int


# Reading


def decode_share_group(number: int, key: memoryview, value: bytes | None) -> ShareGroupRecord:
    """`number` is one of `SHARE_KEYS`, and was read from the key."""
    first, position = read_legacy_string(key, _INT16.size)
    group_id = first or ""
    member_id = ""
    if number not in _OF_GROUPS:
        member_id = read_legacy_string(key, position)[0] or ""

    def read(how: Callable[[RecordReader], T]) -> T | None:
        return None if value is None else how(RecordReader(value))

    match number:
        case 10:
            wanted = read(lambda reader: _read_subscription(reader, member_id))
            return ShareSubscriptionRecord(group_id, member_id, wanted)
        case 11:
            return ShareEpochRecord(group_id, read(_read_epoch))
        case 12:
            return ShareTargetEpochRecord(group_id, *(read(RecordReader.target_epoch) or (None,)))
        case 13:
            return ShareTargetRecord(group_id, member_id, read(RecordReader.partitions))
        case 14:
            return ShareAssignmentRecord(group_id, member_id, read(_read_assignment))
        case _:
            return StateTopicsRecord(group_id, read(_read_state_topics))


def _read_subscription(reader: RecordReader, member_id: str) -> ConsumerSubscription:
    return ConsumerSubscription(
        member_id=member_id,
        rack_id=reader.string(),
        client_id=reader.string() or "",
        client_host=reader.string() or "",
        topics=reader.strings(),
    )


def _read_epoch(reader: RecordReader) -> GroupEpoch:
    return GroupEpoch(reader.int32(), reader.int64())


def _read_assignment(reader: RecordReader) -> MemberAssignment:
    """The state, which is always the same, is not looked at."""
    epoch, previous_epoch, _ = reader.int32(), reader.int32(), reader.int8()
    return MemberAssignment(
        epoch=epoch, previous_epoch=previous_epoch, assigned=reader.partitions()
    )


def _read_state_topics(reader: RecordReader) -> StateTopics:
    initializing, initialized = _read_topics(reader), _read_topics(reader)
    deleting: dict[UUID, str] = {}
    for _ in range(reader.count(18)):
        topic_id, name = reader.uuid(), reader.string() or ""
        reader.skip_tags()
        if topic_id is not None:
            deleting[topic_id] = name
    return StateTopics(initializing, initialized, deleting)


def _read_topics(reader: RecordReader) -> dict[UUID, KeptTopic]:
    topics: dict[UUID, KeptTopic] = {}
    for _ in range(reader.count(19)):
        topic_id, name, numbers = reader.uuid(), reader.string() or "", reader.numbers()
        content = reader.tags().get(_STARTS_TAG, b"")
        if topic_id is not None:
            topics[topic_id] = KeptTopic(name, numbers, dict(_START.iter_unpack(content)))
    return topics
