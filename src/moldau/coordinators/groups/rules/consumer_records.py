"""What `__consumer_offsets` says about consumer groups (KIP-848), as values and in bytes:
Kafka's own formats.

The hard state of such a group is what its records say together: an epoch, what each member wants,
what each member is to get (its target), and what each has by now.

    key, after its int16 number:
      3        group string                     the group's epoch
      5        group string, member string      what a member wants
      6        group string                     the epoch of the targets
      7        group string, member string      a member's target
      8        group string, member string      what a member has
      16       group string, regex string       the topics that a regular expression stands for

    value, after its int16 version 0; lengths are compact and tagged fields come last:
      3        epoch int32; tag 0: hash int64
      5        instance id, rack id nullable strings, client id, client host strings, topics
               [string], regex nullable string, rebalance time-out int32, assignor nullable string;
               tag 0: classic member: present int8, session time-out int32, protocols [name string,
               metadata bytes]
      6        epoch int32; tag 0: timestamp int64
      7        [topic id uuid, partitions [int32]]
      8        epoch int32, previous epoch int32, state int8, assigned and revoking as in 7;
               tag 0 of a topic: [epoch int32], in which its partitions were assigned (KIP-1251);
               brokers before Kafka 4.3 write none and ignore it
      16       topics [string], image version int64, timestamp int64

Key 4, the topics' partitions before Kafka 4.1 had the hash, is left alone. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from moldau.coordinators.groups.rules.assigned_partitions import (
    AssignedPartitions,
    AssignmentEpochs,
)
from moldau.coordinators.groups.rules.record_encoding import (
    NO_TAGS,
    VERSION,
    RecordReader,
    encode_key,
    encode_partitions,
    encode_strings,
    encode_tag,
    encode_target_epoch,
)
from moldau.errors import InvalidRecordError
from moldau.wire.primitives import (
    COMPACT,
    encode_compact_count,
    encode_compact_string,
    encode_varint,
    read_legacy_string,
    read_tagged_fields,
    skip_tagged_fields,
)


class MemberState(IntEnum):
    """How far a member has come on the way to its target; Kafka's numbers."""

    STABLE = 0
    """It has the whole target of its epoch.

    Moves: to any state when the target changes.
    """

    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up first, and stays in its epoch until it says that it has.

    Moves: on towards the target when it no longer owns them; out of the group when that takes
    longer than its rebalance time-out.
    """

    UNRELEASED_PARTITIONS = 2
    """It has what is free of the target; others still hold the rest.

    Moves: to any state, with each heartbeat that finds something released or another target.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # names and metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSubscription:
    """Who a member is and what it wants."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None  # None: it speaks the new protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """What a member has, and since when."""

    epoch: int = 0
    previous_epoch: int = 0
    """It may not have heard of its epoch yet, and speak in this one."""
    state: MemberState = MemberState.STABLE
    assigned: AssignedPartitions = field(default_factory=dict)
    revoking: AssignedPartitions = field(default_factory=dict)
    """Nobody else gets these before it has given them up."""
    assignment_epochs: AssignmentEpochs = field(default_factory=dict)
    """Of the assigned and the revoking partitions: a commit in an older epoch of the member is
    accepted back to this one (CGR-5). Members of share groups commit nothing and have none."""

    def has_had(self, topic_id: UUID, partition: int, epoch: int) -> bool:
        """Whether the member has the partition without interruption since this epoch."""
        assigned_in = self.assignment_epochs.get(topic_id, {}).get(partition)
        return assigned_in is not None and assigned_in <= epoch

    def is_at(self, target_epoch: int) -> bool:
        """Whether nothing is left to do for the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


class GroupEpoch(NamedTuple):
    """Grows when the members, what they want, or the topics change."""

    epoch: int
    metadata_hash: int  # of the topics that the members want


class GroupEpochRecord(NamedTuple):
    """A new epoch, or the end of the group (None)."""

    group_id: str
    value: GroupEpoch | None


class MemberSubscriptionRecord(NamedTuple):
    """A member comes or wants something else, or has gone (None)."""

    group_id: str
    member_id: str
    value: ConsumerSubscription | None


class TargetEpochRecord(NamedTuple):
    """The targets of all members are those of this epoch of the group."""

    group_id: str
    epoch: int | None
    timestamp_ms: int = 0  # when they were computed; 0: not known


class TargetAssignmentRecord(NamedTuple):
    """What a member is to get."""

    group_id: str
    member_id: str
    value: AssignedPartitions | None


class MemberAssignmentRecord(NamedTuple):
    """What a member has."""

    group_id: str
    member_id: str
    value: MemberAssignment | None


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression stood for."""

    topics: frozenset[str]
    image_version: int
    timestamp_ms: int


class ResolvedRegexRecord(NamedTuple):
    """A regular expression was looked up, or nobody uses it any more (None)."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerGroupRecord: TypeAlias = (
    GroupEpochRecord
    | MemberSubscriptionRecord
    | TargetEpochRecord
    | TargetAssignmentRecord
    | MemberAssignmentRecord
    | ResolvedRegexRecord
)


T = TypeVar("T")

_GROUP_EPOCH: Final = 3
_SUBSCRIPTION: Final = 5
_TARGET_EPOCH: Final = 6
_TARGET: Final = 7
_ASSIGNMENT: Final = 8
_REGEX: Final = 16

CONSUMER_KEYS: Final = frozenset(
    {_GROUP_EPOCH, _SUBSCRIPTION, _TARGET_EPOCH, _TARGET, _ASSIGNMENT, _REGEX}
)
"""The numbers of keys that are read here."""

_TAG: Final = 0
_PRESENT: Final = b"\1"
_ABSENT: Final = -1

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")
_EPOCHS_AND_STATE = struct.Struct(">iib")


# Writing


def encode_consumer_group(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    match record:
        case GroupEpochRecord(group_id, epoch):
            return encode_key(_GROUP_EPOCH, group_id), None if epoch is None else _group_epoch(
                epoch
            )
        case MemberSubscriptionRecord(group_id, member_id, wanted):
            key = encode_key(_SUBSCRIPTION, group_id, member_id)
            return key, None if wanted is None else _subscription(wanted)
        case TargetEpochRecord(group_id, target_epoch, timestamp_ms):
            key = encode_key(_TARGET_EPOCH, group_id)
            if target_epoch is None:
                return key, None
            return key, VERSION + encode_target_epoch(target_epoch, timestamp_ms)
        case TargetAssignmentRecord(group_id, member_id, target):
            key = encode_key(_TARGET, group_id, member_id)
            return key, None if target is None else VERSION + encode_partitions(target) + NO_TAGS
        case MemberAssignmentRecord(group_id, member_id, assignment):
            key = encode_key(_ASSIGNMENT, group_id, member_id)
            return key, None if assignment is None else _assignment(assignment)
        case ResolvedRegexRecord(group_id, regex, resolved):
            key = encode_key(_REGEX, group_id, regex)
            return key, None if resolved is None else _resolved(resolved)


def _group_epoch(value: GroupEpoch) -> bytes:
    body = VERSION + _INT32.pack(value.epoch)
    if value.metadata_hash == 0:
        return body + NO_TAGS
    return body + encode_tag(_TAG, _INT64.pack(value.metadata_hash))


def _subscription(wanted: ConsumerSubscription) -> bytes:
    parts = [
        VERSION,
        encode_compact_string(wanted.instance_id),
        encode_compact_string(wanted.rack_id),
        encode_compact_string(wanted.client_id),
        encode_compact_string(wanted.client_host),
        encode_strings(wanted.topics),
        encode_compact_string(wanted.regex),
        _INT32.pack(wanted.rebalance_timeout_ms),
        encode_compact_string(wanted.assignor),
        NO_TAGS if wanted.classic is None else encode_tag(_TAG, _classic(wanted.classic)),
    ]
    return b"".join(parts)


def _classic(member: ClassicMember) -> bytes:
    parts = [
        _PRESENT,
        _INT32.pack(member.session_timeout_ms),
        encode_compact_count(len(member.protocols)),
    ]
    for name, metadata in member.protocols:
        parts += (
            encode_compact_string(name),
            encode_varint(len(metadata) + 1),
            metadata,
            NO_TAGS,
        )
    return b"".join(parts) + NO_TAGS


def _assignment(assignment: MemberAssignment) -> bytes:
    return (
        VERSION
        + _EPOCHS_AND_STATE.pack(assignment.epoch, assignment.previous_epoch, assignment.state)
        + encode_partitions(assignment.assigned, assignment.assignment_epochs)
        + encode_partitions(assignment.revoking, assignment.assignment_epochs)
        + NO_TAGS
    )


def _resolved(resolved: ResolvedRegex) -> bytes:
    times = _TWO_INT64.pack(resolved.image_version, resolved.timestamp_ms)
    return VERSION + encode_strings(resolved.topics) + times + NO_TAGS


# Reading


def decode_consumer_group(number: int, key: memoryview, value: bytes | None) -> ConsumerGroupRecord:
    """`number` is one of `KEYS`, and was read from the key."""
    first, position = read_legacy_string(key, _INT16.size)
    group_id = first or ""
    second = ""
    if number not in (_GROUP_EPOCH, _TARGET_EPOCH):
        second = read_legacy_string(key, position)[0] or ""

    def read(how: Callable[[_Reader], T]) -> T | None:
        return None if value is None else how(_Reader(value))

    match number:
        case 3:
            return GroupEpochRecord(group_id, read(_Reader.group_epoch))
        case 5:
            wanted = read(lambda reader: reader.subscription(second))
            return MemberSubscriptionRecord(group_id, second, wanted)
        case 6:
            return TargetEpochRecord(group_id, *(read(_Reader.target_epoch) or (None,)))
        case 7:
            return TargetAssignmentRecord(group_id, second, read(_Reader.partitions))
        case 8:
            return MemberAssignmentRecord(group_id, second, read(_Reader.assignment))
        case _:
            return ResolvedRegexRecord(group_id, second, read(_Reader.resolved))


class _Reader(RecordReader):
    """Goes through a value of a consumer group."""

    def group_epoch(self) -> GroupEpoch:
        epoch = self.int32()
        metadata_hash = 0
        for tag, start, _ in read_tagged_fields(self.view, self.at):
            if tag == _TAG:
                metadata_hash = _INT64.unpack_from(self.view, start)[0]
        return GroupEpoch(epoch, metadata_hash)

    def subscription(self, member_id: str) -> ConsumerSubscription:
        instance_id, rack_id = self.string(), self.string()
        client_id, client_host = self.string() or "", self.string() or ""
        topics, regex = self.strings(), self.string()
        timeout_ms, assignor = self.int32(), self.string()
        classic = None
        for tag, start, _ in read_tagged_fields(self.view, self.at):
            if tag == _TAG:
                self.at = start
                classic = self._classic()
        return ConsumerSubscription(
            member_id=member_id,
            instance_id=instance_id,
            rack_id=rack_id,
            client_id=client_id,
            client_host=client_host,
            topics=topics,
            regex=regex,
            rebalance_timeout_ms=timeout_ms,
            assignor=assignor,
            classic=classic,
        )

    def _classic(self) -> ClassicMember | None:
        if self.int8() == _ABSENT:
            return None
        timeout_ms = self.int32()
        protocols = []
        for _ in range(self.count(3)):
            name = self.string() or ""
            metadata, self.at = COMPACT.byte_slice(self.view, self.at)
            self.at = skip_tagged_fields(self.view, self.at)
            protocols.append((name, bytes(metadata or b"")))
        return ClassicMember(session_timeout_ms=timeout_ms, protocols=tuple(protocols))

    def assignment(self) -> MemberAssignment:
        epoch, previous_epoch = self.int32(), self.int32()
        number = self.int8()
        try:
            state = MemberState(number)
        except ValueError:
            raise InvalidRecordError(f"{number} is no state of a member") from None
        epochs: dict[UUID, dict[int, int]] = {}
        known_since = max(epoch, 0)  # of a static member that is away: any
        return MemberAssignment(
            epoch=epoch,
            previous_epoch=previous_epoch,
            state=state,
            assigned=self.partitions(epochs, known_since),
            revoking=self.partitions(epochs, known_since),
            assignment_epochs=epochs,
        )

    def resolved(self) -> ResolvedRegex:
        topics = self.strings()
        version, timestamp_ms = _TWO_INT64.unpack_from(self.view, self.at)
        return ResolvedRegex(topics, version, timestamp_ms)
